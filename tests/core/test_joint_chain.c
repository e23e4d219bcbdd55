/* SPDX-License-Identifier: MIT
 * The joints of products from a mixer to the next one: to the bit what seven launches leave in memory. */
#include <stdlib.h>
#include <string.h>

#include "support/joint_weights.h"

enum oddity {
    NONE,
    NO_END,        /* a model's last layer: five steps */
    NO_RESIDUAL,   /* the first norm adds to nothing, so that the second one adds to another row */
    NORMED_STAYS,  /* the first norm's floats lie where nothing else does */
    SUM_APART,     /* the second norm's sum does not take the place of the residual stream */
    OTHER_STREAM,  /* the second norm adds to another row than the first one's sum */
    OUT_IS_STREAM, /* the first product writes the residual stream */
    MIDDLE_STAYS,  /* the third product's result lies apart from the first one's */
    HALF_OVER,     /* the third product's result lies over half of the first one's */
    OVER_WEIGHT,   /* the second product writes a norm's weight */
    GATED,         /* the first norm */
    TWO_TOKENS,
    OTHER_TYPE,   /* of the third product's weights */
    FLOAT_X,      /* the first product rounds its row itself */
    FLOAT_MIDDLE, /* gates times ups are not rounded */
    OTHER_X,      /* the last product meets another row than the norm's */
    OVER_MATRIX,  /* the second product writes the third one's weights */
    MADE_MATRIX   /* the last product's weights are made by a step before */
};

struct row {
    enum qrn_dtype dtype;
    int64_t mixed, d, ff,
        next; /* elements of the first row, the stream, gates; outputs of the last product */
    enum oddity oddity;
    long n_saved; /* launches */
    const char *why;
};

static const struct row rows[] = {
    {QRN_Q4_K, 512, 768, 1024, 1056, NONE, 6, "groups that blocks share"},
    {QRN_Q8_0, 640, 640, 896, 70, NONE, 6, "a last group of six rows"},
    {QRN_Q6_K, 256, 1024, 256, 32, NONE, 6, "fewer groups than blocks"},
    {QRN_Q4_0, 128, 5120, 128, 128, NONE, 6, "a stream of forty pieces"},
    {QRN_Q4_0, 128, 640, 3200, 128, NONE, 6, "more pieces than all threads take at once"},
    {QRN_Q4_0, 128, 6144, 128, 64, NONE, 6, "as long a stream as there may be"},
    {QRN_Q4_0, 128, 6272, 128, 64, NONE, 0, "a longer one"},
    {QRN_Q4_K, 512, 512, 512, 64, NONE, 0, "one that a warp norms"},
    {QRN_Q5_K, 256, 768, 512, 0, NO_END, 4, "the last layer"},
    {QRN_Q4_K, 256, 768, 512, 96, OTHER_TYPE, 0, "weights of two types"},
    {QRN_IQ4_NL, 256, 768, 512, 96, NONE, 0, "a type without a chain"},
};

/* With bf16 weights. */
static const struct row bf16_shapes[] = {
    {QRN_BF16, 512, 768, 1024, 1056, NONE, 6, "groups that blocks share"},
    {QRN_BF16, 192, 640, 896, 70, NONE, 6,
     "a first row of no whole pieces, a last group of six rows"},
    {QRN_BF16, 64, 1024, 256, 18, NONE, 6, "fewer groups than blocks, half a piece"},
    {QRN_BF16, 128, 6144, 128, 64, NONE, 6, "as long a stream as there may be"},
    {QRN_BF16, 128, 640, 6528, 128, NONE, 6, "more pieces than all threads take at once"},
};
static const struct row bf16_rows[] = {
    {QRN_BF16, 128, 6272, 128, 64, NONE, 0, "a longer stream than there may be"},
    {QRN_BF16, 512, 512, 512, 64, NONE, 0, "one that a warp norms"},
    {QRN_BF16, 256, 768, 416, 64, NONE, 0, "gates of no whole pieces"},
    {QRN_BF16, 200, 768, 512, 64, NONE, 0, "a row of no whole boxes"},
    {QRN_BF16, 256, 768, 512, 96, OVER_MATRIX, 0, "a product over a matrix"},
    {QRN_BF16, 256, 768, 512, 96, MADE_MATRIX, 6, "a matrix made before"},
};

