/* SPDX-License-Identifier: MIT
 * ssm_conv and ssm_conv_history. */
#include "backends/cuda/ssm_conv_cuda.h"
#include "backends/cuda/gdn.h"

QRN_CUDA_IMAGE(ssm_conv);

/* Threads take vectors of 16 bytes of channels. */
static void launch(struct qrn_cuda_stream *s, const struct qrn_cuda_function *f, int64_t n_tiles,
                   const struct qrn_ssm_conv_params *p)
{
    const int64_t per_block = QRN_CONV_THREADS * (p->bf16 ? 8 : 4);
    const struct qrn_cuda_grid grid = {.n_blocks = n_tiles,
                                       .n_threads = QRN_CONV_THREADS,
                                       .n_blocks_y =
                                           (unsigned)((p->n_channels + per_block - 1) / per_block)};
    qrn_cuda_launch(s, f, grid, p);
}

static bool supports(const struct qrn_tensor *weight)
{
    return weight->shape[1] <= QRN_CONV_MAX_TAPS &&
           weight->shape[0] <= (int64_t)65535 * QRN_CONV_THREADS * 4;
}

static bool ssm_conv_supports(const void *args)
{
    return supports(&((const struct qrn_ssm_conv_args *)args)->weight);
}

static void run_ssm_conv(void *stream, const void *args)
{
    static const struct qrn_cuda_function functions[2][2] = {
        {{qrn_cuda_image_ssm_conv, "qrn_ssm_conv_f32", 0},
         {qrn_cuda_image_ssm_conv, "qrn_ssm_conv4_f32", 0}},
        {{qrn_cuda_image_ssm_conv, "qrn_ssm_conv_bf16", 0},
         {qrn_cuda_image_ssm_conv, "qrn_ssm_conv4_bf16", 0}}};
    const struct qrn_ssm_conv_args *a = args;
    const bool ragged = a->seq_begin.n_dims != 0;
    const int tokens = ragged ? 0 : 1;
    struct qrn_ssm_conv_params p = {
        .x = qrn_data_of(&a->x),
        .weight = a->weight.data,
        .state_in = qrn_data_of(&a->state_in),
        .state_out = qrn_data_of(&a->state_out),
        .out = qrn_data_of(&a->out),
        .sequences = {ragged ? a->seq_begin.data : NULL, a->state_in.shape[0], a->x.shape[tokens]},
        .x_stride = {ragged ? 0 : a->x.stride[0], a->x.stride[tokens]},
        .out_stride = {ragged ? 0 : a->out.stride[0], a->out.stride[tokens]},
        .weight_stride = a->weight.stride[0],
        .in_stride = {a->state_in.stride[0], a->state_in.stride[1]},
        .next_stride = {a->state_out.stride[0], a->state_out.stride[1]},
        .n_channels = a->weight.shape[0],
        .n_taps = a->weight.shape[1],
        .bf16 = a->x.dtype == QRN_BF16,
        .weight_bf16 = a->weight.dtype == QRN_BF16};
    const int64_t tiles = p.sequences.n_tokens / QRN_CONV_TILE, n_seqs = p.sequences.n_seqs;
    const int64_t exact = (p.sequences.n_tokens + QRN_CONV_TILE - 1) / QRN_CONV_TILE;
    if (!ragged) p.tiles_per_seq = exact > 0 ? exact : 1;
    launch(stream, &functions[p.bf16][p.n_taps == 4],
           ragged ? tiles + n_seqs : n_seqs * p.tiles_per_seq, &p);
}

const struct qrn_kernel qrn_cuda_ssm_conv_tiles = {
    .op = QRN_OP_ssm_conv,
    .name = "cuda.ssm_conv.tiles",
    .needs = QRN_CUDA_SM80,
    .serves = "up to 32 taps",
    .supports = ssm_conv_supports,
    .run = run_ssm_conv,
};

static bool history_supports(const void *args)
{
    return supports(&((const struct qrn_ssm_conv_history_args *)args)->weight);
}

static void run_history(void *stream, const void *args)
{
    static const struct qrn_cuda_function functions[2] = {
        {qrn_cuda_image_ssm_conv, "qrn_ssm_conv_history", 0},
        {qrn_cuda_image_ssm_conv, "qrn_ssm_conv4_history", 0}};
    const struct qrn_ssm_conv_history_args *a = args;
    const struct qrn_ssm_conv_params p = {
        .x = qrn_data_of(&a->x),
        .weight = a->weight.data,
        .out = qrn_data_of(&a->out),
        .history = a->history.data,
        .position = a->position.data,
        .sequences = {a->seq_begin.data, a->position.shape[0], a->x.shape[0]},
        .x_stride = {0, a->x.stride[0]},
        .out_stride = {0, a->out.stride[0]},
        .weight_stride = a->weight.stride[0],
        .history_stride = a->history.stride[0],
        .history_offset = (int64_t)a->history_offset,
        .n_history = a->n_history,
        .n_channels = a->weight.shape[0],
        .n_taps = a->weight.shape[1]};
    launch(stream, &functions[p.n_taps == 4],
           p.sequences.n_tokens / QRN_CONV_TILE + p.sequences.n_seqs, &p);
}

const struct qrn_kernel qrn_cuda_ssm_conv_history_tiles = {
    .op = QRN_OP_ssm_conv_history,
    .name = "cuda.ssm_conv_history.tiles",
    .needs = QRN_CUDA_SM80,
    .serves = "up to 32 taps",
    .supports = history_supports,
    .run = run_history,
};
