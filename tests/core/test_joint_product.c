/* SPDX-License-Identifier: MIT
 * The joints of products and what makes their x: to the bit what two launches leave in memory. */
#include <math.h>
#include <stdlib.h>

#include "support/joint_test.h"
#include "support/weights.h"

enum maker {
    NORM,
    NORM_ALL,
    HEADS,
    HEADS_PLAIN,
    SILU,
    SIGMOID
}; /* NORM_ALL: residual, sum and f32 too */
enum oddity {
    NONE,
    SUM_IN_PLACE, /* of NORM_ALL: other blocks would read what one has written: no joint */
    OUT_IN_PLACE, /* likewise */
    OTHER_X,      /* the product reads something else: no joint */
    OUT_IS_MADE,  /* the product writes what x is made of: no joint */
    NO_WEIGHT,
    INFINITE
};

struct row {
    enum maker maker;
    enum qrn_dtype type;
    int64_t M, N, heads, d; /* K: heads * d */
    enum oddity oddity;
    long n_saved;
    const char *why;
};

static const struct row rows[] = {
    {NORM, QRN_Q4_K, 1, 70, 1, 4096, NONE, 1, "decode"},
    {NORM_ALL, QRN_Q4_K, 1, 33, 1, 1280, NONE, 1, "residual, sum, f32"},
    {NORM_ALL, QRN_Q8_0, 3, 40, 1, 1024, NONE, 1, "three rows, a warp's"},
    {NORM_ALL, QRN_Q5_0, 7, 32, 1, 1152, NONE, 1, "seven rows, a block's"},
    {NORM, QRN_Q4_0, 2, 1, 1, 128, NO_WEIGHT, 1, "smallest, no weight"},
    {NORM_ALL, QRN_Q4_0, 1, 5, 1, 8192, NONE, 1, "the longest row"},
    {NORM_ALL, QRN_Q5_0, 2, 64, 1, 1152, INFINITE, 1, "infinite"},
    {HEADS, QRN_Q4_K, 1, 100, 6, 128, NONE, 1, "gated heads"},
    {HEADS, QRN_Q8_0, 5, 31, 9, 128, NONE, 1, "gated heads, five rows"},
    {HEADS_PLAIN, QRN_Q5_K, 2, 64, 2, 128, NO_WEIGHT, 1, "heads without gate and weight"},
    {SILU, QRN_Q4_K, 1, 96, 1, 2560, NONE, 1, "silu"},
    {SILU, QRN_Q4_1, 8, 20, 1, 640, NONE, 1, "silu, eight rows"},
    {SILU, QRN_MXFP4, 2, 20, 1, 640, INFINITE, 1, "silu of infinity"},
    {SIGMOID, QRN_Q6_K, 1, 64, 4, 256, NONE, 1, "sigmoid, heads of 256"},
    {SIGMOID, QRN_IQ4_NL, 3, 64, 3, 128, NONE, 1, "sigmoid, heads of 128"},
    {NORM, QRN_BF16, 1, 70, 1, 1280, NONE, 1, "bf16"},
    {NORM_ALL, QRN_BF16, 8, 40, 1, 1024, NONE, 1, "bf16, eight rows"},
    {HEADS, QRN_BF16, 2, 17, 5, 128, NONE, 1, "bf16, heads"},
    {SILU, QRN_BF16, 1, 300, 1, 640, NONE, 1, "bf16, silu"},
    {SIGMOID, QRN_BF16, 3, 64, 2, 256, NONE, 1, "bf16, sigmoid"},
    {NORM_ALL, QRN_Q4_K, 1, 33, 1, 1280, SUM_IN_PLACE, 0, "the sum in place"},
    {NORM_ALL, QRN_Q4_K, 1, 33, 1, 1280, OUT_IN_PLACE, 0, "f32 in place"},
    {NORM, QRN_Q4_K, 1, 33, 1, 1280, OTHER_X, 0, "another x"},
    {SILU, QRN_Q4_K, 1, 128, 1, 1280, OUT_IS_MADE, 0, "into what x is made of"},
    {SILU, QRN_Q4_K, 9, 20, 1, 256, NONE, 0, "nine rows"},
    {SILU, QRN_Q4_K, 1, 3, 1, 18432, NONE, 1, "the most of one row"},
    {SILU, QRN_Q4_0, 1, 3, 1, 18560, NONE, 0, "too much of one row"},
    {SILU, QRN_Q4_0, 5, 3, 1, 1664, NONE, 0, "too much of five rows"},
    {SIGMOID, QRN_BF16, 2, 20, 4, 64, NONE, 0, "heads that are no pieces"},
    {HEADS, QRN_Q4_0, 2, 20, 2, 256, NONE, 0, "wide heads, normed"},
};

