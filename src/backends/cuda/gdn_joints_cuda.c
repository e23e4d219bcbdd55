/* SPDX-License-Identifier: MIT
 * Joints of Gated DeltaNet: the convolution, l2_norm of q and k, and gates; the same with
 * gdn_open_chunk of many tokens, or of single ones; the latter with the product before which gates are made of, and with the
 * gated norm behind. */
#include "backends/cuda/gdn_joints_cuda.h"

#include "backends/cuda/gdn.h"
#include "backends/cuda/joints.h"
#include "backends/cuda/op_params.h"
#include "backends/cuda/tensor_map.h"
#include "core/overlap.h"

QRN_CUDA_IMAGE(gdn_inputs);
QRN_CUDA_IMAGE(gdn_prompt_sm90a);
QRN_CUDA_IMAGE(gdn_token_sm90a);

/* Beside another launch, more sequences of one token each are some in a block. */
enum { MANY_SEQS = 40 };

/* Heads are as wide as a warp's channels.  MOST_TOKENS: of more, where nothing is rounded behind, each launch is bound by
 * memory. */
enum { D = 128, MOST_TOKENS = 64, LEAST_RING = 4 };

/* The steps' arguments. */
struct run_of {
    const struct qrn_ssm_conv_history_args *conv;
    const struct qrn_l2_norm_args *norm;
    const struct qrn_gdn_gates_args *gates;
    const struct qrn_gdn_open_chunk_args *chunk; /* of the longer one */
};

static struct run_of run_of(const struct qrn_step *steps, bool whole)
{
    return (struct run_of){steps[0].args, steps[1].args, steps[2].args,
                           whole ? steps[3].args : NULL};
}

/* Whether t is n heads of the convolution's channels, from head first on. */
static bool are_heads(const struct qrn_tensor *t, const struct qrn_tensor *conv, int64_t first,
                      int64_t n)
{
    return t->n_dims == 3 && t->shape[0] == conv->shape[0] && t->shape[1] == n &&
           t->shape[2] == D && t->stride[1] == D && t->stride[0] == conv->stride[0] &&
           t->data == (float *)conv->data + first * D && (first + n) * D <= conv->shape[1];
}

static bool inputs_match(const struct run_of *r)
{
    const struct qrn_tensor *out = &r->conv->out;
    return out->shape[1] % D == 0 && qrn_same_view(&r->norm->x, &r->norm->out) &&
           are_heads(&r->norm->x, out, 0, r->norm->x.shape[1]);
}

static bool matches_inputs(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct run_of r = run_of(steps, false);
    const struct qrn_tensor *const passed[] = {&r.conv->out, &r.norm->x};
    (void)cuda;
    return inputs_match(&r) && r.conv->out.shape[0] <= MOST_TOKENS &&
           qrn_cuda_are_joined(steps, 3, passed, 2);
}

/* Whether gdn_open_chunk takes what the three steps before it make, and no more.  Of that gates and channels are apart. */
static bool chunk_matches(const struct run_of *r)
{
    static const struct qrn_operand written = {.access = QRN_WRITES};
    const struct qrn_gdn_open_chunk_args *a = r->chunk;
    const int64_t n_k = a->q.shape[1], n_v = a->v.shape[1];
    return r->norm->x.shape[1] == 2 * n_k && r->conv->out.shape[1] == (2 * n_k + n_v) * D &&
           are_heads(&a->q, &r->conv->out, 0, n_k) && are_heads(&a->k, &r->conv->out, n_k, n_k) &&
           are_heads(&a->v, &r->conv->out, 2 * n_k, n_v) && qrn_same_view(&a->g, &r->gates->g) &&
           qrn_same_view(&a->beta, &r->gates->beta) &&
           qrn_are_apart(&written, &a->g, &written, &r->conv->out) &&
           qrn_are_apart(&written, &a->beta, &written, &r->conv->out) &&
           qrn_same_view(&a->seq_begin, &r->conv->seq_begin) &&
           qrn_same_view(&a->position, &r->conv->position);
}

/* Whether there are no more tokens than sequences, which mostly have one each. */
static bool are_tokens(const struct qrn_ssm_conv_history_args *conv)
{
    return conv->out.shape[0] <= conv->position.shape[0];
}

