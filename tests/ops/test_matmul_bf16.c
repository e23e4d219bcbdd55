/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights with activations rounded to bf16: every kernel of every device
 * gives the bits of one written-out sum, by memcmp, for any number of rows, tails in N and K, rows
 * and packed weights, x as f32 and as bf16, any number of threads. */
#include <math.h>
#include <stdio.h>

#include "base/float_mode.h"
#include "support/sanitized.h"
#include "support/weights.h"

enum { BF16_TYPE = 2 }; /* in weight_types */

static float rounded(const struct qrn_tensor *x, int64_t i)
{
    if (x->dtype == QRN_BF16) return qrn_bf16_to_float(((const uint16_t *)x->data)[i]);
    return qrn_bf16_to_float(qrn_float_to_bf16(((const float *)x->data)[i]));
}

/* For each 32 k, the last ones filled with zeros: even and odd columns apart, then their sum. */
static float sum_of(const uint16_t *w, const struct qrn_tensor *x, int64_t at, int64_t k)
{
    float acc = 0.0f;
    for (int64_t b = 0; b < k; b += 32) {
        float sums[2] = {0.0f, 0.0f};
        for (int64_t i = b; i < b + 32; i++) {
            const float wi = i < k ? qrn_bf16_to_float(w[i]) : 0.0f;
            const float xi = i < k ? rounded(x, at + i) : 0.0f;
            sums[i % 2] = fmaf(wi, xi, sums[i % 2]);
        }
        acc += sums[0] + sums[1];
    }
    return acc;
}

static float *sums_of(struct mem *m, const struct qrn_matmul_args *a)
{
    const int64_t n = a->w.shape[0], k = a->w.shape[1], n_rows = a->x.shape[0];
    float *out = mem_guarded(m, (size_t)(n_rows * n) * sizeof *out);
    const uint64_t mode = qrn_float_mode_enter();
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < n; i++)
            out[r * n + i] = sum_of((const uint16_t *)a->w.data + i * k, &a->x, r * k, k);
    qrn_float_mode_leave(mode);
    return out;
}

/* Every kernel of dev, on the first n_rows rows. */
static void run_kernels(struct qrn_device *dev, const struct qrn_matmul_args *all, int64_t n_rows,
                        const float *want)
{
    const int64_t n = all->out.shape[1];
    const struct qrn_kernel *kernel;
    struct qrn_matmul_args a = *all;
    a.x = qrn_tensor_slice(all->x, 0, 0, n_rows);
    a.out = qrn_tensor_2d(QRN_F32, all->out.data, n_rows, n);
    for (size_t i = 0; (kernel = qrn_kernel_at(dev, QRN_OP_matmul, i)) != NULL; i++) {
        struct qrn_error err;
        if (kernel->supports && !kernel->supports(&a)) continue;
        memset(a.out.data, 0xff, a.out.n_bytes);
        if (qrn_kernel_run(dev, kernel, &a, &err) != QRN_OK) fail_msg("%s", err.text);
        if (memcmp(want, a.out.data, (size_t)(n_rows * n) * sizeof *want) != 0)
            fail_msg("%s, %s, x %s: M %d, N %d, K %d, %d threads: other bits than the sum",
                     kernel->name, a.layout ? "packed" : "rows", qrn_dtype_info(a.x.dtype)->name,
                     (int)n_rows, (int)n, (int)a.x.shape[1], dev->n_threads);
    }
}

static struct qrn_tensor to_bf16(struct mem *m, const struct qrn_tensor *x)
{
    const struct qrn_tensor out = mem_tensor(m, QRN_BF16, 2, x->shape);
    for (int64_t i = 0; i < qrn_tensor_n_elements(x); i++)
        ((uint16_t *)out.data)[i] = qrn_float_to_bf16(((const float *)x->data)[i]);
    return out;
}