struct call {
    bool packs;
    struct qrn_matmul_pack_args pack;
    enum maker maker;
    struct qrn_rms_norm_args norm;
    struct qrn_silu_mul_args silu;
    struct qrn_sigmoid_mul_args sigmoid;
    struct qrn_matmul_args product;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    if (c->packs) qrn_encode_matmul_pack(j->enc, &c->pack);
    if (c->maker == SILU) qrn_encode_silu_mul(j->enc, &c->silu);
    if (c->maker == SIGMOID) qrn_encode_sigmoid_mul(j->enc, &c->sigmoid);
    if (c->maker < SILU) qrn_encode_rms_norm(j->enc, &c->norm);
    qrn_encode_matmul(j->enc, &c->product);
}

static void make_weights(struct joint_test *j, const struct row *z, int64_t K, struct call *c)
{
    struct qrn_error err;
    size_t i_type = 0, n_bytes = 0;
    while (weight_types[i_type].dtype != z->type) i_type++;
    const int64_t shape[] = {z->N, K};
    const struct qrn_tensor w = joint_test_poison(j, z->type, 2, shape);
    uint8_t *blocks = joint_test_at(j, w.data);
    const size_t block = (size_t)qrn_dtype_info(z->type)->block_bytes;
    for (size_t i = 0; i < w.n_bytes / block; i++) random_block(&j->r, i_type, blocks + i * block);
    c->product.w = w;
    c->product.activation = QRN_ACT_BF16;
    c->packs = z->type != QRN_BF16;
    if (!c->packs) return;
    c->pack = (struct qrn_matmul_pack_args){.w = w, .activation = QRN_ACT_Q8};
    assert_int_equal(qrn_matmul_packed_bytes(j->joined, &c->pack, &n_bytes, &err), QRN_OK);
    c->pack.packed = joint_test_poison(j, QRN_U8, 1, (const int64_t[]){(int64_t)n_bytes});
    c->product.w.data = c->pack.packed.data;
    c->product.w.n_bytes = n_bytes;
    c->product.activation = QRN_ACT_Q8;
    c->product.layout = QRN_LAYOUT_PACKED;
}

static struct qrn_tensor heads_of(const struct row *z, struct qrn_tensor t)
{
    return z->maker == NORM || z->maker == NORM_ALL || z->maker == SILU
               ? t
               : qrn_tensor_split_last(t, z->heads, z->d);
}

/* The maker's arguments: a and b side by side in rows of one matrix, as a product leaves them. */
static void make_maker(struct joint_test *j, const struct row *z, int64_t K, struct qrn_tensor x,
                       struct call *c)
{
    const struct qrn_tensor both = joint_test_filled(j, 1.0, 2, (const int64_t[]){z->M, 2 * K + 4});
    const struct qrn_tensor a = heads_of(z, qrn_tensor_slice(both, 1, 0, K)),
                            b = heads_of(z, qrn_tensor_slice(both, 1, K, K)), out = heads_of(z, x);
    const int64_t flat[] = {z->M, K};
    if (z->oddity == INFINITE) ((float *)joint_test_at(j, both.data))[K / 2] = INFINITY;
    c->maker = z->maker;
    c->silu = (struct qrn_silu_mul_args){.gate = a, .up = b, .out = out};
    c->sigmoid = (struct qrn_sigmoid_mul_args){.x = a, .gate = b, .out = out};
    c->norm = (struct qrn_rms_norm_args){.x = a, .rounded = out, .eps = 1e-6f};
    if (z->oddity != NO_WEIGHT) c->norm.weight = joint_test_filled(j, 1.0, 1, &z->d);
    if (z->maker == HEADS) c->norm.gate = b;
    if (z->maker == NORM_ALL) {
        c->norm.residual = b;
        c->norm.sum = z->oddity == SUM_IN_PLACE ? b : joint_test_poison(j, QRN_F32, 2, flat);
        c->norm.out = z->oddity == OUT_IN_PLACE ? a : joint_test_poison(j, QRN_F32, 2, flat);
    }
    if (z->oddity == OUT_IS_MADE) c->product.out = qrn_tensor_slice(a, 1, 0, z->N);
}

static void make(struct joint_test *j, const struct row *z, struct call *c)
{
    const int64_t K = z->heads * z->d;
    const enum qrn_dtype x_type = z->type == QRN_BF16 ? QRN_BF16 : QRN_Q8_ACT;
    *c = (struct call){0};
    const struct qrn_tensor x = joint_test_poison(j, x_type, 2, (const int64_t[]){z->M, K});
    c->product.x = x;
    c->product.out = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){z->M, z->N});
    if (z->oddity == OTHER_X)
        c->product.x = joint_test_poison(j, x_type, 2, (const int64_t[]){z->M, K});
    make_weights(j, z, K, c);
    make_maker(j, z, K, x, c);
}

static void check_rows(const char *multiprocessors)
{
    struct joint_test j;
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", multiprocessors, 1), 0);
    joint_test_open(&j, 23);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct call c;
        make(&j, &rows[i], &c);
        joint_test_run(&j, record, &c, rows[i].n_saved, rows[i].why);
    }
    joint_test_close(&j);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

static void test_rows(void **state)
{
    (void)state;
    check_rows("3");
}

