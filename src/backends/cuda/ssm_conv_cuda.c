/* SPDX-License-Identifier: MIT
 * ssm_conv and ssm_conv_history. */
#include "backends/cuda/op_params.h"
#include "backends/cuda/gdn.h"

QRN_CUDA_IMAGE(ssm_conv);
QRN_CUDA_IMAGE(ssm_conv4);

/* Threads take vectors of channels, blocks a tile of tokens. */
static int64_t channel_blocks_of(const struct qrn_ssm_conv_params *p)
{
    return qrn_ceil_div(p->n_channels, QRN_CONV_THREADS * QRN_CONV_VECTOR);
}

/* Cuts tokens in tiles.  Returns how many blocks there are. */
static int64_t cut(struct qrn_ssm_conv_params *p, int64_t tile)
{
    const int64_t n = p->sequences.n_tokens, channel_blocks = channel_blocks_of(p);
    p->tile = (int32_t)tile;
    p->n_channel_blocks = (int32_t)channel_blocks;
    int64_t n_tiles = n / tile + p->sequences.n_seqs;
    if (!p->sequences.seq_begin) {
        p->tiles_per_seq = n > 0 ? (n + tile - 1) / tile : 1;
        n_tiles = p->sequences.n_seqs * p->tiles_per_seq;
    }
    return n_tiles * channel_blocks;
}

static void launch(void *stream, const struct qrn_cuda_function *f, struct qrn_ssm_conv_params *p,
                   int64_t tile)
{
    const int64_t n_blocks = cut(p, tile);
    qrn_cuda_launch(stream, f,
                    (struct qrn_cuda_grid){.n_blocks = n_blocks, .n_threads = QRN_CONV_THREADS}, p);
}

static bool supports(const struct qrn_tensor *weight)
{
    return weight->shape[1] <= QRN_CONV_MAX_TAPS && weight->shape[0] <= INT32_MAX;
}

/* Rows of x and out whose vectors are all whole and aligned, four taps that lie together. */
static bool is_aligned(const struct qrn_tensor *t)
{
    const uintptr_t bytes = QRN_CONV_VECTOR * (t->dtype == QRN_BF16 ? 2 : 4);
    for (int i = 0; i < t->n_dims - 1; i++)
        if (t->stride[i] % QRN_CONV_VECTOR != 0) return false;
    return (uintptr_t)t->data % bytes == 0 && t->shape[t->n_dims - 1] % QRN_CONV_VECTOR == 0;
}

static bool supports4(const struct qrn_tensor *x, const struct qrn_tensor *out,
                      const struct qrn_tensor *weight)
{
    return supports(weight) && weight->shape[1] == 4 && weight->stride[0] == 4 &&
           (uintptr_t)weight->data % 16 == 0 && is_aligned(x) && is_aligned(out);
}

static bool ssm_conv_supports(const void *args)
{
    return supports(&((const struct qrn_ssm_conv_args *)args)->weight);
}

static bool ssm_conv4_supports(const void *args)
{
    const struct qrn_ssm_conv_args *a = args;
    return supports4(&a->x, &a->out, &a->weight);
}

static void run_states(void *stream, const struct qrn_ssm_conv_args *a,
                       const struct qrn_cuda_function *f, const int64_t *tiles)
{
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
    launch(stream, &f[p.bf16], &p, tiles[p.bf16]);
}

static void run_ssm_conv4(void *stream, const void *args)
{
    static const struct qrn_cuda_function functions[2] = {
        {qrn_cuda_image_ssm_conv4, "qrn_ssm_conv4_f32", 0},
        {qrn_cuda_image_ssm_conv4, "qrn_ssm_conv4_bf16", 0}};
    run_states(stream, args, functions, (const int64_t[]){QRN_CONV_ROWS_F32, QRN_CONV_ROWS_BF16});
}

static void run_ssm_conv(void *stream, const void *args)
{
    static const struct qrn_cuda_function functions[2] = {
        {qrn_cuda_image_ssm_conv, "qrn_ssm_conv_f32", 0},
        {qrn_cuda_image_ssm_conv, "qrn_ssm_conv_bf16", 0}};
    run_states(stream, args, functions, (const int64_t[]){QRN_CONV_TILE, QRN_CONV_TILE});
}

const struct qrn_kernel qrn_cuda_ssm_conv_taps4 = {
    .op = QRN_OP_ssm_conv,
    .name = "cuda.ssm_conv.taps4",
    .needs = QRN_CUDA_SM80,
    .serves = "4 taps, aligned rows",
    .supports = ssm_conv4_supports,
    .run = run_ssm_conv4,
};

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

static bool history4_supports(const void *args)
{
    const struct qrn_ssm_conv_history_args *a = args;
    return supports4(&a->x, &a->out, &a->weight) && a->n_history <= INT32_MAX;
}

static struct qrn_ssm_conv_params rings_of(const struct qrn_ssm_conv_history_args *a)
{
    return (struct qrn_ssm_conv_params){
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
}

struct qrn_ssm_conv_params
qrn_cuda_ssm_conv_history_params(const struct qrn_ssm_conv_history_args *a, int64_t *n_blocks)
{
    struct qrn_ssm_conv_params p = rings_of(a);
    *n_blocks = cut(&p, QRN_CONV_ROWS_F32);
    return p;
}

static void run_rings(void *stream, const struct qrn_ssm_conv_history_args *a,
                      const struct qrn_cuda_function *f, int64_t tile)
{
    struct qrn_ssm_conv_params p = rings_of(a);
    launch(stream, f, &p, tile);
}

static void run_history4(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_ssm_conv4, "qrn_ssm_conv4_history",
                                               0};
    run_rings(stream, args, &f, QRN_CONV_ROWS_F32);
}

static void run_history(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_ssm_conv, "qrn_ssm_conv_f32", 0};
    run_rings(stream, args, &f, QRN_CONV_TILE);
}

const struct qrn_kernel qrn_cuda_ssm_conv_history_taps4 = {
    .op = QRN_OP_ssm_conv_history,
    .name = "cuda.ssm_conv_history.taps4",
    .needs = QRN_CUDA_SM80,
    .serves = "4 taps, aligned rows",
    .supports = history4_supports,
    .run = run_history4,
};

const struct qrn_kernel qrn_cuda_ssm_conv_history_tiles = {
    .op = QRN_OP_ssm_conv_history,
    .name = "cuda.ssm_conv_history.tiles",
    .needs = QRN_CUDA_SM80,
    .serves = "up to 32 taps",
    .supports = history_supports,
    .run = run_history,
};
