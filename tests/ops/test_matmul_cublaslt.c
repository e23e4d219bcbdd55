/* SPDX-License-Identifier: MIT
 * matmul of bf16 weights by cuBLASLt, emulated or that of the machine: shapes, batches, x rounded
 * here or before, calls that are others', the same bits directly, recorded and replayed, more
 * shapes than are kept. */
#include <stdio.h>

#include "support/blas_test.h"

static struct qrn_tensor to_bf16(struct mem *m, const struct qrn_tensor *x)
{
    const struct qrn_tensor out = mem_tensor(m, QRN_BF16, x->n_dims, x->shape);
    for (int64_t i = 0; i < qrn_tensor_n_elements(x); i++)
        ((uint16_t *)out.data)[i] = qrn_float_to_bf16((float)qrn_ref_get_flat(x, i));
    return out;
}

/* The kernel takes it, comes before others, and is right. */
static void check(struct qrn_device *dev, const struct qrn_matmul_args *a, const char *what)
{
    const struct qrn_kernel *chosen;
    const long n = blas_counts().products;
    assert_int_equal(qrn_kernel_choose(dev, QRN_OP_matmul, a, &chosen, NULL), QRN_OK);
    if (chosen != matmul_kernel(dev, blas_kernel)) fail_msg("%s: %s is chosen", what, chosen->name);
    op_test_against_reference(dev, QRN_OP_matmul, a, 1e-5, what);
    if (!blas_is_emulated()) return;
    assert_int_equal(blas_counts().products, n + 1);
    assert_int_equal(blas_counts().algorithm, 1); /* the first that can be used */
}

static const struct {
    int64_t m, n, k;
    const char *why;
} cases[] = {
    {65, 4, 8, "smallest"},
    {129, 68, 200, "no powers of two"},
    {257, 132, 64, "more than a round of rows"},
    {66, 36, 1024, "long sums, which take the workspace"},
    {1000, 12, 16, "many rows"},
};

static void test_products(void **state)
{
    (void)state;
    struct qrn_device *dev = blas_device();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mem m = {0};
        struct rng r = {c};
        char what[96];
        struct qrn_matmul_args a = blas_product(&m, &r, cases[c].m, cases[c].n, cases[c].k);
        (void)snprintf(what, sizeof what, "%s, x as f32", cases[c].why);
        check(dev, &a, what);
        a.x = to_bf16(&m, &a.x);
        (void)snprintf(what, sizeof what, "%s, x as bf16", cases[c].why);
        check(dev, &a, what);
        mem_free_all(&m);
    }
    qrn_device_close(dev);
}

/* Parts of wider rows: x where it can be read as it lies and where it cannot, which gives the same
 * bits. */
static void test_strides(void **state)
{
    (void)state;
    struct qrn_device *dev = blas_device();
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_error err;
    struct qrn_matmul_args a = blas_product(&m, &r, 70, 40, 96);
    const struct qrn_tensor wide = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){70, 56});
    a.w = qrn_tensor_slice(qrn_tensor_slice(a.w, 1, 16, 72), 0, 3, 36);
    a.x = qrn_tensor_slice(a.x, 1, 5, 72);
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){70, 36});
    check(dev, &a, "parts of rows");
    assert_int_equal(qrn_matmul(dev, &a, &err), QRN_OK);
    const struct qrn_tensor first = a.out, x = to_bf16(&m, &a.x);
    a.out = qrn_tensor_slice(wide, 1, 8, 36);
    for (int64_t left = 7; left <= 8; left++) {
        const struct qrn_tensor wide_x = mem_tensor(&m, QRN_BF16, 2, (const int64_t[]){70, 88});
        a.x = qrn_tensor_slice(wide_x, 1, left, 72);
        for (int64_t i = 0; i < qrn_tensor_n_elements(&x); i++)
            ((uint16_t *)a.x.data)[i / 72 * 88 + i % 72] = ((const uint16_t *)x.data)[i];
        check(dev, &a, "parts of rows, x as bf16");
        memset(wide.data, 0xff, wide.n_bytes);
        assert_int_equal(qrn_matmul(dev, &a, &err), QRN_OK);
        for (int64_t i = 0; i < 70; i++)
            assert_memory_equal((const float *)a.out.data + i * 56,
                                (const float *)first.data + i * 36, 36 * sizeof(float));
    }
    mem_free_all(&m);
    qrn_device_close(dev);
}

