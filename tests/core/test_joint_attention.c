/* SPDX-License-Identifier: MIT
 * The joint of norms, rope and append: to the bit what five launches leave in memory. */
#include "joint_attention.h"

enum { MAX_SEQS = 8, MAX_PAGES = 3 };

enum layout { PLAIN, GATES, ONE_MATRIX }; /* of queries: with gates between them; with k and v */
enum oddity {
    NONE,
    TOO_MANY,      /* tokens: no joint */
    COPIES,        /* the norm's output is elsewhere: no joint */
    TWO_ANGLES,    /* keys are turned by others: no joint */
    SHARED_WEIGHT, /* the weight of keys is what queries are: no joint */
    BAD_NUMBERS    /* no page, positions that cannot be */
};

struct row {
    int64_t n_heads, n_kv_heads, d, n_rot;
    enum qrn_rope_mode mode;
    enum qrn_dtype kv_type;
    enum layout layout;
    enum oddity oddity;
    bool factors, yarn, no_weights;
    int64_t lengths[MAX_SEQS];
    int32_t positions[MAX_SEQS];
    const char *why;
};

static const struct row rows[] = {
    {16, 4, 256, 64, QRN_ROPE_NEOX, QRN_F16, GATES, NONE, 0, 0, 0, {1}, {70}, "the 9B's"},
    {16, 4, 256, 64, QRN_ROPE_NEOX, QRN_F16, ONE_MATRIX, NONE, 0, 0, 0, {1, 1}, {63, 64}, "of two"},
    {8,
     2,
     128,
     128,
     QRN_ROPE_NORMAL,
     QRN_F32,
     PLAIN,
     NONE,
     0,
     1,
     0,
     {1, 1, 1},
     {0, 1, 127},
     "neighbours, YaRN, floats"},
    {3,
     1,
     20,
     12,
     QRN_ROPE_NEOX,
     QRN_F16,
     GATES,
     NONE,
     1,
     0,
     0,
     {2, 0, 5, 1, 1, 1, 1, 1},
     {0, 3, 62, 9, 64, 100, 5, 31},
     "ragged, factors, odd sizes"},
    {2,
     2,
     36,
     0,
     QRN_ROPE_NORMAL,
     QRN_F16,
     PLAIN,
     NONE,
     1,
     1,
     1,
     {1, 4},
     {5, 60},
     "all dimensions, factors and YaRN, no weights"},
    {5, 3, 388, 64, QRN_ROPE_NEOX, QRN_F32, ONE_MATRIX, NONE, 0, 0, 0, {3}, {63}, "wide heads"},
    {2, 1, 512, 512, QRN_ROPE_NEOX, QRN_F16, PLAIN, NONE, 0, 0, 0, {1}, {0}, "the widest"},
    {1, 1, 4, 2, QRN_ROPE_NEOX, QRN_F16, PLAIN, NONE, 0, 0, 0, {64}, {64}, "the most tokens"},
    {1, 1, 4, 2, QRN_ROPE_NEOX, QRN_F16, PLAIN, TOO_MANY, 0, 0, 0, {65}, {64}, "too many tokens"},
    {4, 2, 64, 32, QRN_ROPE_NEOX, QRN_F16, PLAIN, COPIES, 0, 0, 0, {1}, {3}, "copies"},
    {4, 2, 64, 32, QRN_ROPE_NEOX, QRN_F16, PLAIN, TWO_ANGLES, 0, 0, 0, {1}, {3}, "other angles"},
    {4,
     2,
     64,
     32,
     QRN_ROPE_NEOX,
     QRN_F16,
     PLAIN,
     SHARED_WEIGHT,
     0,
     0,
     0,
     {1},
     {3},
     "a weight that is written"},
    {4,
     2,
     64,
     32,
     QRN_ROPE_NEOX,
     QRN_F16,
     PLAIN,
     BAD_NUMBERS,
     0,
     0,
     0,
     {1, 1, 1, 1, 1},
     {3, -1, 191, 192, 70},
     "numbers that cannot be"},
};

static void record(struct joint_test *j, const void *context)
{
    record_attention_rows(j, context);
}

