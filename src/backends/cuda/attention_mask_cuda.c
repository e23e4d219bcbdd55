/* SPDX-License-Identifier: MIT
 * attention_mask and attention_classify_tiles. */
#include "backends/cuda/attention_mask_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(attention_mask);

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_attention_mask, "qrn_attention_mask",
                                               0};
    const struct qrn_attention_mask_args *a = args;
    const struct qrn_attention_mask_params p = {.mask = (uint64_t)(uintptr_t)a->out.data,
                                                .mask_stride = a->out.stride[0],
                                                .n_tokens = a->out.shape[0],
                                                .n_kv = a->out.shape[1],
                                                .q_offset = a->q_offset,
                                                .window = a->window,
                                                .dtype = (int32_t)a->out.dtype,
                                                .causal = a->causal};
    qrn_cuda_launch(stream, &f,
                    qrn_grid_of_warps(p.n_tokens * ((p.n_kv + QRN_PIECE - 1) / QRN_PIECE)), &p);
}

const struct qrn_kernel qrn_cuda_attention_mask_rows = {
    .op = QRN_OP_attention_mask,
    .name = "cuda.attention_mask.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};

static void run_classify(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_attention_mask,
                                               "qrn_attention_classify_tiles", 0};
    const struct qrn_attention_classify_tiles_args *a = args;
    const struct qrn_attention_mask_params p = {
        .mask = a->mask.n_dims ? (uint64_t)(uintptr_t)a->mask.data : 0,
        .classes = a->classes.data,
        .mask_stride = a->mask.stride[0],
        .classes_stride = a->classes.stride[0],
        .n_tokens = a->n_tokens,
        .n_kv = a->n_kv,
        .q_offset = a->q_offset,
        .window = a->window,
        .tile_q = a->tile_q,
        .tile_k = a->tile_k,
        .n_tiles_q = a->classes.shape[0],
        .n_tiles_k = a->classes.shape[1],
        .dtype = (int32_t)a->mask.dtype,
        .causal = a->causal};
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_tiles_q * p.n_tiles_k), &p);
}

const struct qrn_kernel qrn_cuda_attention_classify_tiles_tiles = {
    .op = QRN_OP_attention_classify_tiles,
    .name = "cuda.attention_classify_tiles.tiles",
    .needs = QRN_CUDA_SM80,
    .run = run_classify,
};