/* With weights of either kind, whose type is put in. */
static const struct row oddities[] = {
    {0, 256, 768, 512, 0, NO_END, 4, "the last layer"},
    {0, 256, 768, 512, 96, NO_RESIDUAL, 4, "no residual stream"},
    {0, 256, 768, 512, 96, NORMED_STAYS, 4, "floats of the first norm"},
    {0, 256, 768, 512, 96, SUM_APART, 4, "a second sum elsewhere"},
    {0, 256, 768, 512, 96, OTHER_STREAM, 4, "another stream"},
    {0, 256, 768, 512, 96, OUT_IS_STREAM, 0, "the stream written by a product"},
    {0, 256, 768, 512, 96, MIDDLE_STAYS, 6, "both results of d stay"},
    {0, 256, 768, 512, 96, HALF_OVER, 0, "results that overlap"},
    {0, 256, 768, 512, 96, OVER_WEIGHT, 0, "a product over a norm's weight"},
    {0, 256, 768, 512, 96, GATED, 0, "a gated norm"},
    {0, 256, 768, 512, 96, TWO_TOKENS, 0, "two tokens"},
    {0, 256, 768, 512, 96, FLOAT_X, 0, "a row that the product rounds"},
    {0, 256, 768, 512, 96, FLOAT_MIDDLE, 0, "floats between products"},
    {0, 256, 768, 512, 96, OTHER_X, 4, "another row for the last product"},
};

struct call {
    struct qrn_matmul_args out, in, down, next;
    struct qrn_rms_norm_args mlp_norm, mixer_norm;
    struct qrn_silu_mul_args silu;
    struct qrn_cast_args made; /* of weights, before; or none */
    bool ends;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    if (c->made.x.n_dims) qrn_encode_cast(j->enc, &c->made);
    qrn_encode_matmul(j->enc, &c->out);
    qrn_encode_rms_norm(j->enc, &c->mlp_norm);
    qrn_encode_matmul(j->enc, &c->in);
    qrn_encode_silu_mul(j->enc, &c->silu);
    qrn_encode_matmul(j->enc, &c->down);
    if (c->ends) return;
    qrn_encode_rms_norm(j->enc, &c->mixer_norm);
    qrn_encode_matmul(j->enc, &c->next);
}

static struct qrn_tensor poison(struct joint_test *j, enum qrn_dtype dtype, int64_t n0, int64_t n1)
{
    return joint_test_poison(j, dtype, 2, (const int64_t[]){n0, n1});
}

static struct qrn_tensor filled(struct joint_test *j, int64_t n0, int64_t n1)
{
    return joint_test_filled(j, 1.0, 2, (const int64_t[]){n0, n1});
}

/* A product with n rows of new weights. */
static struct qrn_matmul_args product(struct joint_test *j, struct qrn_device *dev,
                                      enum qrn_dtype dtype, int64_t n, struct qrn_tensor x,
                                      struct qrn_tensor out)
{
    const int64_t k = x.shape[1];
    const bool in_rows = dtype == QRN_BF16;
    return (struct qrn_matmul_args){
        .w =
            in_rows ? joint_bf16(j, n, k) : joint_packed(j, dev, dtype, 2, (const int64_t[]){n, k}),
        .x = x,
        .out = out,
        .activation = in_rows ? QRN_ACT_BF16 : QRN_ACT_Q8,
        .layout = in_rows ? QRN_LAYOUT_ROWS : QRN_LAYOUT_PACKED};
}

/* A row that is there before, as products round it. */
static struct qrn_tensor rounded(struct joint_test *j, enum qrn_dtype dtype, int64_t T, int64_t n)
{
    return dtype == QRN_BF16 ? joint_bf16(j, T, n) : joint_rounded(j, T, n);
}