/* Blocks of several heads read what the gates are made of, and the ring: neither may be written where it
 * is read. */
static bool matches_token(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct run_of r = run_of(steps, true);
    const struct qrn_gdn_open_chunk_args *a = r.chunk;
    const struct qrn_tensor *const passed[] = {&r.conv->out, &r.norm->x, &a->q,   &a->k,
                                               &a->v,        &a->g,      &a->beta};
    return inputs_match(&r) && r.conv->out.shape[0] <= MOST_TOKENS &&
           qrn_cuda_gdn_is_few(a, cuda->n_multiprocessors) && r.conv->n_history >= LEAST_RING &&
           chunk_matches(&r) && r.gates->g.data != r.gates->a.data &&
           r.gates->beta.data != r.gates->b.data && qrn_cuda_are_joined(steps, 4, passed, 7);
}

/* Of many tokens, whose q, k and v are rounded in any case. */
static bool matches_prompt(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct run_of r = run_of(steps, true);
    const struct qrn_gdn_open_chunk_args *a = r.chunk;
    const struct qrn_tensor *const passed[] = {&r.conv->out, &r.norm->x, &a->q,   &a->k,
                                               &a->v,        &a->g,      &a->beta};
    (void)cuda;
    return inputs_match(&r) && a->drops_inputs && chunk_matches(&r) &&
           qrn_cuda_are_joined(steps, 4, passed, 7);
}

/* A head's columns pass on to its norm by shared memory: nothing else of it may be what another step touches. */
static bool matches_token_norm(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_rms_norm_args *n = steps[4].args;
    const struct qrn_tensor *o = &run_of(steps, true).chunk->out;
    return matches_token(cuda, steps) && qrn_same_view(&n->x, o) && n->residual.n_dims == 0 &&
           n->sum.n_dims == 0 && !qrn_same_view(&n->gate, o) &&
           qrn_cuda_is_joined(&steps[4], steps, 4, &o, 1);
}

/* Whether one row of weights makes a, and one b, of each head, and no others are there. */
static bool makes_gates(const struct qrn_matmul_args *product,
                        const struct qrn_gdn_gates_args *gates)
{
    const struct qrn_tensor *out = &product->out, *const made[] = {&gates->a, &gates->b};
    const enum qrn_dtype type = product->w.dtype;
    const int64_t n = gates->a.shape[1];
    if (type != QRN_F32 && type != QRN_F16 && type != QRN_BF16) return false;
    if (product->w.n_dims != 2 || product->x.n_dims != 2 || out->n_dims != 2) return false;
    if (out->shape[1] != 2 * n || gates->a.data == gates->b.data) return false;
    for (int i = 0; i < 2; i++) {
        const bool first = made[i]->data == out->data,
                   second = made[i]->data == (float *)out->data + n;
        if (!(first || second) || made[i]->shape[0] != out->shape[0]) return false;
        if (out->shape[0] > 1 && made[i]->stride[0] != out->stride[0]) return false;
    }
    return true;
}

/* Whether the product can be joined with the n steps behind it.  Every block reads x, which none of them may write. */
static bool product_matches(const struct qrn_step *steps, size_t n)
{
    const struct qrn_matmul_args *product = steps[0].args;
    const struct run_of r = run_of(steps + 1, true);
    const struct qrn_tensor *const passed[] = {&product->out, &r.gates->a, &r.gates->b};
    return makes_gates(product, r.gates) &&
           qrn_cuda_is_joined(&steps[0], steps + 1, n, passed, 3);
}

/* Where all blocks have room at once, of which a multiprocessor has three. */
static bool matches_product_inputs(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    enum { AT_ONCE = 3 };
    const struct qrn_matmul_args *product = steps[0].args;
    const struct run_of r = run_of(steps + 1, false);
    const struct qrn_tensor *const passed[] = {&product->out, &r.gates->a, &r.gates->b};
    const int64_t of_channels = qrn_ceil_div(r.conv->out.shape[1], 4 * QRN_CONV_THREADS),
                  of_gates = qrn_ceil_div(r.gates->a.shape[1], QRN_GDN_GATES_OF_BLOCK);
    return matches_inputs(cuda, steps + 1) && are_tokens(r.conv) && makes_gates(product, r.gates) &&
           r.conv->position.shape[0] * (of_channels + of_gates) <=
               AT_ONCE * cuda->n_multiprocessors &&
           qrn_cuda_is_joined(&steps[0], steps + 1, 3, passed, 3);
}

