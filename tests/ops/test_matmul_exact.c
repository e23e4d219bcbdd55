/* SPDX-License-Identifier: MIT
 * Products of many rows of x on a GPU, real or emulated, by the kernels whose rows have the bits they have alone: bf16 weights
 * in rows and packed ones of every type, sums as large as codes can make them, around the edges of tiles, by expert. */
#include <stdio.h>

#include "support/matmul_gpu.h"

static const char name_of_kernel[] = "cuda.matmul.exact", name_by_expert[] = "cuda.matmul_id.exact";

static const struct qrn_kernel *kernel_by_expert(struct qrn_device *dev)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul_id, i)) != NULL; i++)
        if (strcmp(k->name, name_by_expert) == 0) return k;
    return NULL;
}

/* Rows of x one by one, from weights in rows. */
static float *rows_alone(struct mem *m, struct qrn_device *dev, const struct weights *w,
                         const struct qrn_tensor *x, enum qrn_activation_type activation)
{
    const int64_t n = w->w.shape[0];
    float *out = mem_guarded(m, (size_t)(x->shape[0] * n) * sizeof *out);
    for (int64_t i = 0; i < x->shape[0]; i++) {
        struct qrn_error err;
        const struct qrn_matmul_args one = {.w = w->w,
                                            .scales = w->scales,
                                            .biases = w->biases,
                                            .x = qrn_tensor_slice(*x, 0, i, 1),
                                            .out = qrn_tensor_2d(QRN_F32, out + i * n, 1, n),
                                            .activation = activation};
        if (qrn_matmul(dev, &one, &err) != QRN_OK) fail_msg("%s", err.text);
    }
    return out;
}

/* As given and, in whole blocks, as x that was rounded before. */
static void check(struct mem *m, struct qrn_device *dev, const struct weights *w,
                  const struct qrn_tensor *x, const char *what)
{
    const bool is_bf16 = w->w.dtype == QRN_BF16;
    const enum qrn_activation_type activation = is_bf16 ? QRN_ACT_BF16 : QRN_ACT_Q8;
    const float *want = rows_alone(m, dev, w, x, activation);
    struct qrn_error err;
    struct qrn_matmul_args a = {
        .w = is_bf16 ? w->w : pack_weights(m, dev, w, activation),
        .x = *x,
        .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){x->shape[0], w->w.shape[0]}),
        .activation = activation,
        .layout = is_bf16 ? QRN_LAYOUT_ROWS : QRN_LAYOUT_PACKED};
    const struct qrn_kernel *k = matmul_kernel(dev, name_of_kernel);
    for (int is_rounded = 0; is_rounded < 2; is_rounded++) {
        if (is_rounded && x->shape[1] % 128) break;
        if (is_rounded) {
            const struct qrn_cast_args cast = {
                *x, mem_tensor(m, is_bf16 ? QRN_BF16 : QRN_Q8_ACT, 2, x->shape)};
            if (qrn_cast(dev, &cast, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
            a.x = cast.out;
        }
        assert_true(k->supports(&a));
        memset(a.out.data, 0xff, a.out.n_bytes);
        if (qrn_kernel_run(dev, k, &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        if (memcmp(want, a.out.data, a.out.n_bytes) != 0)
            fail_msg("%s%s: other bits than rows one by one", what,
                     is_rounded ? ", rounded x" : "");
    }
}

static void check_shape(struct qrn_device *dev, size_t t, int64_t n_rows, int64_t n, int64_t k,
                        int64_t group, enum qrn_dtype scales_type)
{
    struct mem m = {0};
    struct rng r = {7 * t + (uint64_t)n_rows};
    const struct weights w =
        random_weights(&m, &r, t, 2, (const int64_t[]){n, k}, group, scales_type);
    const struct qrn_tensor x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){n_rows, k});
    char what[96];
    ((float *)x.data)[k + 1] = NAN; /* a row of them */
    (void)snprintf(what, sizeof what, "%s, M %d, N %d, K %d", qrn_dtype_info(w.w.dtype)->name,
                   (int)n_rows, (int)n, (int)k);
    check(&m, dev, &w, &x, what);
    mem_free_all(&m);
}

static bool has_kernel(enum qrn_dtype dtype)
{
    return dtype == QRN_BF16 || qrn_has_integer_form(dtype);
}

/* Every type; N and K end within panels. */
static void test_types(void **state)
{
    (void)state;
    struct qrn_device *dev = matmul_device("4", name_of_kernel);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const bool small = qrn_dtype_info(weight_types[t].dtype)->block_elements <= 32;
        if (!has_kernel(weight_types[t].dtype)) continue;
        check_shape(dev, t, 67, 37, small ? 416 : 512, 32, QRN_F32);
        if (!qrn_is_mlx(weight_types[t].dtype)) continue;
        check_shape(dev, t, 66, 33, 448, 64, QRN_BF16);
        check_shape(dev, t, 66, 33, 384, 128, QRN_F16);
    }
    qrn_device_close(dev);
}

/* Tiles that rows of x and of weights leave partly empty, several to a block, of both sizes. */
static void test_edges(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = {{65, 1, 64}, {128, 128, 128}, {129, 300, 160}, {257, 1290, 64}, {300, 257, 288}};
    struct qrn_device *dev = matmul_device("4", name_of_kernel);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        check_shape(dev, weight_type_of(QRN_BF16), cases[c].m, cases[c].n, cases[c].k, 32, QRN_F32);
        check_shape(dev, weight_type_of(c % 2 ? QRN_Q8_0 : QRN_Q4_1), cases[c].m, cases[c].n,
                    cases[c].k, 32, QRN_F32);
    }
    check_shape(dev, weight_type_of(QRN_Q4_K), 140, 270, 768, 32, QRN_F32);
    check_shape(dev, weight_type_of(QRN_Q6_K), 140, 270, 768, 32, QRN_F32);
    qrn_device_close(dev);
}

