/* SPDX-License-Identifier: MIT
 * Made-up calls: matrix products. */
#include <inttypes.h>

#include "bench_cases.h"
#include "core/device_impl.h"

/* Weights [n0, n1] or [n0, n1, n2] as rows or packed; false if there is no packed form. */
static bool weights(struct bench_memory *m, enum qrn_dtype dtype, int64_t n0, int64_t n1,
                    int64_t n2, enum qrn_activation_type activation, enum qrn_weight_layout layout,
                    struct qrn_tensor *out)
{
    /* A GPU that multiplies such weights as bf16 does so with what is packed for Q8. */
    const bool as_q8 =
        activation == QRN_ACT_BF16 && dtype != QRN_BF16 && !qrn_device_host_reads(m->dev);
    struct qrn_matmul_pack_args pack = {.activation = as_q8 ? QRN_ACT_Q8 : activation};
    pack.w = n2 > 0 ? qrn_tensor_3d(dtype, NULL, n0, n1, n2) : qrn_tensor_2d(dtype, NULL, n0, n1);
    size_t n_packed = 0;
    if (layout == QRN_LAYOUT_PACKED && m->status == QRN_OK)
        m->status = qrn_matmul_packed_bytes(m->dev, &pack, &n_packed, &m->err);
    if (layout == QRN_LAYOUT_PACKED && n_packed == 0) return false;
    *out = pack.w = bench_weights(m, dtype, n0, n1, n2);
    if (layout == QRN_LAYOUT_ROWS) return true;
    out->data = bench_bytes(m, n_packed);
    out->n_bytes = n_packed;
    pack.packed = qrn_tensor_1d(QRN_U8, out->data, (int64_t)n_packed);
    if (m->status == QRN_OK) m->status = qrn_matmul_pack(m->dev, &pack, &m->err);
    return true;
}

/* What a model has x rounded to before such a product; a GPU takes rows of bf16. */
static enum qrn_dtype rounded_type(const struct bench_memory *m, enum qrn_dtype weights,
                                   enum qrn_activation_type activation)
{
    if (activation == QRN_ACT_BF16 && !qrn_device_host_reads(m->dev)) return QRN_BF16;
    return qrn_matmul_x_dtype(weights, activation);
}

/* x as the product would round it first: the time without that. */
static void round_x(struct bench_memory *m, enum qrn_dtype rounded, struct qrn_tensor *x)
{
    const struct qrn_dtype_info *info = qrn_dtype_info(rounded);
    const size_t n = (size_t)(x->shape[0] * x->shape[1] / info->block_elements);
    void *data = bench_bytes(m, n * (size_t)info->block_bytes);
    const struct qrn_cast_args cast = {
        .x = *x, .out = qrn_tensor_2d(rounded, data, x->shape[0], x->shape[1])};
    if (m->status == QRN_OK) m->status = qrn_cast(m->dev, &cast, &m->err);
    *x = cast.out;
}

/* "q8 packed" */
static const char *form(int64_t activation, int64_t layout)
{
    static const char *const forms[][2] = {[QRN_ACT_F32] = {"f32", "f32 packed"},
                                           [QRN_ACT_Q8] = {"q8", "q8 packed"},
                                           [QRN_ACT_BF16] = {"bf16", "bf16 packed"}};
    return forms[activation][layout == QRN_LAYOUT_PACKED];
}

/* type, N, K, M, activation, layout, whether x is rounded already */
static void matmul(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s %" PRId64 "x%" PRId64 " M %" PRId64 " %s%s",
                     qrn_dtype_info(dtype)->name, n[1], n[2], n[3], form(n[4], n[5]),
                     n[6] ? ", x rounded" : ""))
        return;
    struct qrn_matmul_args *a = &c->args.matmul;
    *a = (struct qrn_matmul_args){.x = bench_floats(m, 1.0f, n[3], n[2], 0),
                                  .out = bench_output(m, QRN_F32, n[3], n[1], 0),
                                  .activation = (enum qrn_activation_type)n[4],
                                  .layout = (enum qrn_weight_layout)n[5],
                                  .any_order = true};
    c->skip = !weights(m, dtype, n[1], n[2], 0, a->activation, a->layout, &a->w);
    if (n[6] && !c->skip) round_x(m, rounded_type(m, dtype, a->activation), &a->x);
}

