/* SPDX-License-Identifier: MIT
 * kv_append. */
#include "backends/cuda/kv_append_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(kv_append);

static void launch(struct qrn_cuda_stream *s, const struct qrn_kv_append_args *a,
                   const struct qrn_tensor *x, const struct qrn_tensor *cache)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_kv_append, "qrn_kv_append", 0};
    const struct qrn_rows_shape shape = qrn_rows_shape(x);
    struct qrn_kv_append_params p = {
        .x = qrn_rows(x),
        .cache = qrn_rows(cache),
        .position = a->position.data,
        .n_tokens = x->shape[0],
        .n_heads = x->shape[1],
        .d = x->shape[2],
        .capacity = cache->shape[1],
        .pieces_per_row = qrn_pieces_per_row(&shape),
        .cache_dtype = (int32_t)cache->dtype,
        .ring = a->ring,
    };
    if (a->ring && p.n_tokens > p.capacity) p.first = p.n_tokens - p.capacity;
    p.n_pieces = (p.n_tokens - p.first) * p.n_heads * p.pieces_per_row;
    qrn_cuda_launch(s, &f, qrn_grid_of_warps(p.n_pieces), &p);
}

static void run(void *stream, const void *args)
{
    const struct qrn_kv_append_args *a = args;
    launch(stream, a, &a->k, &a->cache_k);
    launch(stream, a, &a->v, &a->cache_v);
}

const struct qrn_kernel qrn_cuda_kv_append_rows = {
    .op = QRN_OP_kv_append,
    .name = "cuda.kv_append.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
