/* SPDX-License-Identifier: MIT
 * A joint: attention of few tokens, and sigmoid_mul of its gate, which its merge does. */
#include "backends/cuda/attention_params.h"
#include "backends/cuda/joints.h"
#include "backends/cuda/rows.h"
#include "core/overlap.h"

QRN_CUDA_IMAGE(attention_merge);

/* A block has whole blocks of Q8_ACT. */
static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_attention_paged_args *a = steps[0].args;
    const struct qrn_sigmoid_mul_args *g = steps[1].args;
    const struct qrn_tensor *const passed[] = {&a->out};
    (void)cuda;
    return qrn_same_view(&g->x, &a->out) && a->out.shape[2] % QRN_ATTENTION_GATED_DIMS == 0 &&
           qrn_rows_are_aligned(&g->gate) && qrn_rows_are_aligned(&g->out) &&
           !qrn_same_view(&g->out, &g->x) && qrn_cuda_are_joined(steps, 2, passed, 1);
}

static struct qrn_attention_gated_params gated(const struct qrn_attention_params *attention,
                                               const struct qrn_sigmoid_mul_args *g)
{
    const struct qrn_rows gate = qrn_rows(&g->gate), out = qrn_rows(&g->out);
    struct qrn_attention_gated_params p = {.attention = *attention,
                                           .gate = gate.data,
                                           .out = out.data,
                                           .gate_token = gate.stride[1],
                                           .gate_head = gate.stride[2],
                                           .out_token = out.stride[1],
                                           .out_head = out.stride[2],
                                           .out_dtype = (int32_t)g->out.dtype};
    p.attention.n_tiles = qrn_cuda_attention_tiles(attention, 1);
    return p;
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    enum { MOST_SHARED = 68 * 1024 };
    static const struct qrn_cuda_function f = {qrn_cuda_image_attention_merge,
                                               "qrn_attention_merge_gated", MOST_SHARED};
    struct qrn_attention_params a = qrn_cuda_attention_paged_params(steps[0].args);
    if (!qrn_cuda_attention_begin_mma(s, &a)) {
        steps[1].kernel->run(s, steps[1].args);
        return;
    }
    const struct qrn_attention_gated_params p = gated(&a, steps[1].args);
    qrn_cuda_launch(
        s, &f,
        (struct qrn_cuda_grid){.n_blocks = p.attention.n_tiles,
                               .n_blocks_y = (unsigned)p.attention.n_kv_heads,
                               .n_blocks_z = (unsigned)(p.attention.d_v / QRN_ATTENTION_GATED_DIMS),
                               .n_threads = QRN_ATTENTION_GATED_DIMS,
                               .shared_bytes = MOST_SHARED},
        &p);
}

const struct qrn_cuda_joint qrn_cuda_joint_attention_gated = {
    .name = "attention_gated",
    .kernels = {&qrn_cuda_attention_paged_mma, &qrn_cuda_sigmoid_mul_rows},
    .n_steps = 2,
    .matches = matches,
    .run = run,
};
