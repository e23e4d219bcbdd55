/* SPDX-License-Identifier: MIT
 * The joint of a token's attention: to the bit what the launches of its steps leave in memory. */
#include "joint_attention.h"

#include <math.h>

#include "base/half.h"

enum { MAX_SEQS = 4 };

enum oddity {
    NONE,
    STRONG,       /* queries and keys whose scores are far apart */
    BAD_VALUES,   /* NaN and infinity among values */
    NO_PAGE,      /* of the newest keys, and of earlier ones */
    BAD_NUMBERS,  /* positions that cannot be */
    BAD_BOUNDS,   /* tokens of no sequence, too many of one */
    MANY_PAGES,   /* no joint but that of rows */
    MANY_HEADS,   /* the same */
    MORE_TOKENS,  /* than sequences: the same */
    OTHER_PAGES,  /* attention has a table of its own: the same */
    OTHER_QUERIES /* attention reads other ones: the same */
};

enum output { IN_PLACE, OF_F32, OF_BF16, OF_Q8 }; /* what the gates multiply into */

struct row {
    int64_t n_heads, n_kv_heads, d, n_rot;
    enum output output;
    enum oddity oddity;
    int64_t max_pages, window, n_seqs;
    int64_t lengths[MAX_SEQS];
    int32_t positions[MAX_SEQS];
    const char *why;
};

static const struct row rows[] = {
    {16, 4, 256, 64, OF_Q8, NONE, 16, 0, 1, {1}, {0}, "9B: the first token"},
    {16, 4, 256, 64, OF_Q8, NONE, 16, 0, 1, {1}, {63}, "a page's end"},
    {16, 4, 256, 64, OF_Q8, NONE, 16, 0, 1, {1}, {64}, "a page's beginning: two blocks share keys"},
    {16, 4, 256, 64, OF_Q8, NONE, 16, 0, 1, {1}, {128}, "three of them"},
    {16, 4, 256, 64, OF_BF16, NONE, 16, 0, 1, {1}, {1023}, "all pages there are"},
    {8, 2, 256, 64, OF_BF16, NONE, 32, 0, 1, {1}, {2047}, "the longest past"},
    {2, 2, 64, 64, OF_F32, NONE, 32, 0, 1, {1}, {2000}, "heads of 64, one a key head"},
    {3, 1, 128, 40, IN_PLACE, NONE, 8, 0, 1, {1}, {300}, "odd heads, half-turned, in place"},
    {10, 2, 64, 32, OF_F32, NONE, 8, 0, 1, {1}, {200}, "five heads"},
    {7, 1, 128, 128, OF_BF16, NONE, 8, 0, 1, {1}, {250}, "seven heads"},
    {16, 2, 256, 64, OF_Q8, NONE, 8, 0, 1, {1}, {400}, "eight heads"},
    {16, 2, 64, 64, OF_F32, NONE, 4, 0, 1, {1}, {20}, "the same of 64, a short past"},
    {16, 2, 256, 64, OF_Q8, NONE, 16, 0, 4, {1, 1, 1, 1}, {0, 700, 63, 129}, "35B: four sequences"},
    {16,
     16,
     64,
     64,
     OF_F32,
     NONE,
     16,
     0,
     4,
     {1, 1, 1, 1},
     {600, 1000, 0, 257},
     "several runs a share"},
    {10, 1, 128, 64, OF_F32, MANY_HEADS, 8, 0, 1, {1}, {200}, "ten heads a key head"},
    {4, 2, 128, 64, OF_F32, NONE, 16, 100, 2, {1, 1}, {500, 50}, "a window"},
    {4, 1, 128, 64, OF_F32, NONE, 16, 64, 2, {1, 1}, {512, 0}, "a window of one block"},
    {16, 4, 256, 64, OF_Q8, STRONG, 16, 0, 1, {1}, {600}, "scores far apart"},
    {16, 4, 256, 64, OF_F32, BAD_VALUES, 16, 0, 2, {1, 1}, {300, 40}, "values that are not finite"},
    {4, 2, 128, 64, OF_F32, NO_PAGE, 8, 0, 2, {1, 1}, {300, 300}, "pages that are not there"},
    {4,
     2,
     128,
     64,
     OF_F32,
     BAD_NUMBERS,
     8,
     0,
     3,
     {1, 1, 1},
     {-1, 512, 511},
     "positions that cannot be"},
    {4,
     2,
     128,
     64,
     OF_F32,
     NONE,
     8,
     0,
     4,
     {0, 3, 0, 1},
     {0, 130, 0, 62},
     "sequences of none and three"},
    {14, 2, 64, 64, IN_PLACE, NONE, 8, 0, 2, {2, 0}, {63, 0}, "of two and none"},
    {4, 2, 128, 64, OF_F32, BAD_BOUNDS, 8, 0, 2, {1, 1}, {10, 20}, "bounds that cannot be"},
    {4, 2, 128, 64, OF_F32, MANY_PAGES, 33, 0, 1, {1}, {10}, "many pages"},
    {4, 2, 128, 64, OF_F32, MORE_TOKENS, 8, 0, 1, {2}, {10}, "two tokens of one"},
    {4, 2, 128, 64, OF_F32, OTHER_PAGES, 8, 0, 1, {1}, {10}, "other pages"},
    {4, 2, 128, 64, OF_F32, OTHER_QUERIES, 8, 0, 1, {1}, {10}, "other queries"},
};

