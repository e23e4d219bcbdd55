/* SPDX-License-Identifier: MIT
 * A joint: all that is between two products of an attention layer, of single tokens of few sequences. */
#include "backends/cuda/attention_token_cuda.h"

#include "backends/cuda/attention_params.h"
#include "backends/cuda/attention_rows.h"
#include "backends/cuda/joints.h"
#include "backends/cuda/rows.h"
#include "core/overlap.h"

QRN_CUDA_IMAGE(attention_token);

/* MOST_PAGES: of longer pasts the merge is better a launch of its own, of many blocks. */
enum { N_STEPS = QRN_ATTENTION_ROWS_STEPS + 2, MOST_PAGES = 32 };

/* The steps' arguments. */
struct run_of {
    struct qrn_attention_rows_run rows;
    const struct qrn_attention_paged_args *attention;
    const struct qrn_sigmoid_mul_args *gated;
};

static struct run_of run_of(const struct qrn_step *steps)
{
    return (struct run_of){qrn_cuda_attention_rows_run(steps), steps[QRN_ATTENTION_ROWS_STEPS].args,
                           steps[QRN_ATTENTION_ROWS_STEPS + 1].args};
}

static bool same_pages(const struct qrn_attention_paged_args *a,
                       const struct qrn_kv_append_paged_args *b)
{
    return qrn_same_view(&a->seq_begin, &b->seq_begin) &&
           qrn_same_view(&a->position, &b->position) && qrn_same_view(&a->pages, &b->pages) &&
           a->page_offset == b->page_offset && a->kv_type == b->kv_type &&
           a->n_kv_heads == b->k.shape[1];
}

/* As many tokens as sequences, whose pasts are short. */
static bool is_small(const struct qrn_cuda *cuda, const struct qrn_attention_paged_args *a)
{
    struct qrn_attention_params p = qrn_cuda_attention_paged_params(a);
    int64_t n_shares;
    return p.n_tokens == p.paged.n_seqs && p.paged.max_pages <= MOST_PAGES &&
           qrn_cuda_attention_plan_decode(&p, &n_shares) == QRN_ATTENTION_TOKEN_HEADS &&
           n_shares > 1 &&
           p.n_tokens * p.n_kv_heads * (int64_t)sizeof(uint32_t) <=
               cuda->n_multiprocessors * QRN_CUDA_HANDOVER_BYTES;
}

/* Whether heads lie side by side in pairs, as queries and their gates do. */
static bool are_pairs(const struct qrn_tensor *a, const struct qrn_tensor *b)
{
    const struct qrn_tensor *first = a->data < b->data ? a : b, *second = first == a ? b : a;
    const int64_t d = a->shape[2];
    return a->dtype == QRN_F32 && b->dtype == QRN_F32 && a->stride[0] == b->stride[0] &&
           a->stride[1] == b->stride[1] && a->stride[1] >= 2 * d &&
           a->stride[0] >= a->shape[1] * a->stride[1] &&
           (float *)second->data >= (float *)first->data + d &&
           (float *)second->data + d <= (float *)first->data + a->stride[1];
}

static bool are_separate(const struct qrn_tensor *a, const struct qrn_tensor *b)
{
    static const struct qrn_operand written = {.access = QRN_WRITES};
    return qrn_are_apart(&written, a, &written, b) || are_pairs(a, b);
}

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct run_of r = run_of(steps);
    const struct qrn_tensor *const q = &r.rows.q_norm->x, *const k = &r.rows.k_norm->x,
                                   *const out = &r.attention->out, *const gate = &r.gated->gate,
                                   *const gated = &r.gated->out;
    const struct qrn_tensor *const passed[] = {q, k, out, gate};
    return qrn_cuda_attention_rows_match(&r.rows) && qrn_same_view(q, &r.attention->q) &&
           same_pages(r.attention, r.rows.append) && is_small(cuda, r.attention) &&
           qrn_same_view(out, &r.gated->x) && are_separate(out, q) && are_separate(out, k) &&
           are_separate(gate, q) && are_separate(gate, k) && are_separate(gate, out) &&
           are_separate(gated, q) && are_separate(gated, k) &&
           qrn_cuda_are_joined(steps, N_STEPS, passed, 4);
}

#define FUNCTION(d)                                                          \
    {                                                                        \
        qrn_cuda_image_attention_token, "qrn_attention_token_" #d,           \
            QRN_ATTENTION_TOKEN_BYTES(d) +                                   \
                QRN_ATTENTION_TOKEN_HEADS *QRN_ATTENTION_TOKEN_HEAD_BYTES(d) \
    }

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    static const struct qrn_cuda_function functions[] = {FUNCTION(64), FUNCTION(128),
                                                         FUNCTION(256)};
    const struct run_of r = run_of(steps);
    const struct qrn_step *const attention = &steps[QRN_ATTENTION_ROWS_STEPS];
    struct qrn_attention_token_params p = {.rows = qrn_cuda_attention_rows_params(s, &r.rows),
                                           .attention =
                                               qrn_cuda_attention_paged_params(r.attention),
                                           .gate = qrn_rows(&r.gated->gate),
                                           .out = qrn_rows(&r.gated->out),
                                           .arrivals = s->cuda->handover,
                                           .out_dtype = (int32_t)r.gated->out.dtype,
                                           .keeps = !qrn_same_view(&r.gated->x, &r.gated->out)};
    int64_t n_shares;
    const int64_t d = p.attention.d_v;
    (void)qrn_cuda_attention_plan_decode(&p.attention, &n_shares);
    p.attention.partial = (float *)(uintptr_t)(s->cuda->scratch + attention->scratch_at);
    p.weights_stay = p.rows.early && qrn_cuda_step_operand_stays(s, &steps[0], "weight") &&
                     qrn_cuda_step_operand_stays(s, &steps[1], "weight");
    qrn_cuda_launch(
        s, &functions[d / 128],
        (struct qrn_cuda_grid){
            .n_blocks = p.attention.n_tokens,
            .n_blocks_y = (unsigned)p.attention.n_kv_heads,
            .n_blocks_z = (unsigned)n_shares,
            .n_threads = QRN_ATTENTION_TOKEN_THREADS,
            .shared_bytes = (unsigned)(QRN_ATTENTION_TOKEN_BYTES(d) +
                                       p.attention.group * QRN_ATTENTION_TOKEN_HEAD_BYTES(d))},
        &p);
}

const struct qrn_cuda_joint qrn_cuda_joint_attention_token = {
    .name = "attention_token",
    .kernels = {&qrn_cuda_rms_norm_registers, &qrn_cuda_rms_norm_registers, &qrn_cuda_rope_tokens,
                &qrn_cuda_rope_tokens, &qrn_cuda_kv_append_paged_tiles,
                &qrn_cuda_attention_paged_mma, &qrn_cuda_sigmoid_mul_rows},
    .n_steps = N_STEPS,
    .matches = matches,
    .run = run,
};
