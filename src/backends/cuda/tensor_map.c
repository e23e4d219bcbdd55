/* SPDX-License-Identifier: MIT */
#include "backends/cuda/tensor_map.h"

#include <string.h>

static bool fits(int64_t n)
{
    return n > 0 && n <= UINT32_MAX;
}

bool qrn_cuda_can_map(const struct qrn_tensor_box *b)
{
    return (uintptr_t)b->data % 16 == 0 && b->row_bytes % 16 == 0 && b->matrix_bytes % 16 == 0 &&
           b->row_bytes > 0 && fits(b->n) && fits(b->n_rows) && fits(b->n_matrices) &&
           (b->dtype == QRN_F32 || b->dtype == QRN_F16 || b->dtype == QRN_BF16);
}

static CUtensorMapDataType type_of(enum qrn_dtype dtype)
{
    if (dtype == QRN_F32) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    return dtype == QRN_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/* A map of b's data by so many dimensions, from the innermost on, and bytes from one to the next of all but that one. */
static void encode(struct qrn_cuda_stream *s, const struct qrn_tensor_box *b, cuuint32_t rank,
                   const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                   struct qrn_tensor_map *out)
{
    static const cuuint32_t steps[4] = {1, 1, 1, 1};
    const CUtensorMapL2promotion fetched =
        b->is_read_once ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    CUtensorMap map;
    if (s->result != CUDA_SUCCESS) return;
    s->result = s->cuda->driver.tensor_map(
        &map, type_of(b->dtype), rank, (void *)(uintptr_t)b->data, dims, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, fetched,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (s->result != CUDA_SUCCESS) s->failed = "a map of a tensor";
    memcpy(out, &map, sizeof *out);
}

void qrn_cuda_tensor_map(struct qrn_cuda_stream *s, const struct qrn_tensor_box *b,
                         struct qrn_tensor_map *out)
{
    const cuuint64_t dims[] = {(cuuint64_t)b->n, (cuuint64_t)b->n_rows, (cuuint64_t)b->n_matrices};
    /* A single matrix has no distance, which the driver wants all the same. */
    const cuuint64_t matrix =
        b->matrix_bytes > 0 ? (cuuint64_t)b->matrix_bytes : (cuuint64_t)(b->row_bytes * b->n_rows);
    const cuuint64_t strides[] = {(cuuint64_t)b->row_bytes, matrix};
    const cuuint32_t box[] = {(cuuint32_t)b->box_n, (cuuint32_t)b->box_rows,
                              b->box_matrices ? (cuuint32_t)b->box_matrices : 1};
    encode(s, b, 3, dims, strides, box, out);
}

void qrn_cuda_map_halves(struct qrn_cuda_stream *s, const struct qrn_tensor_box *b,
                         struct qrn_tensor_map *out)
{
    const cuuint64_t dims[] = {(cuuint64_t)b->n, 8, 2, (cuuint64_t)b->n_rows / 16},
                     strides[] = {(cuuint64_t)b->row_bytes,
                                  (cuuint64_t)(b->row_bytes * (b->n_rows / 2)),
                                  (cuuint64_t)(8 * b->row_bytes)};
    const cuuint32_t box[] = {(cuuint32_t)b->box_n, 8, 2, (cuuint32_t)b->box_rows / 16};
    encode(s, b, 4, dims, strides, box, out);
}

/* Two more dimensions make up the address: what is copied lies where these begin, so that no matrix has
 * to end before the next. */
bool qrn_cuda_map_anywhere(struct qrn_cuda_stream *s, int64_t n, int64_t n_lines,
                           int64_t line_bytes, int box_lines, struct qrn_tensor_map *out)
{
    CUtensorMap map;
    const cuuint64_t near = (cuuint64_t)1 << QRN_MAP_NEAR_BITS, step = QRN_MAP_STEP,
                     dims[4] = {(cuuint64_t)n, (cuuint64_t)n_lines, near / step,
                                (cuuint64_t)1 << (QRN_MAP_BITS - QRN_MAP_NEAR_BITS)},
                     strides[3] = {(cuuint64_t)line_bytes, step, near};
    const cuuint32_t box[4] = {64, (cuuint32_t)box_lines, 1, 1}, steps[4] = {1, 1, 1, 1};
    const CUresult result = s->cuda->driver.tensor_map(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)(uintptr_t)near, dims, strides, box,
        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    memcpy(out, &map, sizeof *out);
    return result == CUDA_SUCCESS;
}
