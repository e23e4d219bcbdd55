/* SPDX-License-Identifier: MIT
 * matmul of few long rows of bf16 weights with 33 to 64 rows of x on a GPU, real or emulated: parts of k of any
 * number, tiles that end early, x rounded here or before. */
#include <stdio.h>

#include "support/matmul_gpu.h"

enum { BF16_TYPE = 2 }; /* in weight_types */

static const char kernel[] = "cuda.matmul.parts";

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

static void check(const char *n_multiprocessors, int64_t n_rows, int64_t n, int64_t k)
{
    struct qrn_device *dev = matmul_device(n_multiprocessors, kernel);
    struct mem m = {0};
    struct rng r = {(uint64_t)(n_rows + n + k)};
    struct qrn_error err;
    const struct qrn_matmul_args a = product(&m, &r, n_rows, n, k);
    char what[96];
    (void)snprintf(what, sizeof what, "%s multiprocessors, M %d, N %d, K %d", n_multiprocessors,
                   (int)n_rows, (int)n, (int)k);
    assert_true(matmul_kernel(dev, kernel)->supports(&a));
    op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, what);
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    matmul_check_strides(&m, dev, kernel, &a, what);
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
    struct qrn_device *dev = matmul_device("5", kernel);
    struct mem m = {0};
    struct rng r = {9};
    struct qrn_error err;
    struct qrn_matmul_args a = product(&m, &r, 64, 140, 2304);
    op_test_same_bits(QRN_OP_matmul, &a, "five multiprocessors");
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK) fail_msg("%s", err.text);
    const struct qrn_tensor all = a.out;
    a.x = qrn_tensor_slice(a.x, 0, 20, 35);
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){35, 140});
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_memory_equal((const float *)all.data + 20 * 140, a.out.data, a.out.n_bytes);
    mem_free_all(&m);
    qrn_device_close(dev);
}

/* What is left to other kernels. */
static void test_others(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", kernel);
    const struct qrn_kernel *k = matmul_kernel(dev, kernel);
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
