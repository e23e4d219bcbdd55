/* SPDX-License-Identifier: MIT
 * matmul of float32 or bf16 weights in rows with many rows of float32 x, on Hopper, in any order. */
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

static int64_t blocks_of(const struct qrn_matmul_params *p, int n_weights)
{
    return qrn_ceil_div(p->most_rows, QRN_SPLIT_X) * qrn_ceil_div(p->w.n, n_weights);
}

static bool are_narrow(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    return blocks_of(p, NARROW) <= cuda->n_multiprocessors;
}

/* Shares of k of narrow tiles, of 256 at least, as many as there are multiprocessors for. */
static int64_t shares_of(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    const int64_t fit = are_narrow(cuda, p) ? cuda->n_multiprocessors / blocks_of(p, NARROW) : 1,
                  most = p->w.k / (4 * QRN_SPLIT_K), n = fit < most ? fit : most;
    return n > QRN_SPLIT_SHARES ? QRN_SPLIT_SHARES : n > 1 ? n : 1;
}

/* A block takes somewhat less than two of those, with a share of k less than one that keep half of all multiprocessors
 * busy. */
static bool is_worth(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    const int64_t n_others = qrn_ceil_div(p->most_rows, OTHERS_X) * qrn_ceil_div(p->w.n, OTHERS_WEIGHTS),
                  least = shares_of(cuda, p) > 1 ? 1 : 3;
    return p->w.n >= LEAST_WEIGHTS && 2 * n_others >= least * (int64_t)cuda->n_multiprocessors;
}

bool qrn_cuda_split_takes(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    const int64_t out_stride = qrn_one_stride(&p->out_shape, &p->out);
    if (cuda->capability != 90 || !p->any_order || p->ids || p->n_matrices != 1) return false;
    if ((p->w.dtype != QRN_F32 && p->w.dtype != QRN_BF16) || p->w.k % QRN_SPLIT_K || p->w.k == 0) return false;
    if (p->most_rows >= INT32_MAX / 2 || p->w.n >= INT32_MAX / 2 || out_stride <= 0) return false;
    return is_aligned(p->x.data, qrn_one_stride(&p->shape, &p->x)) &&
           is_aligned(p->w.w.data, p->w.w.stride[2]) && is_worth(cuda, p);
}

void qrn_cuda_queue_split(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job)
{
#define SPLIT(name, n_weights) \
    {qrn_cuda_image_matmul_split_sm90a, "qrn_matmul_split_" #name, qrn_split_shared_bytes(n_weights)}
    static const struct qrn_cuda_function narrow[2] = {SPLIT(64, NARROW), SPLIT(64_bf16, NARROW)},
                                          wide[2] = {SPLIT(128, WIDE), SPLIT(128_bf16, WIDE)};
#undef SPLIT
    const int n_weights = are_narrow(s->cuda, job) ? NARROW : WIDE;
    const int64_t n_shares = shares_of(s->cuda, job);
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
        .n_weight_tiles = (int32_t)qrn_ceil_div(job->w.n, n_weights),
        .n_shares = (int32_t)n_shares};
    qrn_cuda_launch(s, &(n_weights == WIDE ? wide : narrow)[job->w.dtype == QRN_BF16],
                    (struct qrn_cuda_grid){.n_blocks = blocks_of(job, n_weights) * n_shares,
                                           .n_cluster = n_shares > 1 ? (unsigned)n_shares : 0,
                                           .n_threads = QRN_SPLIT_THREADS,
                                           .shared_bytes = qrn_split_shared_bytes(n_weights)},
                    &p);
}