/* Sequences and their pages. */
static void make_append(struct joint_test *j, const struct row *z,
                        struct qrn_kv_append_paged_args *a)
{
    int32_t begin[MAX_SEQS + 1] = {0};
    uint64_t pages[MAX_SEQS * MAX_PAGES];
    int64_t n = 0;
    const int64_t page[] = {(int64_t)qrn_kv_page_bytes(z->kv_type, z->n_kv_heads, z->d) / 4 + 32};
    for (; n < MAX_SEQS && (n == 0 || z->lengths[n] || z->positions[n]); n++) {
        begin[n + 1] = begin[n] + (int32_t)z->lengths[n];
        for (int i = 0; i < MAX_PAGES; i++)
            pages[n * MAX_PAGES + i] =
                (uint64_t)(uintptr_t)joint_test_poison(j, QRN_F32, 1, page).data;
    }
    if (z->oddity == BAD_NUMBERS) pages[4 * MAX_PAGES + 1] = 0;
    a->seq_begin = joint_test_ints(j, begin, n + 1);
    a->position = joint_test_ints(j, z->positions, n);
    a->pages = joint_test_addresses(j, pages, n, MAX_PAGES);
    a->page_offset = 128;
    a->kv_type = z->kv_type;
}

static struct qrn_tensor heads(struct qrn_tensor all, int64_t at, int64_t n, int64_t d)
{
    return qrn_tensor_split_last(qrn_tensor_slice(all, 1, at, n * d), n, d);
}

static void make(struct joint_test *j, const struct row *z, struct attention_rows_call *c)
{
    int64_t T = 0;
    for (int s = 0; s < MAX_SEQS; s++) T += z->lengths[s];
    const int64_t wide = z->layout == GATES ? 2 * z->d : z->d, n_q = z->n_heads * wide,
                  n_k = z->n_kv_heads * z->d;
    struct qrn_tensor q, k, v;
    if (z->layout == ONE_MATRIX) {
        const struct qrn_tensor all =
            joint_test_filled(j, 2.0, 2, (const int64_t[]){T, n_q + 2 * n_k});
        q = heads(all, 0, z->n_heads, z->d);
        k = heads(all, n_q, z->n_kv_heads, z->d);
        v = heads(all, n_q + n_k, z->n_kv_heads, z->d);
    } else {
        q = qrn_tensor_slice(joint_test_filled(j, 2.0, 3, (const int64_t[]){T, z->n_heads, wide}),
                             2, 0, z->d);
        k = joint_test_filled(j, 2.0, 3, (const int64_t[]){T, z->n_kv_heads, z->d});
        v = joint_test_filled(j, 2.0, 3, (const int64_t[]){T, z->n_kv_heads, z->d});
    }
    int32_t positions[128];
    for (int64_t t = 0; t < T; t++) positions[t] = (int32_t)(t * 37);
    if (z->oddity == BAD_NUMBERS) positions[0] = -5, positions[1] = 1 << 30;
    const struct qrn_tensor at = joint_test_ints(j, positions, T);
    c->q_norm = (struct qrn_rms_norm_args){.x = q, .out = q, .eps = 1e-6f};
    c->k_norm = (struct qrn_rms_norm_args){.x = k, .out = k, .eps = 1e-5f};
    if (!z->no_weights) {
        c->q_norm.weight = joint_test_filled(j, 1.0, 1, &z->d);
        c->k_norm.weight = joint_test_filled(j, 1.0, 1, &z->d);
    }
    c->q_rope = (struct qrn_rope_args){
        .x = q, .out = q, .positions = at, .n_rot = z->n_rot, .theta = 1e6, .mode = z->mode};
    const int64_t n_pairs = (z->n_rot ? z->n_rot : z->d) / 2;
    if (z->factors) {
        c->q_rope.freq_factors = joint_test_filled(j, 0.1, 1, &n_pairs);
        float *f = joint_test_at(j, c->q_rope.freq_factors.data);
        for (int64_t i = 0; i < n_pairs; i++) f[i] += 1.0f;
    }
    if (z->yarn)
        c->q_rope.scaling = (struct qrn_rope_scaling){.factor = 4.0f, .original_context = 64.0f};
    c->k_rope = c->q_rope;
    c->k_rope.x = c->k_rope.out = k;
    c->append = (struct qrn_kv_append_paged_args){.k = k, .v = v};
    make_append(j, z, &c->append);
    if (z->oddity == COPIES) {
        c->q_norm.out = joint_test_poison(j, QRN_F32, 3, q.shape);
        c->q_rope.x = c->q_norm.out;
    }
    if (z->oddity == TWO_ANGLES) c->k_rope.theta = 1e4;
    if (z->oddity == SHARED_WEIGHT)
        c->k_norm.weight = qrn_tensor_1d(QRN_F32, c->q_norm.x.data, z->d);
}

static void test_rows(void **state)
{
    (void)state;
    struct joint_test j;
    joint_test_open(&j, 11);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct attention_rows_call c;
        const enum oddity oddity = rows[i].oddity;
        make(&j, &rows[i], &c);
        joint_test_run(&j, record, &c, oddity == NONE || oddity == BAD_NUMBERS ? 4 : 0,
                       rows[i].why);
    }
    joint_test_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
