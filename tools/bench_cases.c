/* SPDX-License-Identifier: MIT
 * Made-up calls of every op, of the sizes that models have. */
#include "bench_cases.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/blocks.h"

/* Names the case; false if it is not wanted. */
QRN_PRINTF(3, 4)
static bool named(const struct bench_memory *m, struct bench_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    c->skip = m->only && !strstr(c->name, m->only);
    return !c->skip;
}

/* --- matrix products --- */

/* type, N, K, M, activation, layout */
static void matmul(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    const bool packed = n[5] == QRN_LAYOUT_PACKED;
    if (!named(m, c, "%s %" PRId64 "x%" PRId64 " M %" PRId64 " %s%s", qrn_dtype_info(dtype)->name,
               n[1], n[2], n[3], n[4] == QRN_ACT_Q8 ? "q8" : "f32", packed ? " packed" : ""))
        return;
    struct qrn_matmul_args *a = &c->args.matmul;
    *a = (struct qrn_matmul_args){.x = bench_floats(m, 1.0f, n[3], n[2], 0),
                                  .out = bench_floats(m, 0.0f, n[3], n[1], 0),
                                  .activation = (enum qrn_activation_type)n[4],
                                  .layout = (enum qrn_weight_layout)n[5]};
    struct qrn_matmul_pack_args pack = {.activation = a->activation};
    pack.w = qrn_tensor_2d(dtype, NULL, n[1], n[2]);
    size_t n_packed = 0;
    if (packed && m->status == QRN_OK)
        m->status = qrn_matmul_packed_bytes(m->dev, &pack, &n_packed, &m->err);
    c->skip = packed && n_packed == 0;
    if (c->skip || m->status != QRN_OK) return;
    a->w = pack.w = bench_weights(m, dtype, n[1], n[2], 0);
    if (!packed || m->status != QRN_OK) return;
    a->w.data = bench_bytes(m, n_packed);
    a->w.n_bytes = n_packed;
    pack.packed = qrn_tensor_1d(QRN_U8, a->w.data, (int64_t)n_packed);
    if (m->status == QRN_OK) m->status = qrn_matmul_pack(m->dev, &pack, &m->err);
}

/* bits, group, N, K, M */
static void matmul_mlx(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!named(m, c, "%s group %" PRId64 " %" PRId64 "x%" PRId64 " M %" PRId64,
               qrn_dtype_info(dtype)->name, n[1], n[2], n[3], n[4]))
        return;
    c->args.matmul = (struct qrn_matmul_args){.w = bench_weights(m, dtype, n[2], n[3], 0),
                                              .scales = bench_floats(m, 0.01f, n[2], n[3] / n[1], 0),
                                              .biases = bench_floats(m, 0.1f, n[2], n[3] / n[1], 0),
                                              .x = bench_floats(m, 1.0f, n[4], n[3], 0),
                                              .out = bench_floats(m, 0.0f, n[4], n[2], 0)};
}

/* type, experts, N, K, tokens, of k */
static void matmul_id(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!named(m, c, "%s %" PRId64 " of %" PRId64 " experts %" PRId64 "x%" PRId64 " T %" PRId64,
               qrn_dtype_info(dtype)->name, n[5], n[1], n[2], n[3], n[4]))
        return;
    struct qrn_matmul_id_args *a = &c->args.matmul_id;
    *a = (struct qrn_matmul_id_args){.w = bench_weights(m, dtype, n[1], n[2], n[3]),
                                     .x = bench_floats(m, 1.0f, n[4], 1, n[3]),
                                     .ids = bench_ints(m, n[4], n[5]),
                                     .out = bench_floats(m, 0.0f, n[4], n[5], n[2])};
    int32_t *ids = a->ids.data;
    for (int64_t i = 0; ids && i < n[4] * n[5]; i++) ids[i] = (int32_t)(i * 7 % n[1]);
}

/* type, N, K */
static void matmul_pack(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!named(m, c, "%s %" PRId64 "x%" PRId64, qrn_dtype_info(dtype)->name, n[1], n[2])) return;
    struct qrn_matmul_pack_args *a = &c->args.matmul_pack;
    *a = (struct qrn_matmul_pack_args){.w = bench_weights(m, dtype, n[1], n[2], 0),
                                       .activation = QRN_ACT_Q8};
    size_t n_packed = 0;
    if (m->status == QRN_OK) m->status = qrn_matmul_packed_bytes(m->dev, a, &n_packed, &m->err);
    c->skip = n_packed == 0;
    if (!c->skip)
        a->packed = qrn_tensor_1d(QRN_U8, bench_bytes(m, n_packed), (int64_t)n_packed);
}