static void check_shape(struct devices d[3], int64_t n_rows, int64_t n, int64_t k, double scale)
{
    struct mem m = {0};
    struct rng r = {(uint64_t)(n * k)};
    struct qrn_matmul_args a = {
        .w = random_weights(&m, &r, BF16_TYPE, 2, (const int64_t[]){n, k}, 32, QRN_F32).w,
        .x = mem_filled(&m, &r, scale, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
        .activation = QRN_ACT_BF16};
    const float *want = sums_of(&m, &a);
    const struct qrn_tensor x[2] = {a.x, to_bf16(&m, &a.x)}, w = a.w;
    static const int64_t some[] = {64, 300, 530}; /* 530: walked in two parts */
    for (size_t i = 0; i < d[0].n; i++) {
        const struct qrn_tensor packed =
            pack_weights(&m, d[1].dev[i], &(struct weights){.w = w}, QRN_ACT_BF16);
        for (int64_t c = 0; c < 33 + 3; c++) {
            const int64_t rows = c < 33 ? c + 1 : some[c - 33];
            const bool slow = SANITIZED || i + 1 == d[0].n; /* portable C has no tiles */
            if (rows > n_rows || (slow && rows != 1 && rows != 17 && rows != 33)) continue;
            for (int layout = 0; layout < 2; layout++) {
                a.w = layout ? packed : w;
                a.layout = layout ? QRN_LAYOUT_PACKED : QRN_LAYOUT_ROWS;
                if (!a.w.n_dims) continue;
                a.x = x[c % 2];
                run_kernels(d[c % 3].dev[i], &a, rows, want);
                a.x = x[1 - c % 2];
                if (rows == 1 || rows == 17) run_kernels(d[c % 3].dev[i], &a, rows, want);
            }
        }
    }
    mem_free_all(&m);
}

static void test_bits(void **state)
{
    (void)state;
    struct devices d[3];
    for (int i = 0; i < 3; i++) devices_open(&d[i], i + 1);
    check_shape(d, 33, 75, 768, 1.0);    /* more than one chunk of groups and of columns */
    check_shape(d, 300, 151, 1280, 1.0); /* many rows */
    check_shape(d, 530, 40, 768, 1.0);
    static const int64_t ks[] = {1, 7, 31, 32, 33, 100, 515};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) check_shape(d, 33, 37, ks[i], 1.0);
    check_shape(d, 5, 1, 64, 1.0);
    check_shape(d, 33, 48, 100, 1e-38); /* products that flush to zero, of either sign */
    for (int i = 0; i < 3; i++) devices_close(&d[i]);
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {4};
    devices_open_for(&d, 2, QRN_OP_matmul);
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
        for (int64_t k = 0; k < 200; k += 33) {
            const struct qrn_tensor x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){9, k});
            const struct qrn_matmul_args a = {
                .w = random_weights(&m, &r, BF16_TYPE, 2, (const int64_t[]){21, k}, 32, QRN_F32).w,
                .x = is_bf16 ? to_bf16(&m, &x) : x,
                .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){9, 21}),
                .activation = QRN_ACT_BF16};
            for (size_t i = 0; i < d.n; i++)
                op_test_against_reference(d.dev[i], QRN_OP_matmul, &a, 1e-5, "bf16 activations");
            op_test_same_bits(QRN_OP_matmul, &a, "bf16 activations");
        }
    devices_close(&d);
    mem_free_all(&m);
}

