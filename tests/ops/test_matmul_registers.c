/* SPDX-License-Identifier: MIT
 * matmul of packed weights with up to 128 rows of x, bf16, on a GPU, real or emulated, where weights become bf16 in
 * registers: all types, tiles that end early, shares of any length, x rounded here or before. */
#include <stdio.h>

#include "support/matmul_gpu.h"

static const char kernel[] = "cuda.matmul.registers";

static void check(struct qrn_device *dev, enum qrn_dtype dtype, int64_t n_rows, int64_t n,
                  int64_t k, int64_t group, enum qrn_dtype scales_type)
{
    struct mem m = {0};
    struct rng r = {(uint64_t)(n_rows + n + k)};
    struct qrn_error err;
    const struct weights w = random_weights(&m, &r, weight_type_of(dtype), 2,
                                            (const int64_t[]){n, k}, group, scales_type);
    const struct qrn_matmul_args a = matmul_product(&m, dev, &r, &w, n_rows);
    char what[96];
    (void)snprintf(what, sizeof what, "%s, M %d, N %d, K %d", qrn_dtype_info(dtype)->name,
                   (int)n_rows, (int)n, (int)k);
    assert_true(matmul_kernel(dev, kernel)->supports(&a));
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s: %s", what, err.text);
    matmul_check_distances(&w, &a, what);
    matmul_check_strides(&m, dev, kernel, &a, what);
    mem_free_all(&m);
}

/* Groups of scales of all kinds, k that ends in a panel's midst; tiles in pieces. */
static void test_types(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("5", kernel);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const enum qrn_dtype type = weight_types[t].dtype;
        if (!qrn_has_integer_form(type)) continue;
        const bool small = qrn_dtype_info(type)->block_elements <= 32;
        check(dev, type, 33, 37, small ? 416 : 512, 32, QRN_F32);
        check(dev, type, 5, 300, 768, 32, QRN_F32);
        check(dev, type, 67, 200, 512, 32, QRN_F32);
        if (qrn_is_mlx(type)) check(dev, type, 2, 140, 384, 128, QRN_BF16);
    }
    check(dev, QRN_MLX_Q4, 64, 70, 448, 64, QRN_F16);
    qrn_device_close(dev);
}

static void check_pieces(const char *n_multiprocessors, enum qrn_dtype dtype, int64_t n_rows,
                         int64_t n, int64_t k)
{
    struct qrn_device *dev = matmul_device(n_multiprocessors, kernel);
    check(dev, dtype, n_rows, n, k, 32, QRN_F32);
    qrn_device_close(dev);
}

static void test_pieces(void **state)
{
    (void)state;
    check_pieces("1", QRN_Q4_0, 1, 1, 32);
    check_pieces("1", QRN_Q8_0, 64, 515, 1056); /* three tiles, all whole, longer than a ring */
    check_pieces("3", QRN_Q4_K, 32, 768, 512);  /* the same, a block each */
    check_pieces("4", QRN_Q6_K, 40, 520,
                 1536); /* shares of one tile's end, the next one's beginning */
    check_pieces("5", QRN_Q4_0, 17, 600, 288);   /* a tile's end, a whole one, a beginning */
    check_pieces("40", QRN_Q4_K, 64, 257, 2560); /* one unit each */
    check_pieces("3", QRN_Q4_0, 128, 570, 672);  /* tiles of 192: a share of one and a half */
    check_pieces("6", QRN_Q8_0, 100, 190, 1312); /* parts of one */
    check_pieces("2", QRN_Q6_K, 65, 384, 768);   /* two whole ones */
    check_pieces("2", QRN_Q4_0, 9, 1300, 160);   /* several whole tiles between two pieces */
}

/* Twice the same bits; the same rows among as many others, too. */
static void test_bits(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("5", kernel);
    struct mem m = {0};
    struct rng r = {9};
    struct qrn_error err;
    const struct weights w = random_weights(&m, &r, weight_type_of(QRN_Q4_K), 2,
                                            (const int64_t[]){530, 1024}, 32, QRN_F32);
    struct qrn_matmul_args a = matmul_product(&m, dev, &r, &w, 64);
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s", err.text);
    const struct qrn_tensor all = a.out;
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){64, 530});
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(all.data, a.out.data, a.out.n_bytes);
    a.x = qrn_tensor_slice(a.x, 0, 20, 35);
    a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){35, 530});
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), &a, &err) != QRN_OK)
        fail_msg("%s", err.text);
    assert_memory_equal((const float *)all.data + (size_t)20 * 530, a.out.data, a.out.n_bytes);
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
    const struct weights w = random_weights(&m, &r, weight_type_of(QRN_Q4_0), 2,
                                            (const int64_t[]){64, 256}, 32, QRN_F32);
    const struct qrn_matmul_args a = matmul_product(&m, dev, &r, &w, 64);
    struct qrn_matmul_args b = a;
    assert_true(k->supports(&a));
    b.any_order = false;
    assert_false(k->supports(&b));
    b = a;
    b.activation = QRN_ACT_Q8;
    assert_false(k->supports(&b));
    b = matmul_product(&m, dev, &r, &w, 129);
    assert_false(k->supports(&b));
    mem_free_all(&m);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
