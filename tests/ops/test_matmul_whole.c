/* SPDX-License-Identifier: MIT
 * matmul of many rows of bf16 weights with up to 64 rows of x on a GPU, real or emulated: tiles of each width, one
 * for each block or several, that end early, x rounded here or before. */
#include <stdio.h>

#include "support/matmul_gpu.h"

enum { BF16_TYPE = 2 }; /* in weight_types */

static const char kernel[] = "cuda.matmul.whole";

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
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s: %s", what, err.text);
    matmul_check_strides(&m, dev, kernel, &a, what);
    mem_free_all(&m);
    qrn_device_close(dev);
}

static void test_tiles(void **state)
{
    (void)state;
    check("133", 64, 8450, 200); /* tiles of 64; k ends in a step's midst */
    check("89", 33, 8449, 72);   /* of 96; an odd number of rows */
    check("67", 40, 8500, 1096); /* of 128; longer than a ring */
    check("45", 17, 8451, 136);  /* of 192 */
    check("3", 9, 9002, 264);    /* several for each block */
    check("200", 1, 8449, 64);   /* more multiprocessors than tiles */
}

/* The same rows among others give the same bits. */
static void test_bits(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("45", kernel);
    struct mem m = {0};
    struct rng r = {9};
    struct qrn_error err;
    struct qrn_matmul_args a = product(&m, &r, 64, 8460, 256);
    op_test_same_bits(QRN_OP_matmul, &a, "tiles of 192");
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s", err.text);
    const struct qrn_tensor all = a.out;
    a.x = qrn_tensor_slice(a.x, 0, 20, 35);
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){35, 8460});
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s", err.text);
    assert_memory_equal((const float *)all.data + 20 * 8460, a.out.data, a.out.n_bytes);
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
    struct qrn_matmul_args a = product(&m, &r, 64, 8449, 64), b = a;
    assert_true(k->supports(&a));
    b.any_order = false;
    assert_false(k->supports(&b));
    b = a;
    b.activation = QRN_ACT_F32;
    assert_false(k->supports(&b));
    static const int64_t shapes[][3] = {{65, 8449, 64}, {64, 8448, 64}, {33, 8449, 68}};
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
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