/* Rows of x that are columns of wider ones, batches that share matrices, experts that repeat. */
static void test_batches_and_experts(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {9};
    devices_open_for(&d, 3, QRN_OP_matmul);
    const struct qrn_tensor x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){6, 40, 200});
    const struct qrn_matmul_args a = {
        .w = random_weights(&m, &r, BF16_TYPE, 3, (const int64_t[]){2, 19, 100}, 32, QRN_F32).w,
        .x = qrn_tensor_slice(x, 2, 7, 100),
        .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){6, 40, 19}),
        .activation = QRN_ACT_BF16};
    for (size_t i = 0; i < d.n; i++)
        op_test_against_reference(d.dev[i], QRN_OP_matmul, &a, 1e-5, "batches");
    for (int64_t n_x = 1; n_x <= 3; n_x += 2)
        for (int64_t n_tokens = 1; n_tokens < 60; n_tokens += 29) {
            struct qrn_matmul_id_args e = {
                .w =
                    random_weights(&m, &r, BF16_TYPE, 3, (const int64_t[]){5, 35, 100}, 32, QRN_F32)
                        .w,
                .x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){n_tokens, n_x, 100}),
                .ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){n_tokens, 3}),
                .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){n_tokens, 3, 35}),
                .activation = QRN_ACT_BF16};
            for (int64_t i = 0; i < n_tokens * 3; i++)
                ((int32_t *)e.ids.data)[i] = (int32_t)rng_below(&r, 4);
            for (size_t i = 0; i < d.n; i++)
                op_test_against_reference(d.dev[i], QRN_OP_matmul_id, &e, 1e-5, "experts");
            op_test_same_bits(QRN_OP_matmul_id, &e, "experts");
        }
    devices_close(&d);
    mem_free_all(&m);
}

/* A NaN stays one, an infinity is none; what is too large for bf16 becomes infinite. */
static void test_not_finite(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {2};
    devices_open_for(&d, 2, QRN_OP_matmul);
    const struct qrn_matmul_args a = {
        .w = random_weights(&m, &r, BF16_TYPE, 2, (const int64_t[]){20, 96}, 32, QRN_F32).w,
        .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 96}),
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){4, 20}),
        .activation = QRN_ACT_BF16};
    float *x = a.x.data;
    x[96 + 40] = NAN;
    x[2 * 96 + 40] = INFINITY;
    x[3 * 96 + 40] = 3.4e38f;
    for (size_t i = 0; i < d.n; i++) {
        const struct qrn_kernel *kernel;
        for (size_t j = 0; (kernel = qrn_kernel_at(d.dev[i], QRN_OP_matmul, j)) != NULL; j++) {
            struct qrn_error err;
            if (kernel->supports && !kernel->supports(&a)) continue;
            if (qrn_kernel_run(d.dev[i], kernel, &a, &err) != QRN_OK) fail_msg("%s", err.text);
            const float *out = a.out.data;
            for (int n = 0; n < 20; n++) {
                assert_true(isfinite(out[n]));
                assert_true(isnan(out[20 + n]));
                assert_true(isinf(out[40 + n]));
                assert_true(isinf(out[60 + n]));
            }
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

/* bf16 x is for bf16 weights and QRN_ACT_BF16; other weights sum as with f32 activations. */
static void test_others(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {3};
    struct qrn_device *dev;
    struct qrn_error err;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    struct qrn_matmul_args a = {
        .w = random_weights(&m, &r, BF16_TYPE, 2, (const int64_t[]){20, 64}, 32, QRN_F32).w,
        .x = mem_tensor(&m, QRN_BF16, 2, (const int64_t[]){4, 64}),
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){4, 20})};
    op_test_fails(dev, QRN_OP_matmul, &a, QRN_ERR_DTYPE, "matmul: x is bf16, wants f32 but");
    a.activation = QRN_ACT_BF16;
    a.w = random_weights(&m, &r, 0, 2, (const int64_t[]){20, 64}, 32, QRN_F32).w;
    op_test_fails(dev, QRN_OP_matmul, &a, QRN_ERR_DTYPE, "matmul: x is bf16, wants f32 but");
    a.x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){4, 64});
    float want[80];
    assert_int_equal(qrn_matmul(dev, &a, &err), QRN_OK);
    memcpy(want, a.out.data, sizeof want);
    a.activation = QRN_ACT_F32;
    assert_int_equal(qrn_matmul(dev, &a, &err), QRN_OK);
    assert_memory_equal(want, a.out.data, sizeof want);
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_batches_and_experts),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
