/* SPDX-License-Identifier: MIT
 * argmax and top_k: every kernel against the reference, ties, NaN, and every documented error. */
#include <math.h>

#include "support/op_test.h"

static const struct {
    int64_t n_rows, n, k;
    int64_t n_values; /* how many different values: few make many ties */
    const char *why;
} cases[] = {
    {1, 1, 1, 2, "smallest"},
    {1, 5000, 40, 1 << 20, "a vocabulary"},
    {3, 17, 17, 5, "all of a row, ties"},
    {9, 100, 7, 3, "more ties than k"},
    {2, 65, 64, 1, "nothing but ties"},
    {5, 33, 1, 1000, "one"},
    {0, 8, 2, 8, "no rows"},
    {2, 9001, 3, 4, "rows in parts, ties"},
};

/* Some values are NaN or infinite. */
static struct qrn_top_k_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t shape[] = {cases[i].n_rows, cases[i].n}, of_k[] = {cases[i].n_rows, cases[i].k};
    const struct qrn_tensor x = mem_tensor(m, QRN_F32, 2, shape);
    for (int64_t e = 0; e < cases[i].n_rows * cases[i].n; e++) {
        const int64_t dice = rng_below(r, 60);
        const float value = (float)(rng_below(r, cases[i].n_values) - cases[i].n_values / 2);
        ((float *)x.data)[e] = dice == 0   ? NAN
                               : dice == 1 ? -INFINITY
                               : dice == 2 ? INFINITY
                                           : value;
    }
    return (struct qrn_top_k_args){x, mem_tensor(m, QRN_I32, 2, of_k),
                                   mem_tensor(m, QRN_F32, 2, of_k)};
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_top_k);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_top_k_args a = make(&m, &r, i);
        struct qrn_argmax_args b = {a.x, mem_tensor(&m, QRN_I32, 1, &cases[i].n_rows),
                                    mem_tensor(&m, QRN_F32, 1, &cases[i].n_rows)};
        op_test_same_bits(QRN_OP_top_k, &a, cases[i].why);
        op_test_same_bits(QRN_OP_argmax, &b, cases[i].why);
        for (int values = 1; values >= 0; values--) {
            for (size_t j = 0; j < d.n; j++) {
                op_test_against_reference(d.dev[j], QRN_OP_top_k, &a, 0.0, cases[i].why);
                op_test_against_reference(d.dev[j], QRN_OP_argmax, &b, 0.0, cases[i].why);
            }
            a.values = b.values = (struct qrn_tensor){0};
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
    struct rng r = {50};
    devices_open_for(&d, 2, QRN_OP_top_k);
    const struct qrn_tensor x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 50});
    const struct qrn_tensor ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){6, 9});
    const struct qrn_tensor values = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 11});
    const struct qrn_top_k_args a = {qrn_tensor_slice(x, 1, 3, 40), qrn_tensor_slice(ids, 1, 1, 6),
                                     qrn_tensor_slice(values, 1, 2, 6)};
    const struct qrn_argmax_args b = {a.x, mem_tensor(&m, QRN_I32, 1, a.x.shape), {0}};
    for (size_t j = 0; j < d.n; j++) {
        op_test_against_reference(d.dev[j], QRN_OP_top_k, &a, 0.0, "strided");
        op_test_against_reference(d.dev[j], QRN_OP_argmax, &b, 0.0, "strided");
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_nothing_but_nan(void **state)
{
    (void)state;
    struct qrn_device *dev;
    float x[40], value = 0.0f;
    int32_t id = 7;
    for (int i = 0; i < 40; i++) x[i] = NAN;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_argmax_args a = {qrn_tensor_2d(QRN_F32, x, 1, 40),
                                      qrn_tensor_1d(QRN_I32, &id, 1),
                                      qrn_tensor_1d(QRN_F32, &value, 1)};
    assert_int_equal(qrn_argmax(dev, &a, NULL), QRN_OK);
    assert_int_equal(id, 0);
    assert_true(isnan(value));
    x[33] = -INFINITY;
    assert_int_equal(qrn_argmax(dev, &a, NULL), QRN_OK);
    assert_int_equal(id, 33);
    qrn_device_close(dev);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_top_k_args good = make(&m, &r, 3);
    struct qrn_top_k_args a = good;
    a.x = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_ARGUMENT, "top_k: x is missing");
    a = good;
    a.x.shape[1] = 6;
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_SHAPE, "ids.shape[1] is 7, wants 1 to 6");
    a = good;
    a.ids.shape[1] = a.values.shape[1] = 0;
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_SHAPE, "ids.shape[1] is 0, wants 1 to 100");
    a = good;
    a.ids.shape[0] = 8;
    a.values.shape[0] = 8;
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_SHAPE, "ids.shape[0] is 8, wants 9");
    a = good;
    a.values.shape[1] = 6;
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_SHAPE,
                  "values.shape[1] is 6, wants 7 (that of ids)");
    a = good;
    a.ids.dtype = QRN_F32;
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_DTYPE, "ids is f32, wants i32");
    a = good;
    a.values.dtype = QRN_I32;
    op_test_fails(dev, QRN_OP_top_k, &a, QRN_ERR_DTYPE, "values is i32, wants f32");

    const struct qrn_argmax_args good_b = {good.x, mem_tensor(&m, QRN_I32, 1, good.x.shape), {0}};
    struct qrn_argmax_args b = good_b;
    b.x.shape[1] = 0;
    op_test_fails(dev, QRN_OP_argmax, &b, QRN_ERR_SHAPE,
                  "argmax: x.shape[1] is 0, wants 1 to 2147483647");
    b = good_b;
    b.x.dtype = QRN_F16;
    op_test_fails(dev, QRN_OP_argmax, &b, QRN_ERR_DTYPE, "x is f16, wants f32");
    b = good_b;
    b.x.n_dims = 1;
    b.x.stride[0] = 1;
    op_test_fails(dev, QRN_OP_argmax, &b, QRN_ERR_SHAPE, "x has 1 dimensions, wants 2");
    b = good_b;
    b.ids.shape[0] = 8;
    op_test_fails(dev, QRN_OP_argmax, &b, QRN_ERR_SHAPE, "ids.shape[0] is 8, wants 9");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_nothing_but_nan),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