static bool matches_product_token(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    return matches_token(cuda, steps + 1) && product_matches(steps, 4);
}

static bool matches_product_token_norm(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    return matches_token_norm(cuda, steps + 1) && product_matches(steps, 5);
}

static struct qrn_gdn_gate_rows rows_of(const struct qrn_matmul_args *a,
                                        const struct qrn_gdn_gates_args *gates)
{
    const int32_t n = (int32_t)gates->a.shape[1];
    const bool a_first = gates->a.data == a->out.data;
    return (struct qrn_gdn_gate_rows){.w = (uint64_t)(uintptr_t)a->w.data,
                                      .x = (uint64_t)(uintptr_t)a->x.data,
                                      .out = (uint64_t)(uintptr_t)a->out.data,
                                      .w_row =
                                          a->w.stride[0] * qrn_dtype_info(a->w.dtype)->block_bytes,
                                      .x_row = 4 * a->x.stride[0],
                                      .out_row = 4 * a->out.stride[0],
                                      .k = a->w.shape[1],
                                      .dtype = (int32_t)a->w.dtype,
                                      .a = a_first ? 0 : n,
                                      .b = a_first ? n : 0};
}

static struct qrn_gdn_inputs_params inputs_of(const struct run_of *r)
{
    int64_t n_blocks;
    struct qrn_gdn_inputs_params p = {.conv = qrn_cuda_ssm_conv_history_params(r->conv, &n_blocks),
                                      .gates = qrn_cuda_gdn_gates_params(r->gates),
                                      .eps = r->norm->eps,
                                      .scale = r->norm->scale != 0.0f ? r->norm->scale : 1.0f,
                                      .n_normed = (int32_t)(r->norm->x.shape[1] * D)};
    p.n_conv_blocks = (int32_t)n_blocks;
    return p;
}

/* Blocks for channels, then for gates. */
static struct qrn_cuda_grid grid_of(const struct qrn_gdn_inputs_params *p)
{
    const int64_t n_gates = p->gates.n_tokens * p->gates.n_heads;
    return (struct qrn_cuda_grid){.n_blocks =
                                      p->n_conv_blocks + qrn_ceil_div(n_gates, QRN_CONV_THREADS),
                                  .n_threads = QRN_CONV_THREADS};
}

static void run_prompt(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_prompt_sm90a,
                                               "qrn_gdn_prompt_inputs", 0};
    const struct run_of r = run_of(steps, true);
    struct qrn_gdn_inputs_params p = inputs_of(&r);
    s->scratch = s->cuda->scratch + steps[3].scratch_at;
    p.rounded = (uint64_t)(uintptr_t)qrn_cuda_gdn_wgmma_rounded(s, r.chunk);
    qrn_cuda_launch(s, &f, grid_of(&p), &p);
    qrn_cuda_gdn_wgmma_behind(s, r.chunk);
}

static void run_inputs(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    static const struct qrn_cuda_function any = {qrn_cuda_image_gdn_inputs, "qrn_gdn_inputs", 0},
                                          token = {qrn_cuda_image_gdn_inputs,
                                                   "qrn_gdn_inputs_token", 0},
                                          tokens = {qrn_cuda_image_gdn_inputs,
                                                    "qrn_gdn_inputs_tokens", 0};
    const struct run_of r = run_of(steps, false);
    struct qrn_gdn_inputs_params p = inputs_of(&r);
    const int64_t n_seqs = p.conv.sequences.n_seqs;
    const bool single = are_tokens(r.conv);
    const int together = s->lets_next && n_seqs > MANY_SEQS ? QRN_GDN_INPUTS_TOGETHER : 1;
    p.numbers_stay = s->numbers_stay;
    if (single)
        p.n_conv_blocks = (int32_t)(p.conv.n_channel_blocks * qrn_ceil_div(n_seqs, together));
    qrn_cuda_launch(s, !single ? &any : together > 1 ? &tokens : &token, grid_of(&p), &p);
}

