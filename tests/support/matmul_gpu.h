/* SPDX-License-Identifier: MIT
 * What tests of a GPU's single product kernels share. */
#ifndef QUERN_TESTS_MATMUL_GPU_H
#define QUERN_TESTS_MATMUL_GPU_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/weights.h"

/* The kernel of that name; NULL where the device has none. */
static inline const struct qrn_kernel *matmul_kernel(struct qrn_device *dev, const char *name)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul, i)) != NULL; i++)
        if (strcmp(k->name, name) == 0) return k;
    return NULL;
}

/* A GPU that has it, an emulated one with so many multiprocessors; skips the test without. */
static inline struct qrn_device *matmul_device(const char *n_multiprocessors, const char *name)
{
    setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    if (!dev || !matmul_kernel(dev, name)) skip();
    return dev;
}

/* x as bf16, where it can be mapped and where it cannot, with rows of out further apart: the bits of a->out. */
static inline void matmul_check_strides(struct mem *m, struct qrn_device *dev, const char *name,
                                        const struct qrn_matmul_args *a, const char *what)
{
    const int64_t n_rows = a->x.shape[0], k = a->x.shape[1], n = a->out.shape[1];
    struct qrn_matmul_args b = *a;
    struct qrn_error err;
    for (int64_t more = 3; more <= 8; more += 5) {
        const struct qrn_tensor wide =
            mem_tensor(m, QRN_BF16, 2, (const int64_t[]){n_rows, k + more});
        const struct qrn_cast_args cast = {a->x, qrn_tensor_slice(wide, 1, more, k)};
        if (qrn_cast(dev, &cast, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        b.x = cast.out;
        b.out = qrn_tensor_slice(mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n + more}), 1,
                                 1, n);
        for (int64_t r = 0; r < n_rows; r++)
            memset((float *)b.out.data + r * (n + more), 0xff, (size_t)n * sizeof(float));
        if (qrn_kernel_run(dev, matmul_kernel(dev, name), &b, &err) != QRN_OK)
            fail_msg("%s: %s", what, err.text);
        for (int64_t r = 0; r < n_rows; r++)
            assert_memory_equal((const float *)b.out.data + r * (n + more),
                                (const float *)a->out.data + r * n, (size_t)n * sizeof(float));
    }
}

enum { MATMUL_BF16_WEIGHTS = 2 }; /* in weight_types */

/* A product of n rows of k bf16 weights with n_rows of x, rounded to bf16, in any order. */
static inline struct qrn_matmul_args matmul_of_bf16(struct mem *m, struct rng *r, int64_t n_rows,
                                                    int64_t n, int64_t k)
{
    return (struct qrn_matmul_args){
        .w = random_weights(m, r, MATMUL_BF16_WEIGHTS, 2, (const int64_t[]){n, k}, 32, QRN_F32).w,
        .x = mem_filled(m, r, 1.0, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
        .activation = QRN_ACT_BF16,
        .any_order = true};
}

/* Such a product by the kernel of that name against the reference, and as matmul_check_strides has it. */
static inline void matmul_check_bf16(const char *name, const char *n_multiprocessors,
                                     int64_t n_rows, int64_t n, int64_t k)
{
    struct qrn_device *dev = matmul_device(n_multiprocessors, name);
    struct mem m = {0};
    struct rng r = {(uint64_t)(n_rows + n + k)};
    struct qrn_error err;
    const struct qrn_matmul_args a = matmul_of_bf16(&m, &r, n_rows, n, k);
    char what[96];
    (void)snprintf(what, sizeof what, "%s multiprocessors, M %d, N %d, K %d", n_multiprocessors,
                   (int)n_rows, (int)n, (int)k);
    assert_true(matmul_kernel(dev, name)->supports(&a));
    op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, what);
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_kernel_run(dev, matmul_kernel(dev, name), &a, &err) != QRN_OK)
        fail_msg("%s: %s", what, err.text);
    matmul_check_strides(&m, dev, name, &a, what);
    mem_free_all(&m);
    qrn_device_close(dev);
}