struct call {
    struct attention_rows_call rows;
    struct qrn_attention_paged_args attention;
    struct qrn_sigmoid_mul_args gated;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    record_attention_rows(j, &c->rows);
    qrn_encode_attention_paged(j->enc, &c->attention);
    qrn_encode_sigmoid_mul(j->enc, &c->gated);
}

/* A page of halves; its keys and values are what earlier tokens have left. */
static struct qrn_tensor page_of(struct joint_test *j, const struct row *z)
{
    const int64_t n = (int64_t)qrn_kv_page_bytes(QRN_F16, z->n_kv_heads, z->d) / 2 + 64;
    const struct qrn_tensor t = joint_test_poison(j, QRN_F16, 1, &n);
    uint16_t *h = joint_test_at(j, t.data);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)rng_normal(&j->r);
        h[i] = qrn_float_to_f16(z->oddity == STRONG && i < n / 2 ? 40.0f * x : x);
        if (z->oddity == BAD_VALUES && i > n / 2 && i % 997 == 0) h[i] = i % 2 ? 0x7e00 : 0xfc00;
    }
    return t;
}

static void make_pages(struct joint_test *j, const struct row *z, struct call *c)
{
    int32_t begin[MAX_SEQS + 1] = {0};
    uint64_t pages[MAX_SEQS * 33] = {0};
    for (int64_t n = 0; n < z->n_seqs; n++) {
        begin[n + 1] = begin[n] + (int32_t)z->lengths[n];
        for (int64_t i = 0; i * 64 < z->positions[n] + z->lengths[n] && i < z->max_pages; i++)
            pages[n * z->max_pages + i] = (uint64_t)(uintptr_t)page_of(j, z).data;
    }
    if (z->oddity == NO_PAGE) pages[1] = 0, pages[z->max_pages + 300 / 64] = 0;
    c->rows.append.position = joint_test_ints(j, z->positions, z->n_seqs);
    if (z->oddity == BAD_BOUNDS) begin[1] = 0, begin[2] = 5;
    c->rows.append.seq_begin = joint_test_ints(j, begin, z->n_seqs + 1);
    c->rows.append.pages = joint_test_addresses(j, pages, z->n_seqs, z->max_pages);
    c->rows.append.page_offset = 64;
    c->rows.append.kv_type = QRN_F16;
}