static void run_product_inputs(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_inputs, "qrn_gdn_product_inputs",
                                               0};
    const struct run_of r = run_of(steps + 1, false);
    struct qrn_gdn_product_inputs_params p = {.inputs = inputs_of(&r),
                                              .rows = rows_of(steps[0].args, r.gates)};
    const struct qrn_gdn_gates_params *g = &p.inputs.gates;
    p.inputs.numbers_stay = s->numbers_stay;
    p.inputs.n_conv_blocks =
        (int32_t)(p.inputs.conv.n_channel_blocks * p.inputs.conv.sequences.n_seqs);
    const int64_t n_gates = qrn_ceil_div(g->n_tokens * g->n_heads, QRN_GDN_GATES_OF_BLOCK);
    qrn_cuda_launch(s, &f,
                    (struct qrn_cuda_grid){.n_blocks = p.inputs.n_conv_blocks + n_gates,
                                           .n_threads = QRN_CONV_THREADS},
                    &p);
}

/* Copies whole rows of the product to shared memory, if all blocks of a multiprocessor have room for that. */
static void stage_rows(struct qrn_gdn_gate_rows *rows, struct qrn_cuda_grid *grid, int n_multiprocessors)
{
    const int64_t row = rows->k * (rows->dtype == QRN_F32 ? 4 : 2), bytes = 4 * rows->k + 2 * row,
                  n_blocks = (grid->n_blocks * grid->n_blocks_y + n_multiprocessors - 1) / n_multiprocessors;
    if (rows->k % D || (rows->w | rows->x | (uint64_t)rows->w_row | (uint64_t)rows->x_row) % 16) return;
    if (n_blocks * (grid->shared_bytes + bytes) > QRN_GDN_TOKEN_MOST_BYTES) return;
    rows->staged_bytes = (int32_t)row;
    grid->shared_bytes += (unsigned)bytes;
}

/* Whether the weights of the token's steps, and of its norm, are there as the launch begins. */
static bool weights_stay(const struct qrn_cuda_stream *s, const struct qrn_step *steps, bool norms)
{
    return qrn_cuda_step_operand_stays(s, &steps[0], "weight") &&
           qrn_cuda_step_operand_stays(s, &steps[2], "a_scale") &&
           qrn_cuda_step_operand_stays(s, &steps[2], "dt_bias") &&
           (!norms || qrn_cuda_step_operand_stays(s, &steps[4], "weight"));
}

/* Failures stay in the stream. */
static void map_lines(struct qrn_cuda_stream *s, struct qrn_tensor_map *lines)
{
    enum { HALVES = 2 * D }; /* maps of anywhere are of 16 bits */
    if (qrn_cuda_map_anywhere(s, HALVES, D, D * (int64_t)sizeof(float), QRN_CUDA_GDN_CHUNK, lines) ||
        s->result != CUDA_SUCCESS)
        return;
    s->result = CUDA_ERROR_NOT_SUPPORTED;
    s->failed = "a map of lines";
}

static void launch_token(struct qrn_cuda_stream *s, const struct qrn_step *steps,
                         struct qrn_gdn_gate_rows rows, bool rows_stay, bool norms)
{
    static const struct qrn_cuda_function plain = {qrn_cuda_image_gdn_token_sm90a, "qrn_gdn_token",
                                                   QRN_GDN_TOKEN_MOST_BYTES},
                                          normed = {qrn_cuda_image_gdn_token_sm90a,
                                                    "qrn_gdn_token_norm", QRN_GDN_TOKEN_MOST_BYTES};
    const struct run_of r = run_of(steps, true);
    struct qrn_cuda_grid grid = qrn_cuda_gdn_few_grid(r.chunk);
    grid.shared_bytes += QRN_GDN_FEW_ALIGNMENT;
    if (norms) {
        grid.n_cluster = (unsigned)(grid.n_blocks / r.chunk->v.shape[1]);
        grid.shared_bytes += QRN_GDN_TOKEN_NORM_BYTES;
    }
    if (rows.w) stage_rows(&rows, &grid, s->cuda->n_multiprocessors);
    struct qrn_gdn_token_norm_params p = {
        .token = {.inputs = inputs_of(&r),
                  .rows = rows,
                  .chunk = qrn_gdn_open_chunk_params(r.chunk, D / 2),
                  .early = s->numbers_stay && rows_stay && weights_stay(s, steps, norms)}};
    p.token.chunk.settled = p.token.early && r.chunk->settled;
    map_lines(s, &p.token.lines);
    if (norms) p.norm = qrn_cuda_rms_norm_params(steps[4].args);
    qrn_cuda_launch(s, norms ? &normed : &plain, grid, &p); /* the plain one's params come first */
}