/* A block alone, which stores as well. */
static void test_one_block(void **state)
{
    (void)state;
    check_rows("1");
}

/* --- a norm and products of floats with it --- */

struct floats_row {
    enum qrn_dtype type;
    int64_t M, N[2], K;     /* N[1] 0: one product */
    enum qrn_dtype rounded; /* F32: none */
    enum oddity oddity;
    long n_saved;
    const char *why;
};

static const struct floats_row floats_rows[] = {
    {QRN_F32, 1, {256, 1}, 2048, QRN_Q8_ACT, NONE, 2, "a router and a gate"},
    {QRN_BF16, 1, {37, 0}, 1024, QRN_BF16, NONE, 1, "a warp's row"},
    {QRN_F16, 3, {6, 5}, 1280, QRN_Q8_ACT, NONE, 2, "three rows"},
    {QRN_F32, 4, {1, 0}, 128, QRN_F32, NO_WEIGHT, 1, "four rows, not rounded"},
    {QRN_F32, 1, {3, 2}, 8192, QRN_Q8_ACT, INFINITE, 2, "the longest, infinite"},
    {QRN_F32, 1, {1024, 0}, 128, QRN_Q8_ACT, NONE, 1, "the most weights"},
    {QRN_F32, 1, {1025, 0}, 128, QRN_Q8_ACT, NONE, 0, "too many weights"},
    {QRN_F32, 1, {5, 1025}, 128, QRN_Q8_ACT, NONE, 1, "too many in the second"},
    {QRN_F32, 5, {5, 0}, 256, QRN_Q8_ACT, NONE, 0, "five rows"},
    {QRN_F32, 1, {5, 0}, 1280, QRN_Q8_ACT, SUM_IN_PLACE, 0, "the sum in place"},
    {QRN_F32, 1, {5, 6}, 1280, QRN_Q8_ACT, OTHER_X, 1, "the second of another x"},
};

struct floats_call {
    struct qrn_rms_norm_args norm;
    struct qrn_matmul_args product[2];
    int n;
};

static void record_floats(struct joint_test *j, const void *context)
{
    const struct floats_call *c = context;
    qrn_encode_rms_norm(j->enc, &c->norm);
    for (int i = 0; i < c->n; i++) qrn_encode_matmul(j->enc, &c->product[i]);
}

static struct qrn_tensor random_floats(struct joint_test *j, enum qrn_dtype type, int64_t n,
                                       int64_t k)
{
    size_t i_type = 0;
    while (weight_types[i_type].dtype != type) i_type++;
    const struct qrn_tensor w = joint_test_poison(j, type, 2, (const int64_t[]){n, k});
    const size_t size = (size_t)qrn_dtype_info(type)->block_bytes;
    for (size_t i = 0; i < w.n_bytes / size; i++)
        random_block(&j->r, i_type, (uint8_t *)joint_test_at(j, w.data) + i * size);
    return w;
}

static void make_floats(struct joint_test *j, const struct floats_row *z, struct floats_call *c)
{
    const int64_t flat[] = {z->M, z->K};
    const struct qrn_tensor both =
        joint_test_filled(j, 1.0, 2, (const int64_t[]){z->M, 2 * z->K + 4});
    *c = (struct floats_call){.norm = {.x = qrn_tensor_slice(both, 1, 0, z->K),
                                       .residual = qrn_tensor_slice(both, 1, z->K, z->K),
                                       .sum = joint_test_poison(j, QRN_F32, 2, flat),
                                       .out = joint_test_poison(j, QRN_F32, 2, flat),
                                       .eps = 1e-6f},
                              .n = z->N[1] ? 2 : 1};
    if (z->oddity != NO_WEIGHT) c->norm.weight = joint_test_filled(j, 1.0, 1, &z->K);
    if (z->oddity == SUM_IN_PLACE) c->norm.sum = c->norm.residual;
    if (z->oddity == INFINITE) ((float *)joint_test_at(j, both.data))[z->K / 2] = INFINITY;
    if (z->rounded != QRN_F32) c->norm.rounded = joint_test_poison(j, z->rounded, 2, flat);
    for (int i = 0; i < c->n; i++)
        c->product[i] = (struct qrn_matmul_args){
            .w = random_floats(j, z->type, z->N[i], z->K),
            .x = i && z->oddity == OTHER_X ? joint_test_filled(j, 1.0, 2, flat) : c->norm.out,
            .out = joint_test_poison(j, QRN_F32, 2, (const int64_t[]){z->M, z->N[i]})};
}

static void test_floats(void **state)
{
    (void)state;
    struct joint_test j;
    joint_test_open(&j, 29);
    for (size_t i = 0; i < sizeof floats_rows / sizeof *floats_rows; i++) {
        struct floats_call c;
        make_floats(&j, &floats_rows[i], &c);
        joint_test_run(&j, record_floats, &c, floats_rows[i].n_saved, floats_rows[i].why);
    }
    joint_test_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_one_block),
                                       cmocka_unit_test(test_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