/* As a layer has them: results of d take turns at one place, norms add to the stream. */
static void make(struct joint_test *j, struct qrn_device *dev, const struct row *z, struct call *c)
{
    const int64_t T = z->oddity == TWO_TOKENS ? 2 : 1, d = z->d, ff = z->ff;
    const enum qrn_dtype down_type = z->oddity == OTHER_TYPE ? QRN_Q8_0 : z->dtype,
                         x = z->dtype == QRN_BF16 ? QRN_BF16 : QRN_Q8_ACT;
    const struct qrn_tensor normed = poison(j, QRN_F32, T, d), stream = filled(j, T, d), none = {0},
                            row = poison(j, x, T, d), made = poison(j, QRN_F32, T, 2 * ff);
    *c = (struct call){.ends = z->oddity == NO_END};
    c->out = product(j, dev, z->dtype, d, rounded(j, z->dtype, T, z->mixed), normed);
    c->mlp_norm = (struct qrn_rms_norm_args){.x = normed,
                                             .weight = joint_test_filled(j, 1.0, 1, &d),
                                             .residual = stream,
                                             .sum = stream,
                                             .eps = 1e-6f,
                                             .rounded = row};
    c->in = product(j, dev, z->dtype, 2 * ff, row, made);
    c->silu = (struct qrn_silu_mul_args){.gate = qrn_tensor_slice(made, 1, 0, ff),
                                         .up = qrn_tensor_slice(made, 1, ff, ff),
                                         .out = poison(j, x, T, ff)};
    c->down = product(j, dev, down_type, d, c->silu.out, normed);
    c->mixer_norm = c->mlp_norm;
    c->mixer_norm.weight = joint_test_filled(j, 1.0, 1, &d);
    c->mixer_norm.out = normed;
    if (!c->ends) c->next = product(j, dev, z->dtype, z->next, row, poison(j, QRN_F32, T, z->next));
    switch (z->oddity) {
    case NO_RESIDUAL:
        c->mlp_norm.residual = c->mlp_norm.sum = none;
        break;
    case NORMED_STAYS:
        c->mlp_norm.out = poison(j, QRN_F32, T, d);
        break;
    case SUM_APART:
        c->mixer_norm.sum = poison(j, QRN_F32, T, d);
        break;
    case OTHER_STREAM:
        c->mixer_norm.residual = filled(j, T, d);
        break;
    case OUT_IS_STREAM:
        c->mlp_norm.residual = normed;
        break;
    case MIDDLE_STAYS:
        c->down.out = c->mixer_norm.x = poison(j, QRN_F32, T, d);
        break;
    case HALF_OVER:
        c->down.out = c->mixer_norm.x = qrn_tensor_slice(poison(j, QRN_F32, T, 2 * d), 1, 0, d);
        c->out.out = c->mlp_norm.x =
            qrn_tensor_2d(QRN_F32, (float *)c->down.out.data + d / 2, 1, d);
        break;
    case OVER_WEIGHT:
        c->in.out = qrn_tensor_2d(QRN_F32, filled(j, T, 2 * ff).data, T, 2 * ff);
        c->silu.gate = qrn_tensor_slice(c->in.out, 1, 0, ff);
        c->silu.up = qrn_tensor_slice(c->in.out, 1, ff, ff);
        c->mlp_norm.weight = qrn_tensor_1d(QRN_F32, c->in.out.data, d);
        break;
    case GATED:
        c->mlp_norm.gate = filled(j, T, d);
        break;
    case FLOAT_X:
        c->out.x = filled(j, T, z->mixed);
        break;
    case FLOAT_MIDDLE:
        c->silu.out = c->down.x = poison(j, QRN_F32, T, ff);
        break;
    case OTHER_X:
        c->next.x = rounded(j, z->dtype, T, d);
        break;
    case OVER_MATRIX:
        c->in.out = qrn_tensor_2d(QRN_F32, c->down.w.data, T, 2 * ff);
        c->silu.gate = qrn_tensor_slice(c->in.out, 1, 0, ff);
        c->silu.up = qrn_tensor_slice(c->in.out, 1, ff, ff);
        break;
    case MADE_MATRIX:
        c->made.x = filled(j, z->next, d);
        c->made.out = c->next.w;
        break;
    default:
        break;
    }
}