/* type, vocabulary, d, tokens */
static void embedding(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!named(m, c, "%s d %" PRId64 " T %" PRId64, qrn_dtype_info(dtype)->name, n[2], n[3])) return;
    struct qrn_embedding_args *a = &c->args.embedding;
    *a = (struct qrn_embedding_args){.table = bench_weights(m, dtype, n[1], n[2], 0),
                                     .ids = bench_ints(m, n[3], 0),
                                     .out = bench_floats(m, 0.0f, n[3], n[2], 0)};
    int32_t *ids = a->ids.data;
    for (int64_t i = 0; ids && i < n[3]; i++) ids[i] = (int32_t)(i * 37 % n[1]);
}

/* --- norms, elements; rows, d --- */

static void rms_norm(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "%" PRId64 "x%" PRId64 " fused residual", n[0], n[1])) return;
    c->args.rms_norm = (struct qrn_rms_norm_args){.x = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                  .residual = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                  .sum = bench_floats(m, 0.0f, n[0], n[1], 0),
                                                  .weight = bench_floats(m, 1.0f, n[1], 0, 0),
                                                  .out = bench_floats(m, 0.0f, n[0], n[1], 0),
                                                  .eps = 1e-6f};
}

static void l2_norm(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.l2_norm = (struct qrn_l2_norm_args){.x = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                .out = bench_floats(m, 0.0f, n[0], n[1], 0),
                                                .eps = 1e-6f};
}

/* The four ops of two inputs have the same layout of arguments. */
#define TWO_INPUTS(op, first, second)                                                              \
    static void op(struct bench_memory *m, const int64_t *n, struct bench_case *c)                 \
    {                                                                                              \
        if (!named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;                              \
        c->args.op = (struct qrn_##op##_args){.first = bench_floats(m, 1.0f, n[0], n[1], 0),       \
                                              .second = bench_floats(m, 1.0f, n[0], n[1], 0),      \
                                              .out = bench_floats(m, 0.0f, n[0], n[1], 0)};        \
    }
TWO_INPUTS(add, x, y)
TWO_INPUTS(mul, x, y)
TWO_INPUTS(silu_mul, gate, up)
TWO_INPUTS(sigmoid_mul, x, gate)

/* type, to type, n */
static void cast(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype from = (enum qrn_dtype)n[0], to = (enum qrn_dtype)n[1];
    if (!named(m, c, "%s to %s %" PRId64, qrn_dtype_info(from)->name, qrn_dtype_info(to)->name, n[2]))
        return;
    c->args.cast = (struct qrn_cast_args){.x = bench_weights(m, from, n[2], 0, 0),
                                          .out = bench_weights(m, to, n[2], 0, 0)};
}

static void copy(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "f32 %" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.copy = (struct qrn_copy_args){.x = bench_floats(m, 1.0f, n[0], n[1], 0),
                                          .out = bench_floats(m, 0.0f, n[0], n[1], 0)};
}

/* --- sequences: one of n_tokens, at a position --- */

static struct qrn_tensor seq_begin(struct bench_memory *m, int64_t n_tokens)
{
    const struct qrn_tensor t = bench_ints(m, 2, 0);
    if (t.data) ((int32_t *)t.data)[1] = (int32_t)n_tokens;
    return t;
}

static struct qrn_tensor one_int(struct bench_memory *m, int64_t value)
{
    const struct qrn_tensor t = bench_ints(m, 1, 0);
    if (t.data) *(int32_t *)t.data = (int32_t)value;
    return t;
}

/* tokens, channels, K */
static void ssm_conv_history(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "T %" PRId64 " C %" PRId64 " K %" PRId64, n[0], n[1], n[2])) return;
    const size_t ring = sizeof(float) * (size_t)(n[1] * (n[2] - 1));
    c->args.ssm_conv_history = (struct qrn_ssm_conv_history_args){
        .x = bench_floats(m, 1.0f, n[0], n[1], 0),
        .weight = bench_floats(m, 0.5f, n[1], n[2], 0),
        .seq_begin = seq_begin(m, n[0]),
        .position = one_int(m, 64),
        .history = bench_addresses(m, 1, 0, ring),
        .out = bench_floats(m, 0.0f, n[0], n[1], 0),
        .n_history = n[2] - 1,
    };
}

