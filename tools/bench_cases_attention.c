/* SPDX-License-Identifier: MIT
 * Made-up calls: positions, caches, attention. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_cases.h"
#include "core/device_impl.h"

/* What pages of that type are filled with. */
static enum qrn_dtype page_fill(enum qrn_dtype kv)
{
    return kv == QRN_F16 || kv == QRN_BF16 ? kv : QRN_F32;
}

/* tokens, heads, d, turned */
static void rope(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 " H %" PRId64 " d %" PRId64 " turned %" PRId64, n[0], n[1],
                     n[2], n[3]))
        return;
    c->args.rope = (struct qrn_rope_args){.x = bench_floats(m, 1.0f, n[0], n[1], n[2]),
                                          .positions = bench_ints(m, n[0], 0),
                                          .out = bench_output(m, QRN_F32, n[0], n[1], n[2]),
                                          .n_rot = n[3],
                                          .theta = 1e7};
}

/* type, tokens, position, kv heads, d */
static void kv_append_paged(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype kv = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s T %" PRId64 " at %" PRId64 " H %" PRId64 " d %" PRId64,
                     qrn_dtype_info(kv)->name, n[1], n[2], n[3], n[4]))
        return;
    const int64_t n_pages = (n[1] + n[2] + QRN_KV_PAGE_TOKENS - 1) / QRN_KV_PAGE_TOKENS;
    c->args.kv_append_paged = (struct qrn_kv_append_paged_args){
        .k = bench_floats(m, 1.0f, n[1], n[3], n[4]),
        .v = bench_floats(m, 1.0f, n[1], n[3], n[4]),
        .seq_begin = bench_seq_begin(m, 1, n[1]),
        .position = bench_same_ints(m, 1, n[2]),
        .pages =
            bench_addresses(m, page_fill(kv), 1.0f, 1, n_pages, qrn_kv_page_bytes(kv, n[3], n[4])),
        .kv_type = kv,
    };
}

/* " window 1024 rounded", either or nothing */
static const char *ending(int64_t window, int64_t acts, char name[48])
{
    *name = '\0';
    if (window) snprintf(name, 48, " window %" PRId64, window);
    if (acts) strcat(name, " rounded");
    return name;
}

/* Where no kernel rounds there is nothing new to time. */
static bool skips(const struct bench_memory *m, int64_t acts, struct bench_case *c)
{
    c->skip = acts != QRN_ACT_F32 && qrn_device_host_reads(m->dev);
    return c->skip;
}

/* type, tokens, position, heads, kv heads, d, window or 0, acts */
static void attention_paged(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype kv = (enum qrn_dtype)n[0];
    char end[48];
    if (!bench_named(
            m, c, "%s T %" PRId64 " at %" PRId64 " H %" PRId64 "/%" PRId64 " d %" PRId64 "%s",
            qrn_dtype_info(kv)->name, n[1], n[2], n[3], n[4], n[5], ending(n[6], n[7], end)))
        return;
    if (skips(m, n[7], c)) return;
    const int64_t n_pages = (n[1] + n[2] + QRN_KV_PAGE_TOKENS - 1) / QRN_KV_PAGE_TOKENS;
    c->args.attention_paged = (struct qrn_attention_paged_args){
        .q = bench_floats(m, 1.0f, n[1], n[3], n[5]),
        .seq_begin = bench_seq_begin(m, 1, n[1]),
        .position = bench_same_ints(m, 1, n[2]),
        .pages =
            bench_addresses(m, page_fill(kv), 1.0f, 1, n_pages, qrn_kv_page_bytes(kv, n[4], n[5])),
        .out = bench_output(m, QRN_F32, n[1], n[3], n[5]),
        .n_kv_heads = n[4],
        .kv_type = kv,
        .scale = 1.0f / sqrtf((float)n[5]),
        .window = n[6],
        .acts = (enum qrn_activation_type)n[7],
    };
}

/* tokens, heads, d, turned */
static void rope_multi(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 " H %" PRId64 " d %" PRId64 " turned %" PRId64, n[0], n[1],
                     n[2], n[3]))
        return;
    const int32_t pairs = (int32_t)n[3] / 2, third = pairs / 3;
    c->args.rope_multi = (struct qrn_rope_multi_args){
        .x = bench_floats(m, 1.0f, n[0], n[1], n[2]),
        .positions = bench_ints(m, 3, n[0]),
        .out = bench_output(m, QRN_F32, n[0], n[1], n[2]),
        .n_rot = n[3],
        .theta = 1e7,
        .mode = QRN_ROPE_IMROPE,
        .sections = {pairs - 2 * third, third, third, 0},
    };
}

/* type, tokens, capacity, kv heads, d */
static void kv_append(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype kv = (enum qrn_dtype)n[0];
    if (!bench_named(m, c, "%s T %" PRId64 " of %" PRId64 " H %" PRId64 " d %" PRId64,
                     qrn_dtype_info(kv)->name, n[1], n[2], n[3], n[4]))
        return;
    c->args.kv_append = (struct qrn_kv_append_args){
        .k = bench_floats(m, 1.0f, n[1], n[3], n[4]),
        .v = bench_floats(m, 1.0f, n[1], n[3], n[4]),
        .position = bench_same_ints(m, 1, n[2] - n[1]),
        .cache_k = bench_weights(m, kv, n[3], n[2], n[4]),
        .cache_v = bench_weights(m, kv, n[3], n[2], n[4]),
    };
}

/* type, queries, keys, heads, kv heads, d, window or 0, acts.  Keys and values are as random as in pages:
 * those that repeat take less power, and their greatest score stays from the first block of keys on. */