/* bits, group, N, K, M */
static void matmul_mlx(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s group %" PRId64 " %" PRId64 "x%" PRId64 " M %" PRId64,
                     qrn_dtype_info(dtype)->name, n[1], n[2], n[3], n[4]))
        return;
    c->args.matmul = (struct qrn_matmul_args){
        .w = bench_weights(m, dtype, n[2], n[3], 0),
        .scales = bench_floats(m, 0.01f, n[2], n[3] / n[1], 0),
        .biases = bench_floats(m, 0.1f, n[2], n[3] / n[1], 0),
        .x = bench_floats(m, 1.0f, n[4], n[3], 0),
        .out = bench_output(m, QRN_F32, n[4], n[2], 0),
    };
}

/* type, of k, experts, N, K, tokens, activation, layout */
static void matmul_id(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s %" PRId64 "/%" PRId64 " %" PRId64 "x%" PRId64 " T %" PRId64 " %s",
                     qrn_dtype_info(dtype)->name, n[1], n[2], n[3], n[4], n[5], form(n[6], n[7])))
        return;
    struct qrn_matmul_id_args *a = &c->args.matmul_id;
    *a = (struct qrn_matmul_id_args){.x = bench_floats(m, 1.0f, n[5], 1, n[4]),
                                     .ids = bench_ids(m, n[5], n[1], 7, n[2]),
                                     .out = bench_output(m, QRN_F32, n[5], n[1], n[3]),
                                     .activation = (enum qrn_activation_type)n[6],
                                     .layout = (enum qrn_weight_layout)n[7],
                                     .any_order = true};
    c->skip = !weights(m, dtype, n[2], n[3], n[4], a->activation, a->layout, &a->w);
}

/* type, N, K */
static void matmul_pack(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s %" PRId64 "x%" PRId64, qrn_dtype_info(dtype)->name, n[1], n[2]))
        return;
    struct qrn_matmul_pack_args *a = &c->args.matmul_pack;
    *a = (struct qrn_matmul_pack_args){.w = bench_weights(m, dtype, n[1], n[2], 0),
                                       .activation = QRN_ACT_Q8};
    size_t n_packed = 0;
    if (m->status == QRN_OK) m->status = qrn_matmul_packed_bytes(m->dev, a, &n_packed, &m->err);
    c->skip = n_packed == 0;
    if (!c->skip) a->packed = qrn_tensor_1d(QRN_U8, bench_bytes(m, n_packed), (int64_t)n_packed);
}

/* type, vocabulary, d, tokens */
static void embedding(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype dtype = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s %" PRId64 "x%" PRId64 " T %" PRId64, qrn_dtype_info(dtype)->name,
                     n[1], n[2], n[3]))
        return;
    struct qrn_embedding_args *a = &c->args.embedding;
    *a = (struct qrn_embedding_args){.table = bench_weights(m, dtype, n[1], n[2], 0),
                                     .ids = bench_ids(m, n[3], 0, 37, n[1]),
                                     .out = bench_output(m, QRN_F32, n[3], n[2], 0)};
}

/* clang-format off */
/* Products of 4096 x 14336 with one row, a few and many, and a smaller one; as rows and packed. */
#define PRODUCTS(type, act)                                                                        \
    {QRN_OP_matmul, matmul, {type, 4096, 14336, 1, act, QRN_LAYOUT_ROWS}},                         \
    {QRN_OP_matmul, matmul, {type, 4096, 14336, 1, act, QRN_LAYOUT_PACKED}},                       \
    {QRN_OP_matmul, matmul, {type, 4096, 14336, 8, act, QRN_LAYOUT_PACKED}},                       \
    {QRN_OP_matmul, matmul, {type, 4096, 14336, 512, act, QRN_LAYOUT_PACKED}},                     \
    {QRN_OP_matmul, matmul, {type, 1024, 4096, 128, act, QRN_LAYOUT_ROWS}},                        \
    {QRN_OP_matmul, matmul, {type, 1024, 4096, 128, act, QRN_LAYOUT_PACKED}}
#define BLOCKS(type) PRODUCTS(type, QRN_ACT_F32), PRODUCTS(type, QRN_ACT_Q8)