/* tokens, heads */
static void gdn_gates(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "T %" PRId64 " H %" PRId64, n[0], n[1])) return;
    c->args.gdn_gates = (struct qrn_gdn_gates_args){.a = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                    .b = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                    .a_scale = bench_floats(m, 1.0f, n[1], 0, 0),
                                                    .dt_bias = bench_floats(m, 1.0f, n[1], 0, 0),
                                                    .g = bench_floats(m, 0.0f, n[0], n[1], 0),
                                                    .beta = bench_floats(m, 0.0f, n[0], n[1], 0)};
}

/* Log decays -scale .. 0. */
static struct qrn_tensor decays(struct bench_memory *m, float scale, int64_t n0, int64_t n1)
{
    const struct qrn_tensor g = bench_floats(m, scale, n0, n1, 0);
    float *data = g.data;
    for (int64_t i = 0; data && i < n0 * n1; i++) data[i] = -fabsf(data[i]);
    return g;
}

/* tokens, position, key heads, value heads, d */
static void gdn_open_chunk(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "T %" PRId64 " at %" PRId64 " Hk %" PRId64 " Hv %" PRId64 " d %" PRId64, n[0],
               n[1], n[2], n[3], n[4]))
        return;
    c->args.gdn_open_chunk = (struct qrn_gdn_open_chunk_args){
        .q = bench_floats(m, 0.1f, n[0], n[2], n[4]),
        .k = bench_floats(m, 0.1f, n[0], n[2], n[4]),
        .v = bench_floats(m, 1.0f, n[0], n[3], n[4]),
        .g = decays(m, 0.1f, n[0], n[3]),
        .beta = bench_floats(m, 0.5f, n[0], n[3], 0),
        .seq_begin = seq_begin(m, n[0]),
        .position = one_int(m, n[1]),
        .state = bench_addresses(m, 1, 3, qrn_gdn_state_bytes(n[3], n[4], n[4])),
        .rows = bench_addresses(m, 1, 2, qrn_gdn_rows_bytes(n[2], n[3], n[4], n[4])),
        .out = bench_floats(m, 0.0f, n[0], n[3], n[4]),
        .scale = 1.0f / sqrtf((float)n[4]),
        .head_map = QRN_HEADS_TILED,
    };
}

/* tokens, heads, d, turned */
static void rope(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "T %" PRId64 " H %" PRId64 " d %" PRId64 " of %" PRId64, n[0], n[1], n[3],
               n[2]))
        return;
    c->args.rope = (struct qrn_rope_args){.x = bench_floats(m, 1.0f, n[0], n[1], n[2]),
                                          .positions = bench_ints(m, n[0], 0),
                                          .out = bench_floats(m, 0.0f, n[0], n[1], n[2]),
                                          .n_rot = n[3],
                                          .theta = 1e7};
}

/* type, tokens, position, kv heads, d */
static void kv_append_paged(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype kv = (enum qrn_dtype)n[0];
    if (!named(m, c, "%s T %" PRId64 " at %" PRId64 " H %" PRId64 " d %" PRId64,
               qrn_dtype_info(kv)->name, n[1], n[2], n[3], n[4]))
        return;
    const int64_t n_pages = (n[1] + n[2] + QRN_KV_PAGE_TOKENS - 1) / QRN_KV_PAGE_TOKENS;
    c->args.kv_append_paged = (struct qrn_kv_append_paged_args){
        .k = bench_floats(m, 1.0f, n[1], n[3], n[4]),
        .v = bench_floats(m, 1.0f, n[1], n[3], n[4]),
        .seq_begin = seq_begin(m, n[1]),
        .position = one_int(m, n[2]),
        .pages = bench_addresses(m, 1, n_pages, qrn_kv_page_bytes(kv, n[3], n[4])),
        .kv_type = kv,
    };
}

/* type, tokens, position, heads, kv heads, d */
static void attention_paged(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype kv = (enum qrn_dtype)n[0];
    if (!named(m, c, "%s T %" PRId64 " at %" PRId64 " H %" PRId64 "/%" PRId64 " d %" PRId64,
               qrn_dtype_info(kv)->name, n[1], n[2], n[3], n[4], n[5]))
        return;
    const int64_t n_pages = (n[1] + n[2] + QRN_KV_PAGE_TOKENS - 1) / QRN_KV_PAGE_TOKENS;
    c->args.attention_paged = (struct qrn_attention_paged_args){
        .q = bench_floats(m, 1.0f, n[1], n[3], n[5]),
        .seq_begin = seq_begin(m, n[1]),
        .position = one_int(m, n[2]),
        .pages = bench_addresses(m, 1, n_pages, qrn_kv_page_bytes(kv, n[4], n[5])),
        .out = bench_floats(m, 0.0f, n[1], n[3], n[5]),
        .n_kv_heads = n[4],
        .kv_type = kv,
        .scale = 1.0f / sqrtf((float)n[5]),
    };
}

