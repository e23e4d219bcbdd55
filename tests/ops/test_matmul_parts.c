/* SPDX-License-Identifier: MIT
 * matmul of few long rows of bf16 weights with 33 to 64 rows of x on a GPU, real or emulated: parts of k of any
 * number, tiles that end early, x rounded here or before. */
#include <stdio.h>
#include <stdlib.h>

#include "support/weights.h"

enum { BF16_TYPE = 2 }; /* in weight_types */

static const struct qrn_kernel *parts_of(struct qrn_device *dev)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul, i)) != NULL; i++)
        if (strcmp(k->name, "cuda.matmul.parts") == 0) return k;
    return NULL;
}

/* An emulated device has so many multiprocessors. */
static struct qrn_device *device_of(const char *n_multiprocessors)
{
    setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    if (!dev || !parts_of(dev)) skip();
    return dev;
}

static struct qrn_matmul_args product(struct mem *m, struct rng *r, int64_t n_rows, int64_t n,
                                      int64_t k)
{
    return (struct qrn_matmul_args){
        .w = random_weights(m, r, BF16_TYPE, 2, (const int64_t[]){n, k}, 32, QRN_F32).w,
        .x = mem_filled(m, r, 1.0, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
        .activation = QRN_ACT_BF16,
        .any_order = true};
}

/* Rows of x and of out that lie further apart; x as bf16, where it can be mapped and where it cannot. */
static void check_strides(struct mem *m, struct qrn_device *dev, const struct qrn_matmul_args *a,
                          const char *what)
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
        if (qrn_kernel_run(dev, parts_of(dev), &b, &err) != QRN_OK)
            fail_msg("%s: %s", what, err.text);
        for (int64_t r = 0; r < n_rows; r++)
            assert_memory_equal((const float *)b.out.data + r * (n + more),
                                (const float *)a->out.data + r * n, (size_t)n * sizeof(float));
    }
}

static void check(const char *n_multiprocessors, int64_t n_rows, int64_t n, int64_t k)
{
    struct qrn_device *dev = device_of(n_multiprocessors);
    struct mem m = {0};
    struct rng r = {(uint64_t)(n_rows + n + k)};
    struct qrn_error err;
    const struct qrn_matmul_args a = product(&m, &r, n_rows, n, k);
    char what[96];
    (void)snprintf(what, sizeof what, "%s multiprocessors, M %d, N %d, K %d", n_multiprocessors,
                   (int)n_rows, (int)n, (int)k);
    assert_true(parts_of(dev)->supports(&a));
    op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, what);
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_kernel_run(dev, parts_of(dev), &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    check_strides(&m, dev, &a, what);
    mem_free_all(&m);
    qrn_device_close(dev);
}

static void test_parts(void **state)
{
    (void)state;
    check("4", 40, 130, 2104); /* two parts, of two tiles; k ends in a stage's midst */
    check("3", 64, 256, 2048); /* one part of each tile */
    check("7", 33, 129, 4104); /* three parts of unequal length, longer than a ring */
    check("40", 50, 70, 2048); /* as many parts as a tile may have */
    check("1", 37, 300, 2080); /* more tiles than multiprocessors */
}

/* The same rows among others give the same bits. */
static void test_bits(void **state)
{
    (void)state;
    struct qrn_device *dev = device_of("5");
    struct mem m = {0};
    struct rng r = {9};
    struct qrn_error err;
    struct qrn_matmul_args a = product(&m, &r, 64, 140, 2304);
    op_test_same_bits(QRN_OP_matmul, &a, "five multiprocessors");
    if (qrn_kernel_run(dev, parts_of(dev), &a, &err) != QRN_OK) fail_msg("%s", err.text);
    const struct qrn_tensor all = a.out;
    a.x = qrn_tensor_slice(a.x, 0, 20, 35);
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){35, 140});
    if (qrn_kernel_run(dev, parts_of(dev), &a, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_memory_equal((const float *)all.data + 20 * 140, a.out.data, a.out.n_bytes);
    mem_free_all(&m);
    qrn_device_close(dev);
}

/* What is left to other kernels. */
static void test_others(void **state)
{
    (void)state;
    struct qrn_device *dev = device_of("4");
    const struct qrn_kernel *k = parts_of(dev);
    struct mem m = {0};
    struct rng r = {4};
    struct qrn_matmul_args a = product(&m, &r, 64, 64, 2048), b = a;
    assert_true(k->supports(&a));
    b.any_order = false;
    assert_false(k->supports(&b));
    b = a;
    b.activation = QRN_ACT_F32;
    assert_false(k->supports(&b));
    static const int64_t shapes[][3] = {
        {32, 64, 2048}, {65, 64, 2048}, {64, 64, 2040}, {33, 8449, 2048}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        a = product(&m, &r, shapes[i][0], shapes[i][1], shapes[i][2]);
        assert_false(k->supports(&a));
    }
    mem_free_all(&m);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
