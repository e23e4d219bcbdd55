/* SPDX-License-Identifier: MIT
 * matmul of many rows of bf16 weights with up to 64 rows of x on a GPU, real or emulated: tiles of each width, one
 * for each block or several, that end early, x rounded here or before. */
#include "support/matmul_gpu.h"

static const char kernel[] = "cuda.matmul.whole";

static void test_tiles(void **state)
{
    (void)state;
    matmul_check_bf16(kernel, "133", 64, 8450, 200); /* tiles of 64; k ends in a step's midst */
    matmul_check_bf16(kernel, "89", 33, 8449, 72);   /* of 96; an odd number of rows */
    matmul_check_bf16(kernel, "67", 40, 8500, 1096); /* of 128; longer than a ring */
    matmul_check_bf16(kernel, "45", 17, 8451, 136);  /* of 192 */
    matmul_check_bf16(kernel, "3", 9, 9002, 264);    /* several for each block */
    matmul_check_bf16(kernel, "200", 1, 8449, 64);   /* more multiprocessors than tiles */
}

/* The same rows among others give the same bits. */
static void test_bits(void **state)
{
    (void)state;
    matmul_check_slice_of_bf16(kernel, "45", 20, 35, 8460, 256); /* tiles of 192 */
}

/* What is left to other kernels. */
static void test_others(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", kernel);
    const struct qrn_kernel *k = matmul_kernel(dev, kernel);
    struct mem m = {0};
    struct rng r = {4};
    struct qrn_matmul_args a = matmul_of_bf16(&m, &r, 64, 8449, 64), b = a;
    assert_true(k->supports(&a));
    b.any_order = false;
    assert_false(k->supports(&b));
    b = a;
    b.activation = QRN_ACT_F32;
    assert_false(k->supports(&b));
    static const int64_t shapes[][3] = {{65, 8449, 64}, {64, 8448, 64}, {33, 8449, 68}};
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
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
