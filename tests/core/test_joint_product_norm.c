/* SPDX-License-Identifier: MIT
 * The joints of a product in parts of k, of bf16 or of packed weights, and the rms_norm behind it: to the bit what three
 * launches leave in memory. */
#include <stdlib.h>

#include "base/half.h"
#include "support/joint_weights.h"

enum oddity {
    NONE,
    IN_PLACE, /* the norm writes over what it reads */
    STREAM,   /* a residual stream, in place, as models have it */
    NO_WEIGHT,
    GATED,   /* a gate: no joint */
    COPY,    /* the norm is of another tensor: no joint */
    OVER_X,  /* the norm writes over the product's x: no joint */
    FEW_ROWS, /* another kernel's product: no joint */
    SHARES    /* tiles that are not cut alike: no joint */
};

struct row {
    int64_t n_rows, d, k;
    enum qrn_dtype rounded; /* F32: none */
    enum oddity oddity;
    const char *n_multiprocessors, *why;
    enum qrn_dtype weights; /* F32, which is the first: bf16 ones */
};

static const struct row rows[] = {
    {64, 640, 2048, QRN_BF16, STREAM, "70", "thirteen parts"},
    {34, 1152, 2056, QRN_Q8_ACT, NONE, "40", "four parts; nothing else"},
    {33, 2052, 2048, QRN_BF16, IN_PLACE, "36", "two parts, two pieces of a warp's; in place"},
    {33, 4228, 2048, QRN_BF16, STREAM, "102", "three parts, three pieces"},
    {34, 1024, 2112, QRN_F32, NO_WEIGHT, "34", "no weight, nothing rounded"},
    {35, 516, 2048, QRN_F32, STREAM, "35", "as many rows as multiprocessors"},
    {36, 516, 2048, QRN_F32, STREAM, "35", "more rows than multiprocessors: no joint"},
    {34, 512, 2048, QRN_F32, NONE, "40", "rows of a warp: no joint"},
    {34, 516, 2048, QRN_F32, GATED, "40", "a gate"},
    {34, 516, 2048, QRN_F32, COPY, "40", "of another tensor"},
    {33, 2048, 2048, QRN_F32, OVER_X, "34", "over the product's x"},
    {32, 516, 2048, QRN_F32, FEW_ROWS, "40", "few rows"},
    {64, 640, 2048, QRN_BF16, STREAM, "70", "packed, as many parts as panels", QRN_Q4_K},
    {33, 1152, 2304, QRN_BF16, STREAM, "42", "packed, eight parts of unequal length", QRN_Q8_0},
    {5, 1152, 1024, QRN_Q8_ACT, IN_PLACE, "27", "packed, few rows", QRN_Q4_0},
    {20, 1152, 2304, QRN_BF16, SHARES, "24", "packed, shares", QRN_Q8_0},
};

struct call {
    struct qrn_matmul_args product;
    struct qrn_rms_norm_args norm;
};

static void record(struct joint_test *j, const void *context)
{
    const struct call *c = context;
    qrn_encode_matmul(j->enc, &c->product);
    qrn_encode_rms_norm(j->enc, &c->norm);
}

static struct qrn_tensor bf16_weights(struct joint_test *j, int64_t n, int64_t k)
{
    const struct qrn_tensor t = joint_test_poison(j, QRN_BF16, 2, (const int64_t[]){n, k});
    uint16_t *at = joint_test_at(j, t.data);
    for (int64_t i = 0; i < n * k; i++)
        at[i] = qrn_float_to_bf16((float)(0.05 * rng_normal(&j->r)));
    return t;
}

static void make(struct joint_test *j, struct qrn_device *dev, const struct row *z, struct call *c)
{
    const int64_t out[] = {z->n_rows, z->d}, x[] = {z->n_rows, z->k};
    const bool packed = z->weights != QRN_F32;
    c->product = (struct qrn_matmul_args){.w = packed ? joint_packed(j, dev, z->weights, 2,
                                                                     (const int64_t[]){z->d, z->k})
                                                      : bf16_weights(j, z->d, z->k),
                                          .layout = packed ? QRN_LAYOUT_PACKED : QRN_LAYOUT_ROWS,
                                          .x = joint_test_filled(j, 1.0, 2, x),
                                          .out = joint_test_poison(j, QRN_F32, 2, out),
                                          .activation = QRN_ACT_BF16,
                                          .any_order = true};
    c->norm = (struct qrn_rms_norm_args){.x = c->product.out, .eps = 1e-6f};
    if (z->oddity != NO_WEIGHT) c->norm.weight = joint_test_filled(j, 1.0, 1, &z->d);
    if (z->rounded != QRN_F32) c->norm.rounded = joint_test_poison(j, z->rounded, 2, out);
    if (z->oddity == IN_PLACE) c->norm.out = c->norm.x;
    if (z->oddity == OVER_X) c->norm.out = c->product.x;
    if (z->oddity == STREAM) c->norm.residual = c->norm.sum = joint_test_filled(j, 1.0, 2, out);
    if (z->oddity == GATED) c->norm.gate = joint_test_filled(j, 1.0, 2, out);
    if (z->oddity == COPY) c->norm.x = joint_test_filled(j, 1.0, 2, out);
    if (!c->norm.out.n_dims && z->rounded == QRN_F32)
        c->norm.out = joint_test_poison(j, QRN_F32, 2, out);
}

static bool is_joined(const struct row *z)
{
    return z->oddity < GATED && z->d > 512 && z->n_rows <= atoi(z->n_multiprocessors);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct joint_test j;
        struct call c;
        struct qrn_device *dev = joint_test_open_packing(&j, i, rows[i].n_multiprocessors);
        make(&j, dev, &rows[i], &c);
        qrn_device_close(dev);
        joint_test_run(&j, record, &c, is_joined(&rows[i]) ? 1 : 0, rows[i].why);
        joint_test_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
