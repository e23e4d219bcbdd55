/* SPDX-License-Identifier: MIT
 * Made-up calls: the gated delta net. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "bench_cases.h"
#include "core/device_impl.h"

/* tokens, channels, K */
static void ssm_conv_history(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 " C %" PRId64 " K %" PRId64, n[0], n[1], n[2])) return;
    const size_t ring = sizeof(float) * (size_t)(n[1] * (n[2] - 1));
    c->args.ssm_conv_history = (struct qrn_ssm_conv_history_args){
        .x = bench_floats(m, 1.0f, n[0], n[1], 0),
        .weight = bench_floats(m, 0.5f, n[1], n[2], 0),
        .seq_begin = bench_seq_begin(m, 1, n[0]),
        .position = bench_same_ints(m, 1, 64),
        .history = bench_addresses(m, QRN_F32, 0.1f, 1, 0, ring),
        .out = bench_output(m, QRN_F32, n[0], n[1], 0),
        .n_history = n[2] - 1,
    };
}

/* tokens, heads */
static void gdn_gates(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 " H %" PRId64, n[0], n[1])) return;
    c->args.gdn_gates =
        (struct qrn_gdn_gates_args){.a = bench_floats(m, 1.0f, n[0], n[1], 0),
                                    .b = bench_floats(m, 1.0f, n[0], n[1], 0),
                                    .a_scale = bench_floats(m, 1.0f, n[1], 0, 0),
                                    .dt_bias = bench_floats(m, 1.0f, n[1], 0, 0),
                                    .g = bench_output(m, QRN_F32, n[0], n[1], 0),
                                    .beta = bench_output(m, QRN_F32, n[0], n[1], 0)};
}

/* Log decays -scale .. 0. */
static struct qrn_tensor decays(struct bench_memory *m, float scale, int64_t n0, int64_t n1)
{
    return bench_uniform(m, QRN_F32, -scale, 0.0f, n0, n1, 0);
}

static struct qrn_tensor betas(struct bench_memory *m, int64_t n0, int64_t n1)
{
    return bench_uniform(m, QRN_F32, 0.05f, 0.95f, n0, n1, 0);
}

/* tokens of each sequence, key heads, value heads, d; without positions */
static struct qrn_gdn_open_chunk_args open_chunk(struct bench_memory *m, enum qrn_dtype type,
                                                 int64_t n_seqs, int64_t T, int64_t n_k,
                                                 int64_t n_v, int64_t d)
{
    return (struct qrn_gdn_open_chunk_args){
        .q = bench_uniform(m, type, -0.15f, 0.15f, n_seqs * T, n_k, d),
        .k = bench_uniform(m, type, -0.15f, 0.15f, n_seqs * T, n_k, d),
        .v = bench_uniform(m, type, -1.0f, 1.0f, n_seqs * T, n_v, d),
        .g = decays(m, 0.1f, n_seqs * T, n_v),
        .beta = betas(m, n_seqs * T, n_v),
        .seq_begin = bench_seq_begin(m, n_seqs, T),
        .state = bench_addresses(m, QRN_F32, 0.1f, n_seqs, 3, qrn_gdn_state_bytes(n_v, d, d)),
        .rows = bench_addresses(m, QRN_F32, 0.1f, n_seqs, 2, qrn_gdn_rows_bytes(n_k, n_v, d, d)),
        .out = bench_output(m, type, n_seqs * T, n_v, d),
        .scale = 1.0f / sqrtf((float)d),
        .head_map = QRN_HEADS_TILED,
    };
}

/* tokens, position, key heads, value heads, d */
static void gdn_open_chunk(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 " at %" PRId64 " Hk %" PRId64 " Hv %" PRId64 " d %" PRId64,
                     n[0], n[1], n[2], n[3], n[4]))
        return;
    c->args.gdn_open_chunk = open_chunk(m, QRN_F32, 1, n[0], n[2], n[3], n[4]);
    c->args.gdn_open_chunk.position = bench_same_ints(m, 1, n[1]);
}

/* type, sequences, tokens of each, key heads, value heads, d, acts */
static void gdn_open_chunk_batch(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype type = (enum qrn_dtype)n[0];
    if (!bench_named(
            m, c, "%s %" PRId64 "x%" PRId64 " at 0 Hk %" PRId64 " Hv %" PRId64 " d %" PRId64 "%s",
            qrn_dtype_info(type)->name, n[1], n[2], n[3], n[4], n[5], n[6] ? " rounded" : ""))
        return;
    c->skip = n[6] != QRN_ACT_F32 && qrn_device_host_reads(m->dev); /* nothing new to time */
    if (c->skip) return;
    c->args.gdn_open_chunk = open_chunk(m, type, n[1], n[2], n[3], n[4], n[5]);
    c->args.gdn_open_chunk.position = bench_same_ints(m, n[1], 0);
    c->args.gdn_open_chunk.acts = (enum qrn_activation_type)n[6];
}

