/* SPDX-License-Identifier: MIT
 * matmul with many rows of x, bf16, on a GPU, real or emulated, in any order, where cuda.matmul.wgmma decodes packed weights to
 * registers, or has bf16 weights in rows: all types, tiles that end early, rounds of whole tiles and shares of any length. */
#include <stdio.h>

#include "support/matmul_gpu.h"

static const char kernel[] = "cuda.matmul.wgmma";

/* Rows of so many tiles for each n_multiprocessors of an emulated GPU; of a real one, which may have 132. */
static int64_t rows_of_tiles(int64_t n_tiles, int n_multiprocessors)
{
    return 128 * (op_test_gpu_is_real() ? n_tiles * 132 / n_multiprocessors : n_tiles);
}

static void run(struct qrn_device *dev, const struct qrn_matmul_args *a, const char *what)
{
    struct qrn_error err;
    memset(a->out.data, 0xff, a->out.n_bytes);
    if (qrn_kernel_run(dev, matmul_kernel(dev, kernel), a, &err) != QRN_OK)
        fail_msg("%s: %s", what, err.text);
}

/* Not where a weight is bf16 itself, a scale that bf16 holds, or a scale times a power of two. */
static bool rounds_otherwise(enum qrn_dtype dtype)
{
    return dtype != QRN_BF16 && dtype != QRN_MXFP4 && dtype != QRN_TQ1_0 && dtype != QRN_TQ2_0 &&
           !qrn_is_mlx(dtype);
}

/* Whether the form is taken: in one order another one is, whose weights are rounded in another way. */
static void check_form(struct mem *m, struct qrn_device *dev, const struct qrn_matmul_args *a,
                       const char *what)
{
    struct qrn_matmul_args b = *a;
    b.any_order = false;
    b.out = mem_tensor(m, QRN_F32, 2, a->out.shape);
    run(dev, &b, what);
    if (memcmp(a->out.data, b.out.data, b.out.n_bytes) == 0) fail_msg("%s: another form", what);
}

/* Weights are what they are: only sums round. */
static void check_sums(const struct weights *w, const struct qrn_matmul_args *a, const char *what)
{
    const struct matmul_distances d = matmul_distances_of(w, a);
    if (!(sqrt(d.of_results) <= 1e-5 * sqrt(d.of_all)))
        fail_msg("%s: off by %g of %g", what, sqrt(d.of_results), sqrt(d.of_all));
}

static void check(struct qrn_device *dev, enum qrn_dtype dtype, int64_t n_rows, int64_t n,
                  int64_t k, int64_t group, enum qrn_dtype scales_type)
{
    struct mem m = {0};
    struct rng r = {(uint64_t)(n_rows + n + k)};
    const struct weights w = random_weights(&m, &r, weight_type_of(dtype), 2,
                                            (const int64_t[]){n, k}, group, scales_type);
    const struct qrn_matmul_args a = matmul_product(&m, dev, &r, &w, n_rows);
    char what[96];
    (void)snprintf(what, sizeof what, "%s, M %d, N %d, K %d", qrn_dtype_info(dtype)->name,
                   (int)n_rows, (int)n, (int)k);
    run(dev, &a, what);
    if (dtype == QRN_BF16)
        check_sums(&w, &a, what);
    else
        matmul_check_distances(&w, &a, what);
    if (rounds_otherwise(dtype)) check_form(&m, dev, &a, what);
    matmul_check_strides(&m, dev, kernel, &a, what);
    mem_free_all(&m);
}

/* Groups of scales of all kinds, tiles of all widths, k that ends in a panel's midst. */
static void test_types(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", kernel);
    const int64_t n = rows_of_tiles(4, 4) - 93, n_half = rows_of_tiles(2, 4) - 35;
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const enum qrn_dtype type = weight_types[t].dtype;
        if (!qrn_has_integer_form(type)) continue;
        const int64_t k = qrn_dtype_info(type)->block_elements <= 32 ? 288 : 512;
        check(dev, type, 131 + 40 * (int64_t)(t % 4), n, k, 32, QRN_F32);
        if (qrn_is_mlx(type)) check(dev, type, 129, n_half, 384, 128, QRN_BF16);
    }
    check(dev, QRN_MLX_Q4, 140, n, 448, 64, QRN_F16);
    qrn_device_close(dev);
}

/* n_tiles: of weights; less: rows that the last one lacks. */
static void check_shares(int n_multiprocessors, enum qrn_dtype dtype, int64_t n_rows,
                         int64_t n_tiles, int64_t less, int64_t k)
{
    char n[12];
    (void)snprintf(n, sizeof n, "%d", n_multiprocessors);
    struct qrn_device *dev = matmul_device(n, kernel);
    check(dev, dtype, n_rows, rows_of_tiles(n_tiles, n_multiprocessors) - less, k, 32, QRN_F32);
    qrn_device_close(dev);
}