static void launch_product_token(struct qrn_cuda_stream *s, const struct qrn_step *steps, bool norms)
{
    launch_token(s, steps + 1, rows_of(steps[0].args, steps[3].args),
                 qrn_cuda_step_operand_stays(s, &steps[0], "w"), norms);
}

static void run_token(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    launch_token(s, steps, (struct qrn_gdn_gate_rows){0}, true, false);
}

static void run_token_norm(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    launch_token(s, steps, (struct qrn_gdn_gate_rows){0}, true, true);
}

static void run_product_token(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    launch_product_token(s, steps, false);
}

static void run_product_token_norm(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    launch_product_token(s, steps, true);
}

const struct qrn_cuda_joint qrn_cuda_joint_gdn_inputs = {
    .name = "gdn_inputs",
    .kernels = {&qrn_cuda_ssm_conv_history_taps4, &qrn_cuda_l2_norm_registers,
                &qrn_cuda_gdn_gates_elements},
    .n_steps = 3,
    .matches = matches_inputs,
    .run = run_inputs,
};

const struct qrn_cuda_joint qrn_cuda_joint_gdn_product_inputs = {
    .name = "gdn_product_inputs",
    .kernels = {&qrn_cuda_matmul_floats, &qrn_cuda_ssm_conv_history_taps4,
                &qrn_cuda_l2_norm_registers, &qrn_cuda_gdn_gates_elements},
    .n_steps = 4,
    .matches = matches_product_inputs,
    .run = run_product_inputs,
};

const struct qrn_cuda_joint qrn_cuda_joint_gdn_prompt = {
    .name = "gdn_prompt",
    .kernels = {&qrn_cuda_ssm_conv_history_taps4, &qrn_cuda_l2_norm_registers,
                &qrn_cuda_gdn_gates_elements, &qrn_cuda_gdn_open_chunk_wgmma},
    .n_steps = 4,
    .matches = matches_prompt,
    .run = run_prompt,
};

const struct qrn_cuda_joint qrn_cuda_joint_gdn_token = {
    .name = "gdn_token",
    .kernels = {&qrn_cuda_ssm_conv_history_taps4, &qrn_cuda_l2_norm_registers,
                &qrn_cuda_gdn_gates_elements, &qrn_cuda_gdn_open_chunk_decode},
    .n_steps = 4,
    .matches = matches_token,
    .run = run_token,
};

const struct qrn_cuda_joint qrn_cuda_joint_gdn_product_token = {
    .name = "gdn_product_token",
    .kernels = {&qrn_cuda_matmul_floats, &qrn_cuda_ssm_conv_history_taps4,
                &qrn_cuda_l2_norm_registers, &qrn_cuda_gdn_gates_elements,
                &qrn_cuda_gdn_open_chunk_decode},
    .n_steps = 5,
    .matches = matches_product_token,
    .run = run_product_token,
};

const struct qrn_cuda_joint qrn_cuda_joint_gdn_token_norm = {
    .name = "gdn_token_norm",
    .kernels = {&qrn_cuda_ssm_conv_history_taps4, &qrn_cuda_l2_norm_registers,
                &qrn_cuda_gdn_gates_elements, &qrn_cuda_gdn_open_chunk_decode,
                &qrn_cuda_rms_norm_registers},
    .n_steps = 5,
    .matches = matches_token_norm,
    .run = run_token_norm,
};

const struct qrn_cuda_joint qrn_cuda_joint_gdn_product_token_norm = {
    .name = "gdn_product_token_norm",
    .kernels = {&qrn_cuda_matmul_floats, &qrn_cuda_ssm_conv_history_taps4,
                &qrn_cuda_l2_norm_registers, &qrn_cuda_gdn_gates_elements,
                &qrn_cuda_gdn_open_chunk_decode, &qrn_cuda_rms_norm_registers},
    .n_steps = 6,
    .matches = matches_product_token_norm,
    .run = run_product_token_norm,
};