static void attention(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype kv = (enum qrn_dtype)n[0];
    char end[48];
    if (!bench_named(
            m, c, "%s T %" PRId64 " of %" PRId64 " H %" PRId64 "/%" PRId64 " d %" PRId64 "%s",
            qrn_dtype_info(kv)->name, n[1], n[2], n[3], n[4], n[5], ending(n[6], n[7], end)))
        return;
    if (skips(m, n[7], c)) return;
    c->args.attention =
        (struct qrn_attention_args){.q = bench_floats(m, 1.0f, n[1], n[3], n[5]),
                                    .k = bench_uniform(m, kv, -1.0f, 1.0f, n[2], n[4], n[5]),
                                    .v = bench_uniform(m, kv, -1.0f, 1.0f, n[2], n[4], n[5]),
                                    .out = bench_output(m, QRN_F32, n[1], n[3], n[5]),
                                    .scale = 1.0f / sqrtf((float)n[5]),
                                    .causal = true,
                                    .q_offset = n[2] - n[1],
                                    .window = n[6],
                                    .acts = (enum qrn_activation_type)n[7]};
}

/* queries, keys */
static void attention_mask(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.attention_mask = (struct qrn_attention_mask_args){
        .out = bench_output(m, QRN_F32, n[0], n[1], 0), .causal = true};
}

/* queries, keys, tile */
static void attention_classify_tiles(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 "x%" PRId64 " tiles of %" PRId64, n[0], n[1], n[2])) return;
    const int64_t rows = (n[0] + n[2] - 1) / n[2], columns = (n[1] + n[2] - 1) / n[2];
    c->args.attention_classify_tiles = (struct qrn_attention_classify_tiles_args){
        .mask = bench_floats(m, 0.0f, n[0], n[1], 0),
        .classes = qrn_tensor_2d(QRN_U8, bench_bytes(m, (size_t)(rows * columns)), rows, columns),
        .n_tokens = n[0],
        .n_kv = n[1],
        .causal = true,
        .tile_q = n[2],
        .tile_k = n[2],
    };
}

/* rows, n */
static void softmax(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.softmax = (struct qrn_softmax_args){.x = bench_floats(m, 4.0f, n[0], n[1], 0),
                                                .out = bench_output(m, QRN_F32, n[0], n[1], 0),
                                                .scale = 1.0f};
}

const struct bench_row bench_rows_attention[] = {
    {QRN_OP_rope, rope, {1, 16, 256, 64}},
    {QRN_OP_rope, rope, {512, 16, 256, 64}},
    {QRN_OP_rope_multi, rope_multi, {512, 16, 256, 64}},
    {QRN_OP_kv_append_paged, kv_append_paged, {QRN_F16, 1, 4095, 2, 256}},
    {QRN_OP_kv_append_paged, kv_append_paged, {QRN_F16, 1, 100, 2, 256}},
    {QRN_OP_kv_append_paged, kv_append_paged, {QRN_F16, 512, 0, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 511, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 4095, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F32, 1, 4095, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 512, 0, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 128, 3968, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 512, 3584, 24, 4, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 4095, 24, 4, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 4096, 0, 16, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 4096, 0, 16, 2, 256, 1024}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 1056, 8, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 4128, 8, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 8224, 8, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 16416, 8, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 1, 32800, 8, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 512, 3584, 8, 2, 256}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 8192, 0, 16, 2, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 8192, 0, 16, 2, 256, 1024, QRN_ACT_BF16}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 8192, 0, 24, 4, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 8192, 0, 32, 8, 128, 0, QRN_ACT_BF16}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 2048, 30720, 16, 2, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention_paged, attention_paged, {QRN_F16, 32768, 0, 16, 2, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_kv_append, kv_append, {QRN_F16, 1, 4096, 2, 256}},
    {QRN_OP_kv_append, kv_append, {QRN_F16, 512, 4096, 2, 256}},
    {QRN_OP_attention, attention, {QRN_F16, 1, 4096, 16, 2, 256}},
    {QRN_OP_attention, attention, {QRN_F16, 512, 512, 16, 2, 256}},
    {QRN_OP_attention, attention, {QRN_F32, 512, 512, 32, 8, 128}},
    {QRN_OP_attention, attention, {QRN_BF16, 512, 512, 16, 2, 256}},
    {QRN_OP_attention, attention, {QRN_BF16, 512, 512, 16, 2, 256, 128}},
    {QRN_OP_attention, attention, {QRN_F16, 4096, 4096, 16, 2, 256}},
    {QRN_OP_attention, attention, {QRN_F16, 4096, 4096, 16, 2, 256, 1024}},
    {QRN_OP_attention, attention, {QRN_F16, 8192, 8192, 16, 2, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention, attention, {QRN_BF16, 8192, 8192, 16, 2, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention, attention, {QRN_BF16, 8192, 8192, 16, 2, 256, 1024, QRN_ACT_BF16}},
    {QRN_OP_attention, attention, {QRN_BF16, 8192, 8192, 24, 4, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention, attention, {QRN_BF16, 8192, 8192, 32, 8, 128, 0, QRN_ACT_BF16}},
    {QRN_OP_attention, attention, {QRN_BF16, 8192, 8192, 32, 8, 64, 0, QRN_ACT_BF16}},
    {QRN_OP_attention, attention, {QRN_BF16, 32768, 32768, 16, 2, 256, 0, QRN_ACT_BF16}},
    {QRN_OP_attention_mask, attention_mask, {512, 4096}},
    {QRN_OP_attention_classify_tiles, attention_classify_tiles, {512, 4096, 64}},
    {QRN_OP_softmax, softmax, {512, 4096}},
    {.build = NULL},
};