/* Sequences of a call whose states are as many as those of all calls of a recording may have memory for. */
enum { MOST_SETTLED = 8 };

/* One token each at all places of a chunk in turn, the edge, too; of few sequences each call has its own states, as
 * layers have: what it reads is settled.  Sequences, key heads, value heads, d; whether sequences are at
 * places as far apart as can be */
static void gdn_open_chunk_turn(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c,
                     "%" PRId64 " seqs, each place%s Hk %" PRId64 " Hv %" PRId64 " d %" PRId64,
                     n[0], n[4] ? " apart" : "", n[1], n[2], n[3]))
        return;
    const int64_t apart = n[4] ? (n[0] < QRN_GDN_CHUNK ? QRN_GDN_CHUNK / n[0] : 1) : 0;
    struct qrn_gdn_open_chunk_args *a = &c->args.gdn_open_chunk;
    *a = open_chunk(m, QRN_F32, n[0], 1, n[1], n[2], n[3]);
    const struct qrn_tensor places = bench_places(m, QRN_GDN_CHUNK, n[0], QRN_GDN_CHUNK, apart);
    a->position = qrn_tensor_1d(QRN_I32, places.data, n[0]);
    c->turn_at = offsetof(struct qrn_gdn_open_chunk_args, position);
    c->turn_bytes = sizeof(int32_t) * (size_t)n[0];
    c->n_turns = QRN_GDN_CHUNK;
    c->once = a->settled = n[0] <= MOST_SETTLED;
}

/* tokens, channels, K */
static void ssm_conv_of(struct bench_memory *m, enum qrn_dtype type, const int64_t *n,
                        struct bench_case *c)
{
    struct qrn_tensor x = bench_uniform(m, type, -1.0f, 1.0f, 1, n[0], n[1]),
                      out = bench_output(m, type, 1, n[0], n[1]);
    c->args.ssm_conv = (struct qrn_ssm_conv_args){
        .x = x,
        .weight = bench_uniform(m, type, -0.5f, 0.5f, n[1], n[2], 0),
        .state_in = bench_uniform(m, type, -1.0f, 1.0f, 1, n[1], n[2] - 1),
        .state_out = bench_output(m, type, 1, n[1], n[2] - 1),
        .out = out,
    };
}

/* tokens, channels, K */
static void ssm_conv(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 " C %" PRId64 " K %" PRId64, n[0], n[1], n[2])) return;
    ssm_conv_of(m, QRN_F32, n, c);
}

static void ssm_conv_bf16(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "bf16 T %" PRId64 " C %" PRId64 " K %" PRId64, n[0], n[1], n[2])) return;
    ssm_conv_of(m, QRN_BF16, n, c);
}

/* sequences, tokens of each, key heads, value heads, d */
static void gated_delta_net_of(struct bench_memory *m, enum qrn_dtype type, const int64_t *n,
                               struct bench_case *c)
{
    const int64_t n_tokens = n[0] * n[1];
    struct qrn_tensor state = bench_floats(m, 0.1f, n[0] * n[3], n[4], n[4]);
    state = qrn_tensor_4d(QRN_F32, state.data, n[0], n[3], n[4], n[4]);
    c->args.gated_delta_net = (struct qrn_gated_delta_net_args){
        .q = bench_uniform(m, type, -0.1f, 0.1f, n_tokens, n[2], n[4]),
        .k = bench_uniform(m, type, -0.1f, 0.1f, n_tokens, n[2], n[4]),
        .v = bench_uniform(m, type, -1.0f, 1.0f, n_tokens, n[3], n[4]),
        .g = decays(m, 0.1f, n_tokens, n[3]),
        .beta = betas(m, n_tokens, n[3]),
        .state_in = state,
        .state_out = state,
        .out = bench_output(m, type, n_tokens, n[3], n[4]),
        .scale = 1.0f / sqrtf((float)n[4]),
        .gate_sign = QRN_GATE_LOG_DECAY,
        .head_map = QRN_HEADS_TILED,
    };
    if (n[0] > 1) c->args.gated_delta_net.seq_begin = bench_seq_begin(m, n[0], n[1]);
}

