/* SPDX-License-Identifier: MIT
 * softmax: masks of every type and breadth, rows of -inf, in place, and every error. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

static const struct {
    int64_t n0, n1, n2, n;
    int mask_dims;
    enum qrn_dtype mask_type;
    float scale;
    double spread;
    const char *why;
} cases[] = {
    {1, 1, 1, 1, 0, 0, 1, 1, "smallest"},
    {2, 3, 4, 33, 0, 0, 0.125f, 5, "no mask"},
    {1, 2, 5, 100, 2, QRN_F32, 1, 4, "mask shared by heads"},
    {2, 2, 5, 17, 3, QRN_BF16, 0.5f, 4, "mask per head"},
    {1, 2, 3, 64, 4, QRN_F16, 1, 4, "mask of all dimensions"},
    {1, 1, 7, 9, 1, QRN_F32, 1, 1, "one mask row"},
    {1, 1, 2, 1000, 0, 0, -2, 30, "long, sharp, negative scale"},
    {1, 1, 0, 9, 0, 0, 1, 1, "no rows"},
    {1, 1, 3, 0, 0, 0, 1, 1, "rows of nothing"},
};

static struct qrn_softmax_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t shape[] = {cases[i].n0, cases[i].n1, cases[i].n2, cases[i].n};
    struct qrn_softmax_args a = {.x = mem_filled(m, r, cases[i].spread, 4, shape),
                                 .out = mem_tensor(m, QRN_F32, 4, shape),
                                 .scale = cases[i].scale};
    if (cases[i].mask_dims == 0) return a;
    a.mask = mem_tensor(m, cases[i].mask_type, cases[i].mask_dims, shape + 4 - cases[i].mask_dims);
    for (int64_t e = 0; e < qrn_tensor_n_elements(&a.mask); e++) {
        const bool masked = rng_below(r, 3) == 0 || e / cases[i].n == 1; /* the second row: all */
        qrn_ref_set_flat(&a.mask, e, masked ? -INFINITY : rng_normal(r));
    }
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_softmax);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_softmax_args a = make(&m, &r, i);
        for (size_t j = 0; j < d.n;
             j++) /* half a unit of a score of spread x 4 moves exp as much */
            op_test_against_reference(d.dev[j], QRN_OP_softmax, &a, 2e-6 * (1 + cases[i].spread),
                                      cases[i].why);
        op_test_same_bits(QRN_OP_softmax, &a, cases[i].why);
        a.out = a.x;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_softmax, &a, 2e-6 * (1 + cases[i].spread),
                                      "in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_infinities(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_softmax);
    for (size_t j = 0; j < d.n; j++) {
        struct mem m = {0};
        float(*x)[40] = mem_guarded(&m, 3 * sizeof *x), (*out)[40] = mem_guarded(&m, 3 * sizeof *x);
        for (int i = 0; i < 40; i++) {
            x[0][i] = -INFINITY;
            x[1][i] = i == 37 ? 5.0f : -INFINITY;
            x[2][i] = -3e38f;
        }
        const struct qrn_softmax_args a = {.x = qrn_tensor_2d(QRN_F32, x, 3, 40),
                                           .out = qrn_tensor_2d(QRN_F32, out, 3, 40),
                                           .scale = 1};
        assert_int_equal(qrn_softmax(d.dev[j], &a, NULL), QRN_OK);
        for (int i = 0; i < 40; i++) {
            assert_true(out[0][i] == 0.0f);
            assert_true(out[1][i] == (i == 37 ? 1.0f : 0.0f));
            assert_true(fabsf(out[2][i] - 0.025f) < 1e-8f);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {9};
    devices_open_for(&d, 2, QRN_OP_softmax);
    const struct qrn_tensor x = mem_filled(&m, &r, 2.0, 2, (const int64_t[]){6, 50}),
                            out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 50}),
                            mask = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 30});
    const struct qrn_softmax_args a = {.x = qrn_tensor_slice(x, 1, 3, 21),
                                       .scale = 0.7f,
                                       .out = qrn_tensor_slice(out, 1, 29, 21),
                                       .mask = qrn_tensor_slice(mask, 1, 9, 21)};
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_softmax, &a, 4e-6, "strided rows");
    devices_close(&d);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_softmax_args good = make(&m, &r, 2);
    struct qrn_softmax_args a = good;
    a.x = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_softmax, &a, QRN_ERR_ARGUMENT, "softmax: x is missing");
    a = good;
    a.out.shape[3] = 99;
    op_test_fails(dev, QRN_OP_softmax, &a, QRN_ERR_SHAPE,
                  "out.shape[3] is 99, wants 100 (that of x)");
    a = good;
    a.mask.shape[1] = 99;
    op_test_fails(dev, QRN_OP_softmax, &a, QRN_ERR_SHAPE,
                  "mask.shape[1] is 99, wants 100 (that of x.shape[3])");
    a = good;
    a.x = a.out = qrn_tensor_1d(QRN_F32, good.x.data, 100);
    op_test_fails(dev, QRN_OP_softmax, &a, QRN_ERR_SHAPE, "mask has 2 dimensions, x has 1");
    a = good;
    a.mask.dtype = QRN_I32;
    op_test_fails(dev, QRN_OP_softmax, &a, QRN_ERR_DTYPE, "mask is i32, wants f32 or f16 or bf16");
    a = good;
    a.scale = NAN;
    op_test_fails(dev, QRN_OP_softmax, &a, QRN_ERR_ARGUMENT, "scale is nan, wants a finite number");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_infinities),
        cmocka_unit_test(test_strided), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