static void run_rows(const struct row *z, size_t n)
{
    struct joint_test j;
    joint_test_open(&j, 8);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_non_null(dev);
    for (size_t i = 0; i < n; i++) {
        struct call c;
        make(&j, dev, &z[i], &c);
        joint_test_run(&j, record, &c, z[i].n_saved, z[i].why);
    }
    qrn_device_close(dev);
    joint_test_close(&j);
}

static void test_rows(void **state)
{
    (void)state;
    run_rows(rows, sizeof rows / sizeof *rows);
}

static void test_bf16_rows(void **state)
{
    (void)state;
    run_rows(bf16_rows, sizeof bf16_rows / sizeof *bf16_rows);
}

static void test_oddities(void **state)
{
    static const enum qrn_dtype types[] = {QRN_Q4_K, QRN_BF16};
    enum { N = sizeof oddities / sizeof *oddities };
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct row z[N];
        memcpy(z, oddities, sizeof z);
        for (int i = 0; i < N; i++) z[i].dtype = types[t];
        run_rows(z, N);
    }
}

/* Groups of 32 rows; of 16, where there are more multiprocessors than groups of 32 rows of the stream; more than groups
 * of 16. */
static void test_bf16_shapes(void **state)
{
    static const char *const n_multiprocessors[] = {"4", "27", "53"};
    (void)state;
    for (size_t i = 0; i < sizeof n_multiprocessors / sizeof *n_multiprocessors; i++) {
        assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors[i], 1), 0);
        run_rows(bf16_shapes, sizeof bf16_shapes / sizeof *bf16_shapes);
    }
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

/* One chain after the other: what they exchange is cleared for the next one, which has more of it or less. */
static void record_several(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    for (int i = 0; i < 6; i++) record(j, &c[i % 3]);
}

static void test_several(void **state)
{
    (void)state;
    static const struct row some[] = {{QRN_Q4_K, 256, 768, 512, 96, NONE, 0, ""},
                                      {QRN_Q8_0, 256, 640, 128, 0, NO_END, 0, ""},
                                      {QRN_BF16, 256, 896, 768, 64, NONE, 0, ""}};
    struct joint_test j;
    struct call c[3];
    joint_test_open(&j, 9);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_non_null(dev);
    for (int i = 0; i < 3; i++) make(&j, dev, &some[i], &c[i]);
    joint_test_run(&j, record_several, c, 2 * (6 + 4 + 6), "three chains, twice");
    qrn_device_close(dev);
    joint_test_close(&j);
}

/* One that multiplies, copies, adds, or stores. */
static void test_slow_warps(void **state)
{
    static const char *const warps[] = {"0", "11", "12", "13", "14"};
    static const struct row some[] = {{QRN_Q4_K, 512, 768, 1024, 1056, NONE, 6, "a slow warp"},
                                      {QRN_BF16, 512, 768, 1024, 1056, NONE, 6, "the same, bf16"}};
    (void)state;
    for (size_t i = 0; i < sizeof warps / sizeof *warps; i++) {
        assert_int_equal(setenv("QRN_EMULATED_SLOW_WARP", warps[i], 1), 0);
        run_rows(some, sizeof some / sizeof *some);
    }
    assert_int_equal(unsetenv("QRN_EMULATED_SLOW_WARP"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_bf16_rows),
        cmocka_unit_test(test_oddities), cmocka_unit_test(test_bf16_shapes),
        cmocka_unit_test(test_several),  cmocka_unit_test(test_slow_warps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
