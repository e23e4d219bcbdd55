/* SPDX-License-Identifier: MIT
 * l2_norm: every kernel against the reference, in place, strided, and every documented error. */
#include <math.h>

#include "support/op_test.h"

static const struct {
    int64_t n0, n1, d;
    float eps, scale, x;
    const char *why;
} cases[] = {
    {1, 1, 1, 1e-6f, 0.0f, 1.0f, "smallest; scale 0 is 1"},
    {1, 16, 128, 1e-6f, 0.08838835f, 1.0f, "decode: queries"},
    {67, 4, 128, 1e-6f, 0.08838835f, 1.0f, "so many that memory bounds them"},
    {129, 2, 252, 1e-6f, 1.0f, 1.0f, "many of nearly two pieces"},
    {90, 3, 128, 1e-6f, 1.0f, 1.0f, "many, not whole runs"},
    {3, 4, 17, 1e-6f, -2.0f, 1.0f, "no vector width divides 17"},
    {9, 1, 256, 0.0f, 1.0f, 1e-15f, "squares that float32 would flush"},
    {2, 3, 100, 1e-6f, 1.0f, 1e25f, "squares that float32 cannot hold"},
    {4, 2, 64, 1e-6f, 1.0f, 0.0f, "zeros"},
    {0, 2, 8, 1e-6f, 1.0f, 1.0f, "no rows"},
};

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_l2_norm);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t shape[] = {cases[i].n0, cases[i].n1, cases[i].d};
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_l2_norm_args a = {.x = mem_filled(&m, &r, (double)cases[i].x, 3, shape),
                                     .out = mem_tensor(&m, QRN_F32, 3, shape),
                                     .eps = cases[i].eps, .scale = cases[i].scale};
        op_test_same_bits(QRN_OP_l2_norm, &a, cases[i].why);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_l2_norm, &a, 1e-6, cases[i].why);
        a.out = a.x;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_l2_norm, &a, 1e-6, "in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {99};
    devices_open_for(&d, 2, QRN_OP_l2_norm);
    /* keys inside rows of [query | key | value] */
    const struct qrn_tensor fused = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 96});
    const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){6, 2, 30});
    const struct qrn_l2_norm_args a = {
        .x = qrn_tensor_split_last(qrn_tensor_slice(fused, 1, 40, 40), 2, 20),
        .out = qrn_tensor_slice(out, 2, 5, 20), .eps = 1e-6f, .scale = 1.0f};
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_l2_norm, &a, 1e-6, "strided rows");
    op_test_same_bits(QRN_OP_l2_norm, &a, "strided rows");
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
    const int64_t shape[] = {3, 17};
    const struct qrn_l2_norm_args good = {.x = mem_filled(&m, &r, 1.0, 2, shape),
                                          .out = mem_tensor(&m, QRN_F32, 2, shape), .eps = 1e-6f};
    struct qrn_l2_norm_args a = good;
    a.out = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_ARGUMENT, "l2_norm: out is missing");
    a = good;
    a.out.shape[1] = 16;
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_SHAPE,
                  "out.shape[1] is 16, wants 17 (that of x)");
    a = good;
    a.x.shape[1] = a.out.shape[1] = 0;
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_SHAPE, "rows of x have 0 elements");
    a = good;
    a.x.dtype = QRN_F16;
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_DTYPE, "x is f16, wants f32");
    a = good;
    a.out.dtype = QRN_F16;
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_DTYPE, "out is f16, wants f32");
    a = good;
    a.eps = NAN;
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_ARGUMENT, "eps is nan, wants 0 or more");
    a = good;
    a.scale = INFINITY;
    op_test_fails(dev, QRN_OP_l2_norm, &a, QRN_ERR_ARGUMENT, "scale is inf, wants a finite number");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