/* tokens, key heads, value heads, d */
static void gated_delta_net(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const int64_t sizes[5] = {1, n[0], n[1], n[2], n[3]};
    if (bench_named(m, c, "T %" PRId64 " Hk %" PRId64 " Hv %" PRId64 " d %" PRId64, n[0], n[1],
                    n[2], n[3]))
        gated_delta_net_of(m, QRN_F32, sizes, c);
}

/* type, sequences, tokens of each, key heads, value heads, d */
static void gated_delta_net_batch(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype type = (enum qrn_dtype)n[0];
    if (bench_named(m, c, "%s %" PRId64 "x%" PRId64 " Hk %" PRId64 " Hv %" PRId64 " d %" PRId64,
                    qrn_dtype_info(type)->name, n[1], n[2], n[3], n[4], n[5]))
        gated_delta_net_of(m, type, n + 1, c);
}

/* The chunk stages; sizes: tokens, key heads, value heads, d. */

static bool stage_named(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    return bench_named(m, c, "T %" PRId64 " Hk %" PRId64 " Hv %" PRId64 " d %" PRId64, n[0], n[1],
                       n[2], n[3]);
}

/* [n_tokens, n_v_heads, QRN_GDN_CHUNK] */
static struct qrn_tensor chunk_matrix(struct bench_memory *m, const int64_t *n, float scale)
{
    return bench_floats(m, scale, n[0], n[2], QRN_GDN_CHUNK);
}

/* [first, n_v_heads, d_v, d_k] of zeros */
static struct qrn_tensor states(struct bench_memory *m, const int64_t *n, int64_t first)
{
    const struct qrn_tensor t = bench_floats(m, 0.0f, first * n[2], n[3], n[3]);
    return qrn_tensor_4d(QRN_F32, t.data, first, n[2], n[3], n[3]);
}

static void gdn_cumsum(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!stage_named(m, n, c)) return;
    c->args.gdn_cumsum = (struct qrn_gdn_cumsum_args){.g = decays(m, 0.1f, n[0], n[2]),
                                                      .G = bench_output(m, QRN_F32, n[0], n[2], 0)};
}

static void gdn_kkt(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!stage_named(m, n, c)) return;
    c->args.gdn_kkt = (struct qrn_gdn_kkt_args){.k = bench_floats(m, 0.1f, n[0], n[1], n[3]),
                                                .beta = betas(m, n[0], n[2]),
                                                .G = bench_floats(m, 0.0f, n[0], n[2], 0),
                                                .A = chunk_matrix(m, n, 0.0f),
                                                .head_map = QRN_HEADS_TILED};
}

static void gdn_solve(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!stage_named(m, n, c)) return;
    c->args.gdn_solve = (struct qrn_gdn_solve_args){.A = chunk_matrix(m, n, 0.01f),
                                                    .inverse = chunk_matrix(m, n, 0.0f)};
}

static void gdn_recompute_wu(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!stage_named(m, n, c)) return;
    c->args.gdn_recompute_wu = (struct qrn_gdn_recompute_wu_args){
        .k = bench_floats(m, 0.1f, n[0], n[1], n[3]),
        .v = bench_floats(m, 1.0f, n[0], n[2], n[3]),
        .beta = betas(m, n[0], n[2]),
        .G = bench_floats(m, 0.0f, n[0], n[2], 0),
        .inverse = chunk_matrix(m, n, 0.01f),
        .w = bench_output(m, QRN_F32, n[0], n[2], n[3]),
        .u = bench_output(m, QRN_F32, n[0], n[2], n[3]),
        .head_map = QRN_HEADS_TILED,
    };
}

static void gdn_chunk_state(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!stage_named(m, n, c)) return;
    c->args.gdn_chunk_state = (struct qrn_gdn_chunk_state_args){
        .k = bench_floats(m, 0.1f, n[0], n[1], n[3]),
        .w = bench_floats(m, 0.1f, n[0], n[2], n[3]),
        .u = bench_floats(m, 1.0f, n[0], n[2], n[3]),
        .G = bench_floats(m, 0.0f, n[0], n[2], 0),
        .state_in = states(m, n, 1),
        .h = states(m, n, qrn_gdn_n_chunks(NULL, 1, n[0])),
        .v_new = bench_output(m, QRN_F32, n[0], n[2], n[3]),
        .state_out = states(m, n, 1),
        .head_map = QRN_HEADS_TILED,
    };
}

