/* SPDX-License-Identifier: MIT
 * matmul of float32 weights in rows with many rows of float32 x, on Hopper, in any order. */
#include "backends/cuda/matmul_split_cuda.h"
#include "backends/cuda/matmul_split.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(matmul_split_sm90a);

/* OTHERS: rows of x and of weights of a tile of the other form of products of floats. */
enum { WIDE = 128, NARROW = 64, LEAST_WEIGHTS = 16, OTHERS_X = 16, OTHERS_WEIGHTS = 64 };

static bool is_aligned(uint64_t data, int64_t row_bytes)
{
    return data % 16 == 0 && row_bytes % 16 == 0 && row_bytes > 0;
}

/* A block takes somewhat less than two of those. */
static bool is_worth(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    const int64_t n_others = qrn_ceil_div(p->most_rows, OTHERS_X) * qrn_ceil_div(p->w.n, OTHERS_WEIGHTS);
    return p->w.n >= LEAST_WEIGHTS && 2 * n_others >= 3 * (int64_t)cuda->n_multiprocessors;
}

bool qrn_cuda_split_takes(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    const int64_t out_stride = qrn_one_stride(&p->out_shape, &p->out);
    if (cuda->capability != 90 || !p->any_order || p->ids || p->n_matrices != 1) return false;
    if (p->w.dtype != QRN_F32 || p->w.k % QRN_SPLIT_K || p->w.k == 0) return false;
    if (p->most_rows >= INT32_MAX / 2 || p->w.n >= INT32_MAX / 2 || out_stride <= 0) return false;
    return is_aligned(p->x.data, qrn_one_stride(&p->shape, &p->x)) &&
           is_aligned(p->w.w.data, p->w.w.stride[2]) && is_worth(cuda, p);
}

static int64_t blocks_of(const struct qrn_matmul_params *p, int n_weights)
{
    return qrn_ceil_div(p->most_rows, QRN_SPLIT_X) * qrn_ceil_div(p->w.n, n_weights);
}

void qrn_cuda_queue_split(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job)
{
    static const struct qrn_cuda_function wide = {qrn_cuda_image_matmul_split_sm90a,
                                                  "qrn_matmul_split_128",
                                                  qrn_split_shared_bytes(WIDE)},
                                          narrow = {qrn_cuda_image_matmul_split_sm90a,
                                                    "qrn_matmul_split_64",
                                                    qrn_split_shared_bytes(NARROW)};
    const int n_weights = blocks_of(job, NARROW) > s->cuda->n_multiprocessors ? WIDE : NARROW;
    const struct qrn_matmul_split_params p = {
        .x = job->x.data,
        .w = job->w.w.data,
        .out = job->out.data,
        .x_row_bytes = qrn_one_stride(&job->shape, &job->x),
        .w_row_bytes = job->w.w.stride[2],
        .out_row_bytes = qrn_one_stride(&job->out_shape, &job->out),
        .n_rows = (int32_t)job->most_rows,
        .n = (int32_t)job->w.n,
        .n_steps = (int32_t)(job->w.k / QRN_SPLIT_K),
        .n_weight_tiles = (int32_t)qrn_ceil_div(job->w.n, n_weights)};
    qrn_cuda_launch(s, n_weights == WIDE ? &wide : &narrow,
                    (struct qrn_cuda_grid){.n_blocks = blocks_of(job, n_weights),
                                           .n_threads = QRN_SPLIT_THREADS,
                                           .shared_bytes = qrn_split_shared_bytes(n_weights)},
                    &p);
}
