/* SPDX-License-Identifier: MIT
 * rope and rope_multi: frequencies are worked out on the host, as the CPU's kernels do. */
#include "backends/cuda/op_params.h"
#include "backends/cuda/rows.h"
#include "ops/rope_angles.h"

QRN_CUDA_IMAGE(rope);

static void launch(struct qrn_cuda_stream *s, const struct qrn_rope_params *p)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_rope, "qrn_rope", 0};
    const int64_t most = 1 << 20;
    if (p->n_heads == 0 || p->head_dim == 0) return;
    qrn_cuda_launch(s, &f,
                    (struct qrn_cuda_grid){.n_blocks = p->n_tokens < most ? p->n_tokens : most,
                                           .n_threads = QRN_THREADS},
                    p);
}

static struct qrn_rope_params params_of(const struct qrn_tensor *x, const struct qrn_tensor *out,
                                        const struct qrn_tensor *positions, int64_t n_rot)
{
    const bool in_place =
        x->data == out->data && x->stride[0] == out->stride[0] && x->stride[1] == out->stride[1];
    return (struct qrn_rope_params){.in_place = in_place,
                                    .x = qrn_rows(x),
                                    .out = qrn_rows(out),
                                    .positions = positions->data,
                                    .n_tokens = x->shape[0],
                                    .n_heads = x->shape[1],
                                    .head_dim = x->shape[2],
                                    .n_pairs = (int32_t)(n_rot / 2),
                                    .first = 1,
                                    .second = (int32_t)(n_rot / 2),
                                    .magnitude = 1.0f};
}

static int64_t n_rot_of(int64_t n_rot, const struct qrn_tensor *x)
{
    return n_rot ? n_rot : x->shape[2];
}

/* Device code has tables of so many pairs, and counts a token's elements in 32 bits. */
static bool is_small(const struct qrn_tensor *x)
{
    return x->shape[1] < 1 << 20 && x->shape[2] <= 2 * QRN_ROPE_MAX_PAIRS;
}

static bool rope_supports(const void *args)
{
    return is_small(&((const struct qrn_rope_args *)args)->x);
}

/* What the device needs to divide frequencies by factors that it alone can read. */
static void set_scaling(struct qrn_rope_params *p, const struct qrn_rope_args *a, double n_rot)
{
    const struct qrn_rope_scaling *s = &a->scaling;
    p->freq_factors = a->freq_factors.data;
    if (!rope_is_scaled(s)) return;
    const double fast = s->beta_fast != 0.0f ? (double)s->beta_fast : 32.0;
    const double slow = s->beta_slow != 0.0f ? (double)s->beta_slow : 1.0;
    p->factor = (double)s->factor;
    p->low = fmax(floor(rope_yarn_index(s, fast, n_rot, a->theta)), 0.0);
    const double high = fmin(ceil(rope_yarn_index(s, slow, n_rot, a->theta)), n_rot - 1.0);
    p->width = fmax(high - p->low, 0.001);
}

struct qrn_rope_params qrn_cuda_rope_params(const struct qrn_rope_args *a)
{
    const int64_t n_rot = n_rot_of(a->n_rot, &a->x);
    const bool factors = a->freq_factors.n_dims != 0;
    struct qrn_rope_params p = params_of(&a->x, &a->out, &a->positions, n_rot);
    if (a->mode == QRN_ROPE_NORMAL) {
        p.first = 2;
        p.second = 1;
    }
    p.magnitude = rope_magnitude(&a->scaling);
    if (factors) set_scaling(&p, a, (double)n_rot);
    for (int64_t i = 0; i < n_rot / 2; i++)
        p.wave[i] = factors ? (float)pow(a->theta, (double)((float)(2 * i) / (float)n_rot))
                            : rope_frequency(&a->scaling, a->theta, n_rot, i, 1.0);
    return p;
}

static void run_rope(void *stream, const void *args)
{
    const struct qrn_rope_params p = qrn_cuda_rope_params(args);
    launch(stream, &p);
}

const struct qrn_kernel qrn_cuda_rope_tokens = {
    .op = QRN_OP_rope,
    .name = "cuda.rope.tokens",
    .needs = QRN_CUDA_SM80,
    .serves = "heads of up to 1024 dimensions",
    .supports = rope_supports,
    .run = run_rope,
};

static bool rope_multi_supports(const void *args)
{
    return is_small(&((const struct qrn_rope_multi_args *)args)->x);
}

static void run_rope_multi(void *stream, const void *args)
{
    const struct qrn_rope_multi_args *a = args;
    const int64_t n_rot = n_rot_of(a->n_rot, &a->x);
    struct qrn_rope_params p = params_of(&a->x, &a->out, &a->positions, n_rot);
    p.position_stride = a->positions.stride[0];
    for (int64_t i = 0; i < n_rot / 2; i++) {
        p.wave[i] = rope_multi_frequency(a, n_rot, i);
        p.axis[i] = (uint8_t)rope_multi_axis(a, i);
    }
    launch(stream, &p);
}

const struct qrn_kernel qrn_cuda_rope_multi_tokens = {
    .op = QRN_OP_rope_multi,
    .name = "cuda.rope_multi.tokens",
    .needs = QRN_CUDA_SM80,
    .serves = "heads of up to 1024 dimensions",
    .supports = rope_multi_supports,
    .run = run_rope_multi,
};
