/* SPDX-License-Identifier: MIT
 * moe_combine: every kernel against the reference, alone and among others, every
 * documented error. */
#include <math.h>

#include "support/op_test.h"

static const struct {
    int64_t n_tokens, top_k, d;
    bool shared, gate;
    const char *why;
} cases[] = {
    {1, 1, 1, false, false, "smallest"},
    {1, 8, 2048, true, true, "decode"},
    {7, 10, 100, true, true, "several tokens"},
    {5, 3, 17, true, false, "shared without a gate; no width divides 17"},
    {3, 2, 65, false, false, "no shared expert"},
    {0, 4, 32, true, true, "no tokens"},
};

static struct qrn_moe_combine_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t n = cases[i].n_tokens, k = cases[i].top_k, d = cases[i].d;
    struct qrn_moe_combine_args a = {
        .experts = mem_filled(m, r, 1.0, 3, (const int64_t[]){n, k, d}),
        .weights = mem_filled(m, r, 0.5, 2, (const int64_t[]){n, k}),
        .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n, d}),
    };
    if (cases[i].shared) a.shared = mem_filled(m, r, 1.0, 2, (const int64_t[]){n, d});
    if (cases[i].gate) a.shared_gate = mem_filled(m, r, 2.0, 2, (const int64_t[]){n, 1});
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_moe_combine);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_moe_combine_args a = make(&m, &r, i);
        op_test_same_bits(QRN_OP_moe_combine, &a, cases[i].why);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_moe_combine, &a, 1e-6, cases[i].why);
        if (cases[i].gate) { /* the gate as one dimension; the result in place */
            a.shared_gate.n_dims = 1;
            a.shared_gate.stride[0] = 1;
            a.out = a.shared;
            for (size_t j = 0; j < d.n; j++)
                op_test_against_reference(d.dev[j], QRN_OP_moe_combine, &a, 1e-6, "in place");
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
    devices_open_for(&d, 2, QRN_OP_moe_combine);
    const struct qrn_tensor experts = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){4, 6, 70});
    const struct qrn_tensor weights = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 9});
    const struct qrn_tensor shared = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 80});
    const struct qrn_tensor gate = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 3});
    const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 61});
    const struct qrn_moe_combine_args a = {
        .experts = qrn_tensor_slice(qrn_tensor_slice(experts, 1, 2, 3), 2, 11, 50),
        .weights = qrn_tensor_slice(weights, 1, 1, 3), .shared = qrn_tensor_slice(shared, 1, 7, 50),
        .shared_gate = qrn_tensor_slice(gate, 1, 2, 1), .out = qrn_tensor_slice(out, 1, 4, 50)};
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_moe_combine, &a, 1e-6, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

/* A token alone has the bits that it has among others. */
static void test_tokens_are_alone(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {51};
    devices_open_for(&d, 2, QRN_OP_moe_combine);
    const struct qrn_moe_combine_args a = make(&m, &r, 2);
    const struct qrn_tensor row = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){1, cases[2].d});
    for (size_t j = 0; j < d.n; j++) {
        assert_int_equal(qrn_moe_combine(d.dev[j], &a, NULL), QRN_OK);
        for (int64_t t = 0; t < cases[2].n_tokens; t++) {
            const struct qrn_moe_combine_args one = {
                .experts = qrn_tensor_slice(a.experts, 0, t, 1),
                .weights = qrn_tensor_slice(a.weights, 0, t, 1),
                .shared = qrn_tensor_slice(a.shared, 0, t, 1),
                .shared_gate = qrn_tensor_slice(a.shared_gate, 0, t, 1), .out = row};
            assert_int_equal(qrn_moe_combine(d.dev[j], &one, NULL), QRN_OK);
            assert_memory_equal(row.data, (float *)a.out.data + t * cases[2].d, row.n_bytes);
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    const enum qrn_op_id id = QRN_OP_moe_combine;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_moe_combine_args good = make(&m, &r, 2);
    struct qrn_moe_combine_args a = good;
    a.weights = (struct qrn_tensor){0};
    op_test_fails(dev, id, &a, QRN_ERR_ARGUMENT, "moe_combine: weights is missing");
    a = good;
    a.weights.shape[1] = 9;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "weights.shape[1] is 9, wants 10");
    a = good;
    a.experts.shape[1] = 0;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "experts.shape[1] is 0, wants 1 or more");
    a = good;
    a.experts.n_dims = 2;
    a.experts.stride[1] = 1;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "experts has 2 dimensions, wants 3");
    a = good;
    a.out.shape[1] = 99;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "out.shape[1] is 99, wants 100");
    a = good;
    a.shared.shape[0] = 6;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "shared.shape[0] is 6, wants 7");
    a = good;
    a.shared_gate.shape[0] = 6;
    op_test_fails(dev, id, &a, QRN_ERR_SHAPE, "shared_gate.shape[0] is 6, wants 7");
    a = good;
    a.shared = (struct qrn_tensor){0};
    op_test_fails(dev, id, &a, QRN_ERR_ARGUMENT, "shared_gate is given, shared is missing");
    a = good;
    a.experts.dtype = QRN_F16;
    op_test_fails(dev, id, &a, QRN_ERR_DTYPE, "experts is f16, wants f32");
    a = good;
    a.out.data = a.experts.data;
    op_test_fails(dev, id, &a, QRN_ERR_ARGUMENT, "out overlaps experts");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_tokens_are_alone),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