static const struct {
    int64_t w[2], x[3]; /* matrices of w; of x, and rows of one */
    bool is_taken;
    const char *why;
} batches[] = {
    {{1, 2}, {1, 6, 24}, true, "three of x meet each of two"},
    {{1, 3}, {1, 3, 65}, true, "each its own"},
    {{2, 2}, {2, 4, 40}, true, "two by two, two of x for each"},
    {{3, 1}, {6, 2, 20}, true, "one along a dimension, all of which x shares"},
    {{1, 1}, {2, 3, 11}, true, "one for all"},
    {{2, 2}, {4, 6, 12}, false, "rows that meet a matrix lie apart"},
};

static void test_batches(void **state)
{
    (void)state;
    enum { N = 20, K = 72 };
    struct qrn_device *dev = blas_device();
    for (size_t c = 0; c < sizeof batches / sizeof *batches; c++) {
        struct mem m = {0};
        struct rng r = {c};
        const int64_t *x = batches[c].x;
        struct qrn_matmul_args a = {
            .w = random_weights(&m, &r, weight_type_of(QRN_BF16), 4,
                                (const int64_t[]){batches[c].w[0], batches[c].w[1], N, K}, 32,
                                QRN_F32)
                     .w,
            .x = mem_filled(&m, &r, 1.0, 4, (const int64_t[]){x[0], x[1], x[2], K}),
            .out = mem_tensor(&m, QRN_F32, 4, (const int64_t[]){x[0], x[1], x[2], N}),
            .activation = QRN_ACT_BF16,
            .any_order = true};
        assert_int_equal(matmul_kernel(dev, blas_kernel)->supports(&a), batches[c].is_taken);
        if (batches[c].is_taken) check(dev, &a, batches[c].why);
        a.x = to_bf16(&m, &a.x);
        if (batches[c].is_taken) check(dev, &a, batches[c].why);
        mem_free_all(&m);
    }
    qrn_device_close(dev);
}

/* Matrices, and their rows of x and out, further apart than they are long. */
static void test_distant_batches(void **state)
{
    (void)state;
    struct qrn_device *dev = blas_device();
    struct mem m = {0};
    struct rng r = {8};
    const struct qrn_tensor w = random_weights(&m, &r, weight_type_of(QRN_BF16), 3,
                                               (const int64_t[]){2, 30, 80}, 32, QRN_F32)
                                    .w,
                            x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){2, 90, 80}),
                            out = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){2, 100, 32});
    struct qrn_matmul_args a = {.w = qrn_tensor_slice(qrn_tensor_slice(w, 1, 2, 24), 2, 8, 64),
                                .x = qrn_tensor_slice(qrn_tensor_slice(x, 1, 7, 70), 2, 9, 64),
                                .out = qrn_tensor_slice(qrn_tensor_slice(out, 1, 20, 70), 2, 4, 24),
                                .activation = QRN_ACT_BF16,
                                .any_order = true};
    check(dev, &a, "apart");
    const struct qrn_tensor halves = to_bf16(&m, &x);
    a.x = qrn_tensor_slice(qrn_tensor_slice(halves, 1, 7, 70), 2, 16, 64);
    check(dev, &a, "apart, x as bf16");
    mem_free_all(&m);
    qrn_device_close(dev);
}

/* What is others': a change to a product that it takes, one by one. */
static void test_left_out(void **state)
{
    (void)state;
    struct qrn_device *dev = blas_device();
    const struct qrn_kernel *k = matmul_kernel(dev, blas_kernel);
    struct mem m = {0};
    struct rng r = {1};
    const struct qrn_matmul_args good = blas_product(&m, &r, 66, 40, 96);
    struct qrn_matmul_args a = good;
    assert_true(k->supports(&a));
    a.any_order = false; /* as where one sequence has one set of bits */
    assert_false(k->supports(&a));
    a = good;
    a.activation = QRN_ACT_F32;
    assert_false(k->supports(&a));
    a = good;
    a.w.dtype = QRN_F16; /* x is not rounded for it */
    assert_false(k->supports(&a));
    a = good;
    a.x = qrn_tensor_slice(good.x, 0, 0, 64);
    a.out = qrn_tensor_slice(good.out, 0, 0, 64);
    assert_false(k->supports(&a));
    a = good;
    a.w = qrn_tensor_slice(good.w, 0, 0, 38); /* rows of out that are no whole vectors */
    a.out = qrn_tensor_slice(good.out, 1, 0, 38);
    assert_false(k->supports(&a));
    a = good;
    a.w = qrn_tensor_slice(good.w, 1, 0, 92); /* nor those of w */
    a.x = qrn_tensor_slice(good.x, 1, 0, 92);
    assert_false(k->supports(&a));
    a = good;
    a.w = qrn_tensor_slice(good.w, 1, 4, 88); /* nor where they begin */
    a.x = qrn_tensor_slice(good.x, 1, 4, 88);
    assert_false(k->supports(&a));
    a = good;
    a.w = qrn_tensor_slice(good.w, 0, 0, 36);
    a.out = qrn_tensor_slice(good.out, 1, 2, 36);
    assert_false(k->supports(&a));
    mem_free_all(&m);
    qrn_device_close(dev);
}