#define AS_BF16(type) {QRN_OP_matmul, matmul, {type, 4096, 14336, 512, QRN_ACT_BF16, QRN_LAYOUT_PACKED}}
#define ROUNDED(type, act, layout) {QRN_OP_matmul, matmul, {type, 4096, 14336, 512, act, layout, 1}}

#define EXPERTS(type)                                                                              \
    {QRN_OP_matmul_id, matmul_id, {type, 8, 32, 512, 2048, 1, QRN_ACT_Q8, QRN_LAYOUT_ROWS}},       \
    {QRN_OP_matmul_id, matmul_id, {type, 8, 32, 512, 2048, 1, QRN_ACT_Q8, QRN_LAYOUT_PACKED}},     \
    {QRN_OP_matmul_id, matmul_id, {type, 8, 32, 512, 2048, 64, QRN_ACT_Q8, QRN_LAYOUT_PACKED}}

const struct bench_row bench_rows_matmul[] = {
    PRODUCTS(QRN_F32, QRN_ACT_F32), PRODUCTS(QRN_F16, QRN_ACT_F32), PRODUCTS(QRN_BF16, QRN_ACT_F32),
    PRODUCTS(QRN_BF16, QRN_ACT_BF16),
    BLOCKS(QRN_Q4_0), BLOCKS(QRN_Q4_1), BLOCKS(QRN_Q5_0), BLOCKS(QRN_Q5_1), BLOCKS(QRN_Q8_0),
    BLOCKS(QRN_Q2_K), BLOCKS(QRN_Q3_K), BLOCKS(QRN_Q4_K), BLOCKS(QRN_Q5_K), BLOCKS(QRN_Q6_K),
    BLOCKS(QRN_IQ4_NL), BLOCKS(QRN_IQ4_XS), BLOCKS(QRN_TQ1_0), BLOCKS(QRN_TQ2_0), BLOCKS(QRN_MXFP4),
    PRODUCTS(QRN_NVFP4, QRN_ACT_F32), PRODUCTS(QRN_IQ2_XXS, QRN_ACT_F32),
    PRODUCTS(QRN_IQ2_XS, QRN_ACT_F32), PRODUCTS(QRN_IQ2_S, QRN_ACT_F32),
    PRODUCTS(QRN_IQ3_XXS, QRN_ACT_F32), PRODUCTS(QRN_IQ3_S, QRN_ACT_F32),
    PRODUCTS(QRN_IQ1_S, QRN_ACT_F32), PRODUCTS(QRN_IQ1_M, QRN_ACT_F32),
    AS_BF16(QRN_Q4_0), AS_BF16(QRN_Q8_0), AS_BF16(QRN_Q4_K), AS_BF16(QRN_Q6_K),
    ROUNDED(QRN_BF16, QRN_ACT_BF16, QRN_LAYOUT_PACKED),
    ROUNDED(QRN_BF16, QRN_ACT_BF16, QRN_LAYOUT_ROWS), ROUNDED(QRN_Q4_0, QRN_ACT_Q8, QRN_LAYOUT_PACKED),
    ROUNDED(QRN_Q8_0, QRN_ACT_Q8, QRN_LAYOUT_PACKED), ROUNDED(QRN_Q4_K, QRN_ACT_Q8, QRN_LAYOUT_PACKED),
    ROUNDED(QRN_Q6_K, QRN_ACT_Q8, QRN_LAYOUT_PACKED),
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q4, 64, 4096, 14336, 1}},
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q4, 64, 1024, 4096, 128}},
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q6, 64, 4096, 14336, 1}},
    {QRN_OP_matmul, matmul_mlx, {QRN_MLX_Q8, 64, 4096, 14336, 1}},
    EXPERTS(QRN_Q4_0), EXPERTS(QRN_Q4_K), EXPERTS(QRN_BF16),
    {QRN_OP_matmul_pack, matmul_pack, {QRN_Q4_0, 4096, 4096}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_Q8_0, 4096, 4096}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_Q4_K, 4096, 4096}},
    {QRN_OP_matmul_pack, matmul_pack, {QRN_BF16, 4096, 4096}},
    {QRN_OP_embedding, embedding, {QRN_Q4_0, 4096, 4096, 512}},
    {QRN_OP_embedding, embedding, {QRN_BF16, 4096, 4096, 512}},
    {.build = NULL},
};