static void gdn_chunk_out(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!stage_named(m, n, c)) return;
    c->args.gdn_chunk_out = (struct qrn_gdn_chunk_out_args){
        .q = bench_floats(m, 0.1f, n[0], n[1], n[3]),
        .k = bench_floats(m, 0.1f, n[0], n[1], n[3]),
        .v_new = bench_floats(m, 1.0f, n[0], n[2], n[3]),
        .h = states(m, n, qrn_gdn_n_chunks(NULL, 1, n[0])),
        .G = bench_floats(m, 0.0f, n[0], n[2], 0),
        .out = bench_output(m, QRN_F32, n[0], n[2], n[3]),
        .scale = 1.0f / sqrtf((float)n[3]),
        .head_map = QRN_HEADS_TILED,
    };
}

#define STAGE(op)             \
    {                         \
        QRN_OP_##op, op,      \
        {                     \
            1024, 16, 32, 128 \
        }                     \
    }

/* Tokens at a position, n_k_heads and n_v_heads; one token at each place of the open chunk. */
#define OPEN(t, at, hk, hv)                    \
    {                                          \
        QRN_OP_gdn_open_chunk, gdn_open_chunk, \
        {                                      \
            t, at, hk, hv, 128                 \
        }                                      \
    }
#define OPEN_8(at)                                                                 \
    OPEN(1, at, 32, 32), OPEN(1, at + 1, 32, 32), OPEN(1, at + 2, 32, 32),         \
        OPEN(1, at + 3, 32, 32), OPEN(1, at + 4, 32, 32), OPEN(1, at + 5, 32, 32), \
        OPEN(1, at + 6, 32, 32), OPEN(1, at + 7, 32, 32)

const struct bench_row bench_rows_gdn[] = {
    {QRN_OP_ssm_conv, ssm_conv, {1, 8192, 4}},
    {QRN_OP_ssm_conv, ssm_conv, {512, 3328, 4}},
    {QRN_OP_ssm_conv, ssm_conv, {934, 8192, 4}},
    {QRN_OP_ssm_conv, ssm_conv_bf16, {934, 8192, 4}},
    {QRN_OP_ssm_conv_history, ssm_conv_history, {1, 8192, 4}},
    {QRN_OP_ssm_conv_history, ssm_conv_history, {512, 3328, 4}},
    {QRN_OP_ssm_conv_history, ssm_conv_history, {934, 8192, 4}},
    {QRN_OP_gdn_gates, gdn_gates, {1, 32}},
    {QRN_OP_gdn_gates, gdn_gates, {512, 32}},
    {QRN_OP_gated_delta_net, gated_delta_net, {1, 16, 32, 128}},
    {QRN_OP_gated_delta_net, gated_delta_net, {64, 16, 32, 128}},
    {QRN_OP_gated_delta_net, gated_delta_net, {1024, 16, 32, 128}},
    {QRN_OP_gated_delta_net, gated_delta_net_batch, {QRN_F32, 2, 512, 16, 32, 128}},
    {QRN_OP_gated_delta_net, gated_delta_net_batch, {QRN_BF16, 2, 512, 16, 32, 128}},
    OPEN(1, 0, 16, 32),
    OPEN(1, 32, 16, 32),
    OPEN(64, 0, 16, 32),
    OPEN(256, 0, 16, 32),
    OPEN(1024, 0, 16, 32),
    OPEN_8(64),
    OPEN_8(72),
    OPEN_8(80),
    OPEN_8(88),
    OPEN_8(96),
    OPEN_8(104),
    OPEN_8(112),
    OPEN_8(120),
    OPEN(64, 0, 32, 32),
    OPEN(256, 0, 32, 32),
    OPEN(1024, 0, 32, 32),
    OPEN(1, 1056, 16, 16),
    OPEN(1, 4128, 16, 16),
    OPEN(1, 8224, 16, 16),
    OPEN(1, 16416, 16, 16),
    OPEN(1, 32800, 16, 16),
    {QRN_OP_gdn_open_chunk, gdn_open_chunk_batch, {QRN_F32, 2, 512, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk_batch, {QRN_F32, 2, 512, 16, 32, 128, QRN_ACT_BF16}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk_batch, {QRN_BF16, 2, 512, 16, 32, 128, QRN_ACT_BF16}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk_turn, {1, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk_turn, {8, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk_turn, {8, 16, 32, 128, 1}},
    STAGE(gdn_cumsum),
    STAGE(gdn_kkt),
    STAGE(gdn_solve),
    STAGE(gdn_recompute_wu),
    STAGE(gdn_chunk_state),
    STAGE(gdn_chunk_out),
    {.build = NULL},
};