/* Bytes of weights that are all alike, but for scales, with codes of x at their end: sums of integers reach what they can, to
 * which they are exact. */
static void test_large_sums(void **state)
{
    (void)state;
    enum { M = 66, N = 33, K = 512 };
    static const uint8_t patterns[] = {0xff, 0x00, 0x7f, 0x80, 0xf0};
    struct qrn_device *dev = matmul_device("4", name_of_kernel);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const enum qrn_dtype dtype = weight_types[t].dtype;
        if (!qrn_has_integer_form(dtype)) continue;
        for (size_t i = 0; i < sizeof patterns; i++) {
            struct mem m = {0};
            struct rng r = {t};
            const struct weights w =
                random_weights(&m, &r, t, 2, (const int64_t[]){N, K}, 64, QRN_F32);
            const struct qrn_tensor x = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){M, K});
            const size_t block = (size_t)qrn_dtype_info(dtype)->block_bytes;
            const int *half = weight_types[t].half;
            uint8_t *bytes = w.w.data;
            char what[64];
            for (size_t b = 0; b < w.w.n_bytes; b++) {
                const int at = (int)(b % block);
                const bool is_scale = (half[0] >= 0 && at / 2 == half[0] / 2) ||
                                      (half[1] >= 0 && at / 2 == half[1] / 2) ||
                                      (dtype == QRN_MXFP4 && at == 0);
                if (!is_scale && rng_below(&r, 64)) bytes[b] = patterns[i];
            }
            for (int64_t e = 0; e < (int64_t)M * K; e++)
                ((float *)x.data)[e] = rng_below(&r, 64) ? 1.0f : 0.5f;
            (void)snprintf(what, sizeof what, "%s, bytes %02x", qrn_dtype_info(dtype)->name,
                           (unsigned)patterns[i]);
            check(&m, dev, &w, &x, what);
            mem_free_all(&m);
        }
    }
    qrn_device_close(dev);
}

/* Slots of experts that begin anywhere, more than a tile of one, none of others, some of none. */
static void check_experts(struct qrn_device *dev, enum qrn_dtype dtype)
{
    enum { TOKENS = 60, TOP_K = 4, SLOTS = TOKENS * TOP_K, E = 7, N = 140, K = 256 };
    const bool is_bf16 = dtype == QRN_BF16;
    struct mem m = {0};
    struct rng r = {3};
    struct qrn_error err;
    const struct weights w =
        random_weights(&m, &r, weight_type_of(dtype), 3, (const int64_t[]){E, N, K}, 64, QRN_BF16);
    const struct qrn_matmul_id_args a = {
        .w = is_bf16 ? w.w : pack_weights(&m, dev, &w, QRN_ACT_Q8),
        .x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){TOKENS, 1, K}),
        .ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){TOKENS, TOP_K}),
        .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){TOKENS, TOP_K, N}),
        .activation = is_bf16 ? QRN_ACT_BF16 : QRN_ACT_Q8,
        .layout = is_bf16 ? QRN_LAYOUT_ROWS : QRN_LAYOUT_PACKED};
    const struct qrn_tensor x = qrn_tensor_2d(QRN_F32, a.x.data, TOKENS, K);
    const struct qrn_kernel *k = kernel_by_expert(dev);
    int32_t *ids = a.ids.data;
    float *want[E];
    for (int e = 0; e < E; e++) {
        struct weights of = {.w = qrn_tensor_slice(w.w, 0, e, 1)};
        of.w = qrn_tensor_2d(dtype, of.w.data, N, K);
        if (qrn_is_mlx(dtype)) {
            const struct qrn_tensor s = qrn_tensor_slice(w.scales, 0, e, 1),
                                    b = qrn_tensor_slice(w.biases, 0, e, 1);
            of.scales = qrn_tensor_2d(s.dtype, s.data, N, K / 64);
            of.biases = qrn_tensor_2d(b.dtype, b.data, N, K / 64);
        }
        want[e] = rows_alone(&m, dev, &of, &x, a.activation);
    }
    for (int i = 0; i < SLOTS; i++)
        ids[i] = i % 17 == 5 ? -1 : i % 3 ? 4 : (int32_t)rng_below(&r, E - 1);
    assert_true(k->supports(&a));
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_kernel_run(dev, k, &a, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < SLOTS; i++) {
        const float *got = (const float *)a.out.data + (ptrdiff_t)i * N;
        if (ids[i] < 0)
            for (int j = 0; j < N; j++) assert_true(isnan(got[j]));
        else if (memcmp(got, want[ids[i]] + (ptrdiff_t)(i / TOP_K) * N, N * sizeof *got) != 0)
            fail_msg("%s: slot %d has other bits than alone", qrn_dtype_info(dtype)->name, i);
    }
    mem_free_all(&m);
}

static void test_experts(void **state)
{
    (void)state;
    static const enum qrn_dtype types[] = {QRN_BF16, QRN_Q4_0, QRN_Q4_K,
                                           QRN_Q5_K, QRN_Q6_K, QRN_MLX_Q4};
    struct qrn_device *dev = matmul_device("4", name_of_kernel);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) check_experts(dev, types[i]);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_large_sums),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
