/* SPDX-License-Identifier: MIT
 * kv_append and kv_append_paged. */
#include "backends/cuda/op_params.h"
#include "backends/cuda/paged.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(kv_append);

static struct qrn_kv_append_side side_of(const struct qrn_tensor *x, const struct qrn_tensor *cache)
{
    const int64_t element = qrn_dtype_info(cache->dtype)->block_bytes;
    return (struct qrn_kv_append_side){.x = (uint64_t)(uintptr_t)x->data,
                                       .cache = (uint64_t)(uintptr_t)cache->data,
                                       .x_token = 4 * x->stride[0],
                                       .x_head = 4 * x->stride[1],
                                       .cache_head = element * cache->stride[0],
                                       .cache_slot = element * cache->stride[1],
                                       .d = x->shape[2],
                                       .dtype = (int32_t)cache->dtype};
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_kv_append, "qrn_kv_append", 0};
    const struct qrn_kv_append_args *a = args;
    const struct qrn_kv_append_params p = {
        .side = {side_of(&a->k, &a->cache_k), side_of(&a->v, &a->cache_v)},
        .position = a->position.data,
        .n_tokens = a->k.shape[0],
        .n_heads = a->k.shape[1],
        .capacity = a->cache_k.shape[1],
        .ring = a->ring};
    const int64_t d = p.side[0].d > p.side[1].d ? p.side[0].d : p.side[1].d;
    const int64_t kept = p.n_tokens < p.capacity ? p.n_tokens : p.capacity;
    struct qrn_cuda_grid grid = qrn_grid_of_warps(kept * ((d + QRN_PIECE - 1) / QRN_PIECE));
    if (p.n_heads == 0) return;
    grid.n_blocks_y = (unsigned)p.n_heads;
    grid.n_blocks_z = 2;
    qrn_cuda_launch(stream, &f, grid, &p);
}

const struct qrn_kernel qrn_cuda_kv_append_rows = {
    .op = QRN_OP_kv_append,
    .name = "cuda.kv_append.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};

struct qrn_kv_append_paged_params
qrn_cuda_kv_append_paged_params(const struct qrn_kv_append_paged_args *a)
{
    return (struct qrn_kv_append_paged_params){
        .paged = qrn_paged_of(&a->seq_begin, &a->position, &a->pages, a->k.shape[0], a->k.shape[1],
                              a->k.shape[2], a->page_offset),
        .k = a->k.data,
        .v = a->v.data,
        .k_token = a->k.stride[0],
        .k_head = a->k.stride[1],
        .v_token = a->v.stride[0],
        .v_head = a->v.stride[1],
        .half = a->kv_type == QRN_F16};
}

static void run_paged(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_kv_append, "qrn_kv_append_paged", 0};
    const struct qrn_kv_append_paged_params p = qrn_cuda_kv_append_paged_params(args);
    const int64_t n = (p.paged.n_tokens + 31) / 32 * ((p.paged.head_dim + 31) / 32);
    qrn_cuda_launch(stream, &f,
                    (struct qrn_cuda_grid){.n_blocks = n,
                                           .n_blocks_y = (unsigned)p.paged.n_kv_heads,
                                           .n_blocks_z = 2,
                                           .n_threads = QRN_THREADS},
                    &p);
}

const struct qrn_kernel qrn_cuda_kv_append_paged_tiles = {
    .op = QRN_OP_kv_append_paged,
    .name = "cuda.kv_append_paged.tiles",
    .needs = QRN_CUDA_SM80,
    .run = run_paged,
};
