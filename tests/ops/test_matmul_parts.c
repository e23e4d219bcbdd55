/* SPDX-License-Identifier: MIT
 * matmul of few long rows of bf16 weights with 33 to 64 rows of x on a GPU, real or emulated: parts of k of any
 * number, tiles that end early, x rounded here or before. */
#include "support/matmul_gpu.h"

static const char kernel[] = "cuda.matmul.parts";

static void test_parts(void **state)
{
    (void)state;
    matmul_check_bf16(kernel, "4", 40, 130,
                      2104); /* two parts, of two tiles; k ends in a stage's midst */
    matmul_check_bf16(kernel, "3", 64, 256, 2048); /* one part of each tile */
    matmul_check_bf16(kernel, "7", 33, 129,
                      4104); /* three parts of unequal length, longer than a ring */
    matmul_check_bf16(kernel, "40", 50, 70, 2048); /* as many parts as a tile may have */
    matmul_check_bf16(kernel, "1", 37, 300, 2080); /* more tiles than multiprocessors */
}

/* The same rows among others give the same bits. */
static void test_bits(void **state)
{
    (void)state;
    matmul_check_slice_of_bf16(kernel, "5", 20, 35, 140, 2304);
}

/* What is left to other kernels. */
static void test_others(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", kernel);
    const struct qrn_kernel *k = matmul_kernel(dev, kernel);
    struct mem m = {0};
    struct rng r = {4};
    struct qrn_matmul_args a = matmul_of_bf16(&m, &r, 64, 64, 2048), b = a;
    assert_true(k->supports(&a));
    b.any_order = false;
    assert_false(k->supports(&b));
    b = a;
    b.activation = QRN_ACT_F32;
    assert_false(k->supports(&b));
    static const int64_t shapes[][3] = {
        {32, 64, 2048}, {65, 64, 2048}, {64, 64, 2040}, {33, 8449, 2048}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        a = matmul_of_bf16(&m, &r, shapes[i][0], shapes[i][1], shapes[i][2]);
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