static struct qrn_tensor output_of(struct joint_test *j, const struct row *z, struct qrn_tensor x)
{
    static const enum qrn_dtype types[] = {QRN_F32, QRN_F32, QRN_BF16, QRN_Q8_ACT};
    return z->output == IN_PLACE ? x : joint_test_poison(j, types[z->output], 3, x.shape);
}

/* Queries with gates between them, keys and values in one matrix. */
static void make(struct joint_test *j, const struct row *z, struct call *c)
{
    int64_t n_tokens = 0;
    for (int s = 0; s < MAX_SEQS; s++) n_tokens += z->lengths[s];
    const double scale = z->oddity == STRONG ? 30.0 : 1.0;
    const struct qrn_tensor pairs = joint_test_filled(
                                j, 2.0, 3, (const int64_t[]){n_tokens, z->n_heads, 2 * z->d}),
                            kv = joint_test_filled(
                                j, 2.0, 3, (const int64_t[]){n_tokens, 2 * z->n_kv_heads, z->d});
    const struct qrn_tensor q = qrn_tensor_slice(pairs, 2, 0, z->d),
                            gate = qrn_tensor_slice(pairs, 2, z->d, z->d),
                            k = qrn_tensor_slice(kv, 1, 0, z->n_kv_heads),
                            v = qrn_tensor_slice(kv, 1, z->n_kv_heads, z->n_kv_heads);
    const struct qrn_tensor out = joint_test_poison(j, QRN_F32, 3, q.shape);
    int32_t positions[2 * MAX_SEQS];
    for (int64_t t = 0; t < n_tokens; t++) positions[t] = (int32_t)(t * 37 + 5);
    if (z->oddity == BAD_NUMBERS) positions[1] = -5;
    if (z->oddity == BAD_VALUES) ((float *)joint_test_at(j, v.data))[3] = INFINITY;
    *c = (struct call){
        .rows = {
            .q_norm = {.x = q, .out = q, .eps = 1e-6f, .weight = joint_test_filled(j, scale, 1, &z->d)},
            .k_norm = {.x = k, .out = k, .eps = 1e-5f, .weight = joint_test_filled(j, scale, 1, &z->d)},
            .q_rope = {.x = q, .out = q, .n_rot = z->n_rot, .theta = 1e6, .mode = QRN_ROPE_NEOX},
            .append = {.k = k, .v = v}}};
    c->rows.q_rope.positions = joint_test_ints(j, positions, n_tokens);
    c->rows.k_rope = c->rows.q_rope;
    c->rows.k_rope.x = c->rows.k_rope.out = k;
    make_pages(j, z, c);
    c->attention = (struct qrn_attention_paged_args){.q = q,
                                                     .seq_begin = c->rows.append.seq_begin,
                                                     .position = c->rows.append.position,
                                                     .pages = c->rows.append.pages,
                                                     .out = out,
                                                     .n_kv_heads = z->n_kv_heads,
                                                     .page_offset = 64,
                                                     .kv_type = QRN_F16,
                                                     .scale = 1.0f / sqrtf((float)z->d),
                                                     .window = z->window};
    c->gated = (struct qrn_sigmoid_mul_args){.x = out, .gate = gate, .out = output_of(j, z, out)};
    if (z->oddity == OTHER_PAGES)
        c->attention.pages =
            joint_test_addresses(j, joint_test_at(j, c->rows.append.pages.data), 1, z->max_pages);
    if (z->oddity == OTHER_QUERIES) c->attention.q = joint_test_filled(j, 1.0, 3, q.shape);
}

static void test_token(void **state)
{
    (void)state;
    struct joint_test j;
    joint_test_open_bytes(&j, 12, 160 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct call c;
        make(&j, &rows[i], &c);
        joint_test_run(&j, record, &c, rows[i].oddity < MANY_PAGES ? 7 : 4, rows[i].why);
    }
    joint_test_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