/* One encoder with all of them, submitted so often, outputs poisoned before each; they are as in
 * want. */
static void replay(struct qrn_device *dev, const struct qrn_matmul_args *a, size_t n,
                   float *const *want, int n_submits)
{
    struct qrn_encoder *enc;
    struct qrn_error err;
    assert_int_equal(qrn_encoder_create(dev, &enc, &err), QRN_OK);
    for (size_t i = 0; i < n; i++) qrn_encode_matmul(enc, &a[i]);
    for (int t = 0; t < n_submits; t++) {
        for (size_t i = 0; i < n; i++) memset(a[i].out.data, 0xff, a[i].out.n_bytes);
        if (qrn_encoder_submit(enc, &err) != QRN_OK || qrn_encoder_wait(enc, &err) != QRN_OK)
            fail_msg("%s", err.text);
        for (size_t i = 0; i < n; i++)
            if (memcmp(a[i].out.data, want[i], a[i].out.n_bytes) != 0)
                fail_msg("product %d differs when submitted %d times", (int)i, t + 1);
    }
    qrn_encoder_destroy(enc);
}

/* What each of them gives when it is called. */
static void call(struct mem *m, struct qrn_device *dev, const struct qrn_matmul_args *a, size_t n,
                 float **want)
{
    struct qrn_error err;
    for (size_t i = 0; i < n; i++) {
        memset(a[i].out.data, 0xff, a[i].out.n_bytes);
        if (qrn_matmul(dev, &a[i], &err) != QRN_OK) fail_msg("%s", err.text);
        want[i] = mem_guarded(m, a[i].out.n_bytes);
        memcpy(want[i], a[i].out.data, a[i].out.n_bytes);
    }
}

/* x rounded here or before, two shapes; work that is done at once, or when somebody waits. */
static void test_replays(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        if (late) setenv("QRN_EMULATED_LATE", "1", 1);
        struct qrn_device *dev = blas_device();
        unsetenv("QRN_EMULATED_LATE");
        struct mem m = {0};
        struct rng r = {3};
        float *want[3];
        struct qrn_matmul_args a[3] = {blas_product(&m, &r, 70, 36, 520),
                                       blas_product(&m, &r, 133, 24, 64),
                                       blas_product(&m, &r, 70, 36, 520)};
        a[2].x = to_bf16(&m, &a[2].x);
        const long n = blas_counts().searches;
        call(&m, dev, a, 3, want);
        replay(dev, a, 3, want, 4);
        if (blas_is_emulated()) assert_int_equal(blas_counts().searches - n, 2);
        mem_free_all(&m);
        qrn_device_close(dev);
    }
}

/* Those that are used stay; a recording may have more. */
static void test_many_shapes(void **state)
{
    (void)state;
    enum { KEPT = 32, N = 40 };
    struct qrn_device *dev = blas_device();
    struct mem m = {0};
    struct rng r = {4};
    struct qrn_matmul_args a[N];
    float *want[N];
    for (int i = 0; i < N; i++) a[i] = blas_product(&m, &r, 65 + i, 8, 16);
    long n = blas_counts().searches;
    call(&m, dev, a, KEPT, want);
    call(&m, dev, a, 1, want); /* the oldest is not the one used least recently */
    call(&m, dev, a + KEPT, N - KEPT, want + KEPT);
    const bool counts = blas_is_emulated();
    if (counts) assert_int_equal(blas_counts().searches - n, N);
    n = blas_counts().searches;
    call(&m, dev, a, 1, want);
    call(&m, dev, a + 9, N - 9, want + 9);
    if (counts) assert_int_equal(blas_counts().searches - n, 0);
    call(&m, dev, a + 1, 1, want + 1);
    if (counts) assert_int_equal(blas_counts().searches - n, 1);
    replay(dev, a, N, want, 3);
    mem_free_all(&m);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),    cmocka_unit_test(test_strides),
        cmocka_unit_test(test_batches),     cmocka_unit_test(test_distant_batches),
        cmocka_unit_test(test_left_out),    cmocka_unit_test(test_replays),
        cmocka_unit_test(test_many_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