/* Rows first .. of 64 alone give the bits that they have among all, from run to run, too. */
static inline void matmul_check_slice_of_bf16(const char *name, const char *n_multiprocessors,
                                              int64_t first, int64_t n_rows, int64_t n, int64_t k)
{
    struct qrn_device *dev = matmul_device(n_multiprocessors, name);
    struct mem m = {0};
    struct rng r = {9};
    struct qrn_error err;
    struct qrn_matmul_args a = matmul_of_bf16(&m, &r, 64, n, k);
    op_test_same_bits(QRN_OP_matmul, &a, n_multiprocessors);
    if (qrn_kernel_run(dev, matmul_kernel(dev, name), &a, &err) != QRN_OK) fail_msg("%s", err.text);
    const struct qrn_tensor all = a.out;
    a.x = qrn_tensor_slice(a.x, 0, first, n_rows);
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, n});
    if (qrn_kernel_run(dev, matmul_kernel(dev, name), &a, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_memory_equal((const float *)all.data + first * n, a.out.data, a.out.n_bytes);
    mem_free_all(&m);
    qrn_device_close(dev);
}

static inline float matmul_rounded(float x)
{
    return qrn_bf16_to_float(qrn_float_to_bf16(x));
}

/* Squares of what results, and those of weights rounded to bf16 once, are off by: of all rows of x, or some where there are
 * so many products. */
struct matmul_distances {
    double of_results, of_rounding, of_all;
};

static inline struct matmul_distances matmul_distances_of(const struct weights *w,
                                                          const struct qrn_matmul_args *a)
{
    enum { MOST_K = 8192, MOST_PRODUCTS = 1 << 28 };
    static float values[MOST_K], rounded[MOST_K];
    const int64_t n_rows = a->x.shape[0], k = a->x.shape[1], n = a->out.shape[1];
    const int64_t step = 1 + n_rows * n * k / MOST_PRODUCTS;
    float *x = malloc((size_t)(n_rows * k) * sizeof *x);
    struct matmul_distances d = {0.0, 0.0, 0.0};
    assert_non_null(x);
    assert_true(k <= MOST_K);
    for (int64_t i = 0; i < n_rows * k; i++)
        x[i] = matmul_rounded(((const float *)a->x.data)[i]);
    for (int64_t i = 0; i < n; i++) {
        const struct qrn_weight_row from = qrn_weight_row(&w->w, &w->scales, &w->biases, 0, 0, i);
        qrn_weight_decode(&from, 0, k, values);
        for (int64_t j = 0; j < k; j++) rounded[j] = matmul_rounded(values[j]);
        for (int64_t r = i % step; r < n_rows; r += step) {
            double want = 0.0, once = 0.0;
            for (int64_t j = 0; j < k; j++) {
                want += (double)values[j] * (double)x[r * k + j];
                once += (double)rounded[j] * (double)x[r * k + j];
            }
            const double got = (double)((const float *)a->out.data)[r * n + i];
            d.of_results += (got - want) * (got - want);
            d.of_rounding += (once - want) * (once - want);
            d.of_all += want * want;
        }
    }
    for (int64_t i = 0; i < n_rows * n; i++)
        if (!isfinite(((const float *)a->out.data)[i])) d.of_results = INFINITY;
    free(x);
    return d;
}

/* Weights are the product of two rounded numbers and, rounded too, a minimum: no more than twice as far off as
 * rounded weights. */
static inline void matmul_check_distances(const struct weights *w, const struct qrn_matmul_args *a,
                                          const char *what)
{
    const struct matmul_distances d = matmul_distances_of(w, a);
    if (!(sqrt(d.of_results) <= 2.0 * sqrt(d.of_rounding) + 1e-6 * sqrt(d.of_all)))
        fail_msg("%s: off by %g of %g, rounded weights by %g", what, sqrt(d.of_results),
                 sqrt(d.of_all), sqrt(d.of_rounding));
}

/* x @ w^T in any order, x of n_rows to be rounded to bf16; w packed, or in rows where it is bf16. */
static inline struct qrn_matmul_args matmul_product(struct mem *m, struct qrn_device *dev,
                                                    struct rng *r, const struct weights *w,
                                                    int64_t n_rows)
{
    const int64_t n = w->w.shape[0], k = w->w.shape[1];
    const bool in_rows = w->w.dtype == QRN_BF16;
    return (struct qrn_matmul_args){.w = in_rows ? w->w : pack_weights(m, dev, w, QRN_ACT_Q8),
                                    .x = mem_filled(m, r, 1.0, 2, (const int64_t[]){n_rows, k}),
                                    .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
                                    .activation = QRN_ACT_BF16,
                                    .any_order = true,
                                    .layout = in_rows ? QRN_LAYOUT_ROWS : QRN_LAYOUT_PACKED};
}

#endif
