/* SPDX-License-Identifier: MIT
 * matmul of float32 weights in rows with many rows of float32 x on a GPU, real or emulated, in any order, where
 * cuda.matmul.floats multiplies parts of floats: as near the reference as other products of floats. */
#include <math.h>
#include <stdio.h>

#include "support/matmul_gpu.h"

static const char kernel[] = "cuda.matmul.floats";

static const struct {
    int64_t m, n, k, more; /* more: elements between rows of x, of weights and of out */
    const char *why;
} cases[] = {
    {129, 16, 64, 0, "one step"},
    {130, 64, 192, 4, "narrow tiles, rows apart"},
    {200, 65, 128, 0, "wide tiles that end early"},
    {192, 256, 256, 8, "whole tiles"},
    {129, 40, 2048, 0, "long rows"},
};

/* So many rows on an emulated GPU with four multiprocessors; on a real one, which may have 132, more, so that its work is as
 * much. */
static int64_t rows_of(int64_t n)
{
    return op_test_gpu_is_real() ? 33 * n : n;
}

static struct qrn_tensor apart(struct mem *m, struct rng *r, int64_t n_rows, int64_t n,
                               int64_t more)
{
    return qrn_tensor_slice(mem_filled(m, r, 1.0, 2, (const int64_t[]){n_rows, n + more}), 1, 0, n);
}

static void run(struct qrn_device *dev, const struct qrn_matmul_args *a, const char *what)
{
    struct qrn_error err;
    assert_true(matmul_kernel(dev, kernel)->supports(a));
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), a, &err) != QRN_OK)
        fail_msg("%s: %s", what, err.text);
}

/* Whether the form is taken: in one order there are other bits. */
static void check_form(struct mem *m, struct qrn_device *dev, const struct qrn_matmul_args *a,
                       const char *what)
{
    struct qrn_matmul_args b = *a, c = *a;
    const int64_t shape[] = {a->x.shape[0], a->w.shape[0]};
    b.out = mem_tensor(m, QRN_F32, 2, shape);
    c.out = mem_tensor(m, QRN_F32, 2, shape);
    c.any_order = false;
    run(dev, &b, what);
    run(dev, &c, what);
    if (memcmp(b.out.data, c.out.data, b.out.n_bytes) == 0) fail_msg("%s: another form", what);
}

static void test_cases(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", kernel);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mem m = {0};
        struct rng r = {c};
        const int64_t n_rows = rows_of(cases[c].m), n = cases[c].n, k = cases[c].k,
                      more = cases[c].more;
        const struct qrn_matmul_args a = {.w = apart(&m, &r, n, k, more),
                                          .x = apart(&m, &r, n_rows, k, more),
                                          .out = apart(&m, &r, n_rows, n, more),
                                          .any_order = true};
        check_form(&m, dev, &a, cases[c].why);
        op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, cases[c].why);
        op_test_same_bits(QRN_OP_matmul, &a, cases[c].why);
        mem_free_all(&m);
    }
    qrn_device_close(dev);
}

/* Numbers of all sizes, whose parts are of all sizes; a row with an infinity and one with a NaN. */
static void test_numbers(void **state)
{
    (void)state;
    enum { N = 16, K = 128 };
    const int64_t M = rows_of(129);
    struct qrn_device *dev = matmul_device("4", kernel);
    struct mem m = {0};
    struct rng r = {7};
    const struct qrn_matmul_args a = {.w = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){N, K}),
                                      .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){M, K}),
                                      .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){M, N}),
                                      .any_order = true};
    float *x = a.x.data, *out = a.out.data;
    const float *w = a.w.data;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < K; j++)
            x[i * K + j] = j == i % K ? ldexpf(x[i * K + j], (int)(i % 129) - 64) : 0.0f;
    x[3 * K + 5] = INFINITY;
    x[4 * K + 6] = NAN;
    run(dev, &a, "numbers");
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            const double want = (double)x[i * K + i % K] * (double)w[j * K + i % K];
            const float got = out[i * N + j];
            if (i == 3 || i == 4)
                assert_false(isfinite(got));
            else if (!(fabs(got - want) <= 1e-6 * fabs(want)))
                fail_msg("%g for %g", (double)got, want);
        }
    mem_free_all(&m);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