/* --- experts, tokens --- */

/* tokens, experts, of k */
static void moe_route(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "T %" PRId64 ", %" PRId64 " of %" PRId64, n[0], n[2], n[1])) return;
    c->args.moe_route = (struct qrn_moe_route_args){.logits = bench_floats(m, 4.0f, n[0], n[1], 0),
                                                    .ids = bench_ints(m, n[0], n[2]),
                                                    .weights = bench_floats(m, 0.0f, n[0], n[2], 0),
                                                    .normalise = true};
}

/* tokens, of k, d */
static void moe_combine(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "T %" PRId64 ", %" PRId64 " of d %" PRId64, n[0], n[1], n[2])) return;
    c->args.moe_combine = (struct qrn_moe_combine_args){
        .experts = bench_floats(m, 1.0f, n[0], n[1], n[2]),
        .weights = bench_floats(m, 1.0f, n[0], n[1], 0),
        .shared = bench_floats(m, 1.0f, n[0], n[2], 0),
        .shared_gate = bench_floats(m, 1.0f, n[0], 0, 0),
        .out = bench_floats(m, 0.0f, n[0], n[2], 0),
    };
}

/* rows, n */
static void argmax(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.argmax = (struct qrn_argmax_args){.x = bench_floats(m, 10.0f, n[0], n[1], 0),
                                              .ids = bench_ints(m, n[0], 0)};
}

/* rows, n, k */
static void top_k(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "%" PRId64 " of %" PRId64, n[2], n[1])) return;
    c->args.top_k = (struct qrn_top_k_args){.x = bench_floats(m, 10.0f, n[0], n[1], 0),
                                            .ids = bench_ints(m, n[0], n[2])};
}

/* n, top_k */
static void sample(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!named(m, c, "%" PRId64 " top_k %" PRId64 " top_p 0.95", n[0], n[1])) return;
    c->args.sample = (struct qrn_sample_args){.logits = bench_floats(m, 10.0f, n[0], 0, 0),
                                              .id = bench_ints(m, 1, 0),
                                              .temperature = 0.8f,
                                              .top_k = (int32_t)n[1],
                                              .top_p = 0.95f,
                                              .seed = 1};
}

/* --- the table --- */

#define VOCAB 151936

/* A mat-vec of 4096 x 14336 and a mat-mat, each as rows and packed. */
#define PRODUCTS(type, act)                                                                        \
    {QRN_OP_matmul, matmul, {type, 4096, 14336, 1, act, QRN_LAYOUT_ROWS}},                         \
    {QRN_OP_matmul, matmul, {type, 4096, 14336, 1, act, QRN_LAYOUT_PACKED}},                       \
    {QRN_OP_matmul, matmul, {type, 1024, 4096, 128, act, QRN_LAYOUT_ROWS}},                        \
    {QRN_OP_matmul, matmul, {type, 1024, 4096, 128, act, QRN_LAYOUT_PACKED}}
#define BLOCKS(type) PRODUCTS(type, QRN_ACT_F32), PRODUCTS(type, QRN_ACT_Q8)
#define ROWS_AND_ONE(op) {QRN_OP_##op, op, {1, 4096, 0}}, {QRN_OP_##op, op, {512, 4096, 0}}

