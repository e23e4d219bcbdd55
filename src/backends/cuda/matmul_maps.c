/* SPDX-License-Identifier: MIT */
#include "backends/cuda/matmul_maps.h"

#include "backends/cuda/matmul_wgmma_cuda.h"

QRN_CUDA_IMAGE(matmul_x_bf16);

struct qrn_tensor_box qrn_cuda_box_of_w(const struct qrn_matmul_params *p, int box_k, int box_rows)
{
    const struct qrn_matrices *w = &p->w.w;
    const int64_t apart = p->w2 > 1 ? w->stride[1] : w->stride[0];
    return (struct qrn_tensor_box){.data = (const void *)(uintptr_t)w->data,
                                   .dtype = QRN_BF16,
                                   .n = p->w.k,
                                   .n_rows = p->w.n,
                                   .n_matrices = p->n_matrices,
                                   .row_bytes = w->stride[2],
                                   .matrix_bytes = p->n_matrices > 1 ? apart : 0,
                                   .box_n = box_k,
                                   .box_rows = box_rows};
}

struct qrn_tensor_box qrn_cuda_box_of_w_once(const struct qrn_matmul_params *p, int box_k,
                                             int box_rows)
{
    struct qrn_tensor_box box = qrn_cuda_box_of_w(p, box_k, box_rows);
    box.is_read_once = true;
    return box;
}

bool qrn_cuda_can_map_w(const struct qrn_matmul_params *p)
{
    const struct qrn_tensor_box box = qrn_cuda_box_of_w(p, QRN_X16_BOX_K, QRN_PANEL_ROWS);
    const int64_t *stride = p->w.w.stride;
    if (p->n_matrices > p->w2 && p->w2 > 1 && stride[0] != p->w2 * stride[1]) return false;
    return (p->n_matrices == 1 || box.matrix_bytes > 0) && qrn_cuda_can_map(&box);
}

int64_t qrn_cuda_rows_of_x(const struct qrn_matmul_params *p)
{
    return p->ids ? p->n_slots : p->n_matrices * p->most_rows;
}

static struct qrn_tensor_box box_of(uint64_t data, const struct qrn_matmul_params *p,
                                    int64_t row_bytes, int box_rows)
{
    return (struct qrn_tensor_box){.data = (const void *)(uintptr_t)data,
                                   .dtype = QRN_BF16,
                                   .n = p->w.k,
                                   .n_rows = qrn_cuda_rows_of_x(p),
                                   .n_matrices = 1,
                                   .row_bytes = row_bytes,
                                   .box_n = QRN_X16_BOX_K,
                                   .box_rows = box_rows};
}

/* As it lies in memory. */
static struct qrn_tensor_box given(const struct qrn_matmul_params *p, int box_rows)
{
    return box_of(p->x.data, p, qrn_one_stride(&p->shape, &p->x), box_rows);
}

static bool is_taken(const struct qrn_matmul_params *p)
{
    const struct qrn_tensor_box box = given(p, 1);
    return p->x_dtype == QRN_BF16 && !p->ids && p->n_matrices == 1 && qrn_cuda_can_map(&box);
}

/* Rows in scratch begin at multiples of 16 bytes. */
static int64_t stride_of(const struct qrn_matmul_params *p)
{
    return (p->w.k + 7) / 8 * 8;
}

size_t qrn_cuda_x16_bytes(const struct qrn_matmul_params *p)
{
    return is_taken(p) ? 0 : (size_t)(qrn_cuda_rows_of_x(p) * stride_of(p)) * sizeof(uint16_t);
}

void qrn_cuda_map_x16(struct qrn_cuda_stream *s, const struct qrn_matmul_params *p,
                      CUdeviceptr scratch, int box_rows, struct qrn_tensor_map *out)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_x_bf16, "qrn_matmul_x_bf16",
                                               0};
    struct qrn_tensor_box box = given(p, box_rows);
    if (!is_taken(p)) {
        const struct qrn_matmul_wgmma_params rounding = {
            .job = *p, .x16 = scratch, .n_x16 = qrn_cuda_rows_of_x(p), .x16_stride = stride_of(p)};
        qrn_cuda_launch(s, &f,
                        qrn_grid_of_warps(rounding.n_x16 * ((rounding.x16_stride + 255) / 256)),
                        &rounding);
        box = box_of(scratch, p, stride_of(p) * (int64_t)sizeof(uint16_t), box_rows);
    }
    qrn_cuda_tensor_map(s, &box, out);
}
