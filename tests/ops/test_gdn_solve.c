/* SPDX-License-Identifier: MIT
 * gdn_solve: against the reference; in place; the inverse times I + A. */
#include <math.h>
#include <string.h>

#include "support/gdn_stages.h"

static void test_reference(void **state)
{
    (void)state;
    /* sixty-four steps of substitution */
    stages_test(QRN_OP_gdn_solve, offsetof(struct stages, solve), 5e-6, 5e-6);
}

static void test_in_place(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct stages s;
    devices_open_for(&d, 2, QRN_OP_gdn_solve);
    stages_make(&s, &m, &stages_cases[2], 1);
    stages_run(&s, d.dev[0]);
    s.solve.inverse = s.solve.A;
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_gdn_solve, &s.solve, 5e-6, "in place");
    devices_close(&d);
    mem_free_all(&m);
}

/* Zero gives the identity; keys that are all the same, with beta near 1, stay finite. */
static void test_ends(void **state)
{
    (void)state;
    enum { C = QRN_GDN_CHUNK };
    struct devices d;
    struct mem m = {0};
    devices_open_for(&d, 1, QRN_OP_gdn_solve);
    const int64_t shape[] = {C, 1, C};
    const struct qrn_gdn_solve_args a = {.A = mem_tensor(&m, QRN_F32, 3, shape),
                                         .inverse = mem_tensor(&m, QRN_F32, 3, shape)};
    float *A = a.A.data, *X = a.inverse.data;
    for (size_t j = 0; j < d.n; j++) {
        for (int i = 0; i < C * C; i++) A[i] = i % C >= i / C ? NAN : 0.0f; /* what is not read */
        assert_int_equal(qrn_gdn_solve(d.dev[j], &a, NULL), QRN_OK);
        for (int i = 0; i < C * C; i++) assert_true(X[i] == (i / C == i % C ? 1.0f : 0.0f));
        for (int i = 0; i < C * C; i++) A[i] = i % C < i / C ? 1.0f : 0.0f;
        assert_int_equal(qrn_gdn_solve(d.dev[j], &a, NULL), QRN_OK);
        for (int i = 0; i < C * C; i++) /* of ones below the diagonal: a difference of neighbours */
            assert_true(X[i] == (i / C == i % C ? 1.0f : i / C == i % C + 1 ? -1.0f : 0.0f));
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct stages s;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    stages_make(&s, &m, &stages_cases[2], 1);
    struct qrn_gdn_solve_args a = s.solve;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gdn_solve, &a, status, text); a = s.solve
    a.inverse.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_solve: inverse is missing");
    a.A.shape[2] = 32;
    FAILS(QRN_ERR_SHAPE, "A.shape[2] is 32, wants 64");
    a.A.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "A is bf16, wants f32");
    a.inverse.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "inverse is f16, wants f32");
    a.inverse.shape[0] = 100;
    FAILS(QRN_ERR_SHAPE, "inverse.shape[0] is 100, wants 200 (that of A)");
    a.inverse = a.A;
    a.inverse.data = (float *)a.A.data - 1;
    FAILS(QRN_ERR_ARGUMENT, "inverse overlaps A");
    s.seq_begin[4] = 199;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[4] is 199, wants 200 (the tokens)");
    s.seq_begin[4] = 200;
    s.seq_begin[1] = 100;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[2] is 50, wants 100 or more");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
