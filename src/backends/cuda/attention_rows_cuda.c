/* SPDX-License-Identifier: MIT
 * A joint: queries and keys are normed and turned, keys and values join their pages. */
#include "backends/cuda/attention_rows.h"

#include <string.h>
#include "backends/cuda/joints.h"
#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/op_params.h"
#include "core/overlap.h"

QRN_CUDA_IMAGE(attention_rows);

/* Of many tokens each launch is bound by memory. */
enum { MOST_TOKENS = 64 };

struct qrn_attention_rows_run qrn_cuda_attention_rows_run(const struct qrn_step *steps)
{
    return (struct qrn_attention_rows_run){steps[0].args, steps[1].args, steps[2].args,
                                           steps[3].args, steps[4].args};
}

/* Heads that are normed and then turned, in place. */
static bool is_chain(const struct qrn_rms_norm_args *norm, const struct qrn_rope_args *rope)
{
    return !norm->residual.n_dims && !norm->gate.n_dims && !norm->sum.n_dims &&
           !norm->rounded.n_dims && qrn_same_view(&norm->x, &norm->out) &&
           qrn_same_view(&norm->x, &rope->x) && qrn_same_view(&rope->x, &rope->out);
}

static bool same_angles(const struct qrn_rope_args *a, const struct qrn_rope_args *b)
{
    return qrn_same_view(&a->positions, &b->positions) &&
           qrn_same_view(&a->freq_factors, &b->freq_factors) && a->x.shape[2] == b->x.shape[2] &&
           a->n_rot == b->n_rot && a->theta == b->theta && a->mode == b->mode &&
           memcmp(&a->scaling, &b->scaling, sizeof a->scaling) == 0;
}

bool qrn_cuda_attention_rows_match(const struct qrn_attention_rows_run *r)
{
    const struct qrn_tensor *const q = &r->q_norm->x, *const k = &r->k_norm->x;
    static const struct qrn_operand written = {.access = QRN_WRITES};
    return is_chain(r->q_norm, r->q_rope) && is_chain(r->k_norm, r->k_rope) &&
           same_angles(r->q_rope, r->k_rope) && qrn_same_view(k, &r->append->k) &&
           qrn_are_apart(&written, q, &written, k) && q->shape[0] <= MOST_TOKENS &&
           q->shape[2] <= QRN_NORM_WARP_ROW;
}

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_attention_rows_run r = qrn_cuda_attention_rows_run(steps);
    const struct qrn_tensor *const passed[] = {&r.q_norm->x, &r.k_norm->x};
    (void)cuda;
    return qrn_cuda_attention_rows_match(&r) &&
           qrn_cuda_are_joined(steps, QRN_ATTENTION_ROWS_STEPS, passed, 2);
}

static struct qrn_attention_rows_side side_of(const struct qrn_rms_norm_args *a)
{
    return (struct qrn_attention_rows_side){.x = a->x.data,
                                            .weight = a->weight.n_dims ? a->weight.data : NULL,
                                            .token = a->x.stride[0],
                                            .head = a->x.stride[1],
                                            .eps = a->eps};
}

struct qrn_attention_rows_params
qrn_cuda_attention_rows_params(const struct qrn_cuda_stream *s,
                               const struct qrn_attention_rows_run *r)
{
    return (struct qrn_attention_rows_params){.rope = qrn_cuda_rope_params(r->q_rope),
                                              .append = qrn_cuda_kv_append_paged_params(r->append),
                                              .q = side_of(r->q_norm),
                                              .k = side_of(r->k_norm),
                                              .n_heads = (int32_t)r->q_norm->x.shape[1],
                                              .early =
                                                  s->numbers_stay && !r->q_rope->freq_factors.data};
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    static const struct qrn_cuda_function one = {qrn_cuda_image_attention_rows,
                                                 "qrn_attention_rows1", 0},
                                          two = {qrn_cuda_image_attention_rows,
                                                 "qrn_attention_rows2", 0},
                                          four = {qrn_cuda_image_attention_rows,
                                                  "qrn_attention_rows4", 0};
    const struct qrn_attention_rows_run r = qrn_cuda_attention_rows_run(steps);
    const struct qrn_attention_rows_params p = qrn_cuda_attention_rows_params(s, &r);
    const int64_t d = r.q_norm->x.shape[2], n_rows = p.n_heads + 2 * p.append.paged.n_kv_heads;
    qrn_cuda_launch(
        s,
        d <= 128   ? &one
        : d <= 256 ? &two
                   : &four,
        (struct qrn_cuda_grid){.n_blocks = r.q_norm->x.shape[0],
                               .n_blocks_y = (unsigned)((n_rows + QRN_ATTENTION_ROWS_WARPS - 1) /
                                                        QRN_ATTENTION_ROWS_WARPS),
                               .n_threads = 32 * QRN_ATTENTION_ROWS_WARPS},
        &p);
}

const struct qrn_cuda_joint qrn_cuda_joint_attention_rows = {
    .name = "attention_rows",
    .kernels = {&qrn_cuda_rms_norm_registers, &qrn_cuda_rms_norm_registers, &qrn_cuda_rope_tokens,
                &qrn_cuda_rope_tokens, &qrn_cuda_kv_append_paged_tiles},
    .n_steps = QRN_ATTENTION_ROWS_STEPS,
    .matches = matches,
    .run = run,
};