static void test_shares(void **state)
{
    (void)state;
    check_shares(4, QRN_Q4_K, 256, 4, 0, 256);    /* one whole tile each */
    check_shares(4, QRN_Q8_0, 385, 3, 64, 160);   /* two or one, of two tiles of x */
    check_shares(4, QRN_Q4_0, 200, 3, 40, 64);    /* one block has none; tiles of half a panel */
    check_shares(4, QRN_Q4_0, 190, 5, 3, 1056);   /* a tile and a quarter; rings go round */
    check_shares(4, QRN_Q6_K, 129, 7, 127, 3328); /* a tile and three quarters */
    check_shares(4, QRN_Q8_0, 200, 9, 33, 1120);  /* a whole one, then a tile and a quarter */
    check_shares(4, QRN_Q4_0, 256, 5, 70, 3296);  /* a tile and a quarter of the widest */
    check_shares(4, QRN_Q8_0, 200, 1, 1, 3296);   /* a quarter: pieces in a tile's midst */
    check_shares(4, QRN_Q4_0, 300, 1, 60, 3296);  /* halves */
    check_shares(7, QRN_Q4_0, 300, 1, 5, 3296);   /* two sevenths of two tiles */
}

/* Whether blocks share tiles of weights in rows: sums are others then than on a device of one, which has whole tiles. */
static bool are_shared(int n_multiprocessors, int64_t n_rows, int64_t n, int64_t k)
{
    const int devices[] = {n_multiprocessors, 1};
    struct mem m = {0};
    struct rng r = {5};
    const struct weights w =
        random_weights(&m, &r, weight_type_of(QRN_BF16), 2, (const int64_t[]){n, k}, 32, QRN_F32);
    struct qrn_tensor out[2];
    for (int i = 0; i < 2; i++) {
        char many[12];
        (void)snprintf(many, sizeof many, "%d", devices[i]);
        struct qrn_device *dev = matmul_device(many, kernel);
        struct rng of_x = {6};
        const struct qrn_matmul_args a = matmul_product(&m, dev, &of_x, &w, n_rows);
        run(dev, &a, many);
        out[i] = a.out;
        qrn_device_close(dev);
    }
    const bool same = memcmp(out[0].data, out[1].data, out[0].n_bytes) == 0;
    mem_free_all(&m);
    return !same;
}

/* Of weights in rows: tiles of all widths, from 96 on; how many multiprocessors a real device has nobody chooses. */
static void test_rows(void **state)
{
    (void)state;
    static const struct {
        int n_multiprocessors;
        int64_t n_rows, n_tiles, less, k;
        bool shared;
    } cases[] = {
        {4, 256, 4, 0, 256, false},   /* one whole tile each */
        {4, 385, 3, 64, 160, false},  /* two or one, of two tiles of x */
        {4, 100, 3, 40, 64, false},   /* one block has none; tiles of half a panel */
        {4, 65, 5, 3, 3328, true},    /* a tile and a quarter; rings go round */
        {4, 129, 6, 127, 3328, true}, /* a tile and a half */
        {4, 200, 9, 33, 3328, true},  /* a whole one, then a tile and a quarter */
        {4, 256, 5, 70, 3296, true},  /* a tile and a quarter of the widest */
        {3, 96, 1, 1, 3296, true},    /* a third: a piece in a tile's midst */
        {5, 300, 1, 5, 3296, true},   /* two fifths of two tiles */
    };
    struct qrn_device *dev = matmul_device("4", kernel);
    for (int64_t n_rows = 65; n_rows <= 257; n_rows += 32) /* 257: two tiles of x */
        check(dev, QRN_BF16, n_rows, rows_of_tiles(4, 4) - n_rows, 264, 32, QRN_F32);
    qrn_device_close(dev);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int n = cases[i].n_multiprocessors;
        check_shares(n, QRN_BF16, cases[i].n_rows, cases[i].n_tiles, cases[i].less, cases[i].k);
        if (!op_test_gpu_is_real() &&
            are_shared(n, cases[i].n_rows, 128 * cases[i].n_tiles - cases[i].less, cases[i].k) !=
                cases[i].shared)
            fail_msg("case %d: %s", (int)i, cases[i].shared ? "not shared" : "shared");
    }
}

/* Twice the same bits. */
static void check_bits(struct qrn_device *dev, enum qrn_dtype dtype)
{
    struct mem m = {0};
    struct rng r = {9};
    const int64_t n = rows_of_tiles(5, 4);
    const struct weights w =
        random_weights(&m, &r, weight_type_of(dtype), 2, (const int64_t[]){n, 1280}, 32, QRN_F32);
    struct qrn_matmul_args a = matmul_product(&m, dev, &r, &w, 190);
    run(dev, &a, "bits");
    const struct qrn_tensor first = a.out;
    for (int i = 0; i < 3; i++) {
        a.out = mem_tensor(&m, QRN_F32, 2, first.shape);
        run(dev, &a, "bits");
        assert_memory_equal(first.data, a.out.data, first.n_bytes);
    }
    mem_free_all(&m);
}

static void test_bits(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", kernel);
    check_bits(dev, QRN_Q4_K);
    check_bits(dev, QRN_BF16);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