static const struct bench_row rows[] = {
    PRODUCTS(QRN_F32, QRN_ACT_F32), PRODUCTS(QRN_F16, QRN_ACT_F32), PRODUCTS(QRN_BF16, QRN_ACT_F32),
    BLOCKS(QRN_Q4_0), BLOCKS(QRN_Q4_1), BLOCKS(QRN_Q5_0), BLOCKS(QRN_Q5_1), BLOCKS(QRN_Q8_0),
    BLOCKS(QRN_Q2_K), BLOCKS(QRN_Q3_K), BLOCKS(QRN_Q4_K), BLOCKS(QRN_Q5_K), BLOCKS(QRN_Q6_K),
    BLOCKS(QRN_IQ4_NL), BLOCKS(QRN_IQ4_XS), BLOCKS(QRN_TQ1_0), BLOCKS(QRN_TQ2_0), BLOCKS(QRN_MXFP4),
    PRODUCTS(QRN_NVFP4, QRN_ACT_F32), PRODUCTS(QRN_IQ2_XXS, QRN_ACT_F32),
    PRODUCTS(QRN_IQ2_XS, QRN_ACT_F32), PRODUCTS(QRN_IQ2_S, QRN_ACT_F32),
    PRODUCTS(QRN_IQ3_XXS, QRN_ACT_F32), PRODUCTS(QRN_IQ3_S, QRN_ACT_F32),
    PRODUCTS(QRN_IQ1_S, QRN_ACT_F32), PRODUCTS(QRN_IQ1_M, QRN_ACT_F32),
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q4, 64, 4096, 14336, 1}},
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q4, 64, 1024, 4096, 128}},
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q6, 64, 4096, 14336, 1}},
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q8, 64, 4096, 14336, 1}},
    {QRN_OP_matmul_id, matmul_id, {QRN_Q4_0, 32, 512, 2048, 1, 8}},
    {QRN_OP_matmul_id, matmul_id, {QRN_Q4_0, 32, 512, 2048, 64, 8}},
    {QRN_OP_matmul_id, matmul_id, {QRN_BF16, 32, 512, 2048, 1, 8}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_Q4_0, 4096, 4096, 0}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_Q8_0, 4096, 4096, 0}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_Q4_K, 4096, 4096, 0}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_BF16, 4096, 4096, 0}},
    {QRN_OP_embedding, embedding, {QRN_Q4_0, 4096, 4096, 512}},
    {QRN_OP_embedding, embedding, {QRN_BF16, 4096, 4096, 512}},

    ROWS_AND_ONE(rms_norm), ROWS_AND_ONE(l2_norm), ROWS_AND_ONE(add), ROWS_AND_ONE(mul),
    ROWS_AND_ONE(silu_mul), ROWS_AND_ONE(sigmoid_mul), ROWS_AND_ONE(copy),
    {QRN_OP_cast, cast, {QRN_F32, QRN_F16, 1 << 20}},
    {QRN_OP_cast, cast, {QRN_BF16, QRN_F32, 1 << 20}},
    {QRN_OP_cast, cast, {QRN_Q4_0, QRN_F32, 1 << 20}},

    {QRN_OP_ssm_conv_history, ssm_conv_history, {1, 8192, 4}},
    {QRN_OP_ssm_conv_history, ssm_conv_history, {512, 3328, 4}},
    {QRN_OP_ssm_conv_history, ssm_conv_history, {934, 8192, 4}},
    {QRN_OP_gdn_gates, gdn_gates, {1, 32}},
    {QRN_OP_gdn_gates, gdn_gates, {512, 32}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk, {1, 0, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk, {1, 32, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk, {64, 0, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk, {256, 0, 16, 32, 128}},
    {QRN_OP_gdn_open_chunk, gdn_open_chunk, {1024, 0, 16, 32, 128}},

    {QRN_OP_rope, rope, {1, 16, 256, 64}},
    {QRN_OP_rope, rope, {512, 16, 256, 64}},
    {QRN_OP_kv_append_paged, kv_append_paged, {QRN_F16, 1, 4095, 2, 256}},
    {QRN_OP_kv_append_paged, kv_append_paged, {QRN_F16, 512, 0, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 511, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 4095, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F32, 1, 4095, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 512, 0, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 128, 3968, 16, 2, 256}},

    {QRN_OP_moe_route, moe_route, {1, 256, 8}},
    {QRN_OP_moe_route, moe_route, {512, 256, 8}},
    {QRN_OP_moe_combine, moe_combine, {1, 8, 2048}},
    {QRN_OP_moe_combine, moe_combine, {512, 8, 2048}},

    {QRN_OP_argmax, argmax, {1, VOCAB}},
    {QRN_OP_top_k, top_k, {1, VOCAB, 40}},
    {QRN_OP_sample, sample, {VOCAB, 40}},
    {QRN_OP_sample, sample, {VOCAB, 0}},
};

const struct bench_row *bench_row_at(enum qrn_op_id op, size_t i)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        if (rows[r].op == op && i-- == 0) return &rows[r];
    return NULL;
}

bool bench_build(const struct bench_row *row, struct bench_memory *m, struct bench_case *out)
{
    memset(out, 0, sizeof *out);
    row->build(m, row->size, out);
    return !out->skip && m->status == QRN_OK;
}
