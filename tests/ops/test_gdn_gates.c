/* SPDX-License-Identifier: MIT
 * gdn_gates: against the reference, at the ends of softplus, in place, strided. */
#include <math.h>

#include "support/op_test.h"

/* exp(A_log) spreads over decades: the largest values are twenty times the rms, and off by a few
 * units in their last place. */
#define TOLERANCE 5e-6

static struct qrn_gdn_gates_args make(struct mem *m, struct rng *r, int64_t T, int64_t H,
                                      double scale)
{
    const int64_t shape[] = {T, H};
    struct qrn_gdn_gates_args a = {
        .a = mem_filled(m, r, scale, 2, shape), .b = mem_filled(m, r, scale, 2, shape),
        .a_scale = mem_filled(m, r, 1.0, 1, &H), .dt_bias = mem_filled(m, r, 1.0, 1, &H),
        .g = mem_tensor(m, QRN_F32, 2, shape), .beta = mem_tensor(m, QRN_F32, 2, shape)};
    for (int64_t h = 0; h < H; h++)
        ((float *)a.a_scale.data)[h] = -expf(((float *)a.a_scale.data)[h]);
    return a;
}

static void test_reference(void **state)
{
    static const struct {
        int64_t T, H;
        double scale;
        const char *why;
    } cases[] = {
        {1, 32, 2.0, "decode"},   {70, 48, 2.0, "prefill"},       {3, 1, 1.0, "one head"},
        {5, 7, 30.0, "far ends"}, {4, 3, 100.0, "softplus of -300 is 0, of 300 is 300"},
        {0, 4, 1.0, "no tokens"},
    };
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_gates);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_gdn_gates_args a = make(&m, &r, cases[i].T, cases[i].H, cases[i].scale);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gdn_gates, &a, TOLERANCE, cases[i].why);
        op_test_same_bits(QRN_OP_gdn_gates, &a, cases[i].why);
        a.g = a.a;
        a.beta = a.b;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gdn_gates, &a, TOLERANCE, "in place");
        mem_free_all(&m);
    }
    struct mem m = {0};
    struct rng r = {50};
    struct qrn_gdn_gates_args a = make(&m, &r, 6, 4, 2.0);
    const struct qrn_tensor ba = mem_filled(&m, &r, 2.0, 2, (const int64_t[]){6, 9});
    a.b = qrn_tensor_slice(ba, 1, 0, 4);
    a.a = qrn_tensor_slice(ba, 1, 4, 4);
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_gdn_gates, &a, TOLERANCE,
                                  "two halves of one projection");
    mem_free_all(&m);
    devices_close(&d);
}

/* Each value by itself, from where softplus is exp to where it is the identity. */
static void test_relative(void **state)
{
    enum { T = 2048, H = 5 };
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {7};
    devices_open_for(&d, 2, QRN_OP_gdn_gates);
    struct qrn_gdn_gates_args a = make(&m, &r, T, H, 1.0);
    for (int64_t h = 0; h < H; h++) {
        ((float *)a.a_scale.data)[h] = -1.0f;
        ((float *)a.dt_bias.data)[h] = 0.0f;
    }
    for (int64_t i = 0; i < T * H; i++)
        ((float *)a.a.data)[i] = ((float *)a.b.data)[i] = (float)rng_uniform(&r, -85.0, 40.0);
    for (size_t j = 0; j < d.n; j++) {
        assert_int_equal(qrn_gdn_gates(d.dev[j], &a, NULL), QRN_OK);
        for (int64_t i = 0; i < T * H; i++) {
            const double x = (double)((float *)a.a.data)[i];
            const double g = -log1p(exp(x)), beta = 1.0 / (1.0 + exp(-x));
            assert_true(fabs((double)((float *)a.g.data)[i] - g) <= -g * 4e-7);
            assert_true(fabs((double)((float *)a.beta.data)[i] - beta) <= beta * 4e-7);
        }
    }
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
    const struct qrn_gdn_gates_args good = make(&m, &r, 3, 4, 1.0);
    struct qrn_gdn_gates_args a = good;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gdn_gates, &a, status, text); a = good
    a.b.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_gates: b is missing");
    a.a.n_dims = 1;
    a.a.stride[0] = 1;
    FAILS(QRN_ERR_SHAPE, "a has 1 dimensions, wants 2");
    a.beta.shape[1] = 3;
    FAILS(QRN_ERR_SHAPE, "beta.shape[1] is 3, wants 4 (that of a)");
    a.a_scale.shape[0] = 3;
    FAILS(QRN_ERR_SHAPE, "a_scale.shape[0] is 3, wants 4");
    a.dt_bias.shape[0] = 3;
    FAILS(QRN_ERR_SHAPE, "dt_bias.shape[0] is 3, wants 4");
    a.g.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "g is f16, wants f32");
    a.g = a.b;
    FAILS(QRN_ERR_ARGUMENT, "g overlaps b");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

/* NaN, infinities. */
static void test_no_numbers(void **state)
{
    static const float given[] = {NAN, INFINITY, -INFINITY};
    const int64_t shape[] = {1, 3};
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {9};
    devices_open_for(&d, 2, QRN_OP_gdn_gates);
    struct qrn_gdn_gates_args a = make(&m, &r, shape[0], shape[1], 1.0);
    for (int i = 0; i < 3; i++) {
        ((float *)a.a.data)[i] = ((float *)a.b.data)[i] = given[i];
        ((float *)a.a_scale.data)[i] = -2.0f;
    }
    for (size_t j = 0; j < d.n; j++) {
        const float *g = a.g.data, *beta = a.beta.data;
        assert_int_equal(qrn_gdn_gates(d.dev[j], &a, NULL), QRN_OK);
        assert_true(isnan(g[0]) && isnan(beta[0]));
        assert_true(g[1] == -INFINITY && beta[1] == 1.0f);
        assert_true(g[2] == 0.0f && beta[2] == 0.0f);
    }
    mem_free_all(&m);
    devices_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_relative),
        cmocka_unit_test(test_no_numbers),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
