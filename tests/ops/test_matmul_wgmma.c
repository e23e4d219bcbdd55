/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rows on a GPU, real or emulated, with activations rounded to bf16:
 * bf16 weights in rows and packed ones, around the edges of tiles, by expert however slots are
 * spread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/matmul_gpu.h"

static const struct qrn_kernel *kernel_of(struct qrn_device *dev, enum qrn_op_id op)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, op, i)) != NULL; i++)
        if (strstr(k->name, ".wgmma")) return k;
    return NULL;
}

static float rounded(float x)
{
    return qrn_bf16_to_float(qrn_float_to_bf16(x));
}

/* Sum of rounded weights and activations. */
static double sum_of(const struct weights *w, int64_t matrix, int64_t row, const float *x)
{
    const int64_t k = w->w.shape[w->w.n_dims - 1];
    const struct qrn_weight_row from =
        qrn_weight_row(&w->w, &w->scales, &w->biases, 0, matrix, row);
    float values[4096];
    double sum = 0.0;
    qrn_weight_decode(&from, 0, k, values);
    for (int64_t i = 0; i < k; i++) sum += (double)rounded(values[i]) * (double)rounded(x[i]);
    return sum;
}

/* Decoding may round once where the reference does twice: a weight in many thousand then differs in
 * its last bit of bf16. */
static void compare(const struct weights *w, const int32_t *ids, const struct qrn_tensor *x,
                    int64_t slots_per_x, const struct qrn_tensor *out, const char *what)
{
    const int64_t n = w->w.shape[w->w.n_dims - 2], k = w->w.shape[w->w.n_dims - 1];
    const int64_t n_rows = qrn_tensor_n_elements(out) / n;
    double most = 0.0, squares = 0.0;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const float got = ((const float *)out->data)[r * n + i];
            if (ids && ids[r] < 0) {
                if (!isnan(got)) fail_msg("%s: row %d of no expert is %g", what, (int)r, got);
                continue;
            }
            const double want =
                sum_of(w, ids ? ids[r] : 0, i, (const float *)x->data + r / slots_per_x * k);
            if (!(fabs(got - want) <= most)) most = fabs(got - want);
            squares += want * want;
        }
    if (!(most <= 1e-3 * sqrt(squares / (double)(n_rows * n))))
        fail_msg("%s: off by %g", what, most);
}

static void check_in_order(struct qrn_device *dev, enum qrn_dtype dtype, int64_t n_rows, int64_t n,
                           int64_t k, int64_t group, enum qrn_dtype scales_type, bool any_order)
{
    struct mem m = {0};
    struct rng r = {(uint64_t)(n_rows + k)};
    struct qrn_error err;
    const struct weights w = random_weights(&m, &r, weight_type_of(dtype), 2,
                                            (const int64_t[]){n, k}, group, scales_type);
    const struct qrn_matmul_args a = {
        .w = pack_weights(&m, dev, &w, QRN_ACT_Q8),
        .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
        .activation = QRN_ACT_BF16,
        .any_order = any_order,
        .layout = QRN_LAYOUT_PACKED};
    char what[96];
    (void)snprintf(what, sizeof what, "%s, M %d, N %d, K %d", qrn_dtype_info(dtype)->name,
                   (int)n_rows, (int)n, (int)k);
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_matmul(dev, &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    compare(&w, NULL, &a.x, 1, &a.out, what);
    matmul_check_strides(&m, dev, "cuda.matmul.wgmma", &a, what);
    mem_free_all(&m);
}

static void check_packed(struct qrn_device *dev, enum qrn_dtype dtype, int64_t n_rows, int64_t n,
                         int64_t k, int64_t group, enum qrn_dtype scales_type)
{
    check_in_order(dev, dtype, n_rows, n, k, group, scales_type, false);
}

static void test_packed(void **state)
{
    (void)state;
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev || !kernel_of(dev, QRN_OP_matmul)) skip();
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const enum qrn_dtype type = weight_types[t].dtype;
        if (!qrn_has_integer_form(type)) continue;
        const bool small = qrn_dtype_info(type)->block_elements <= 32;
        check_packed(dev, type, 33, 37, small ? 288 : 512, 32, QRN_F32);
        if (qrn_is_mlx(type)) check_packed(dev, type, 2, 140, 384, 128, QRN_BF16);
    }
    check_packed(dev, QRN_MLX_Q4, 3, 70, 448, 64, QRN_F16);
    qrn_device_close(dev);
}

/* Both tiles: on the emulated device, which has few multiprocessors, the larger one is taken where
 * there is more than one round of the smaller. */
static void test_packed_edges(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = {{1, 1, 32}, {65, 129, 96}, {128, 128, 128}, {129, 300, 160}, {257, 1290, 64}};
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev || !kernel_of(dev, QRN_OP_matmul)) skip();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_packed(dev, c % 2 ? QRN_Q8_0 : QRN_Q4_0, cases[c].m, cases[c].n, cases[c].k, 32,
                     QRN_F32);
    check_packed(dev, QRN_Q6_K, 300, 300, 256, 32, QRN_F32); /* some tiles in halves */
    qrn_device_close(dev);
}

/* Tiles in parts of k, so few that they are not decoded to registers (test_matmul_prompts.c); an
 * emulated device has so many multiprocessors. */
static void check_parts(const char *n_multiprocessors, enum qrn_dtype dtype, int64_t n_rows,
                        int64_t n, int64_t k)
{
    setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    if (!dev || !kernel_of(dev, QRN_OP_matmul)) skip();
    check_in_order(dev, dtype, n_rows, n, k, 32, QRN_F32, true);
    qrn_device_close(dev);
}

static void test_parts(void **state)
{
    (void)state;
    check_parts("11", QRN_Q4_0, 200, 100, 3072);
    check_parts("20", QRN_Q6_K, 270, 100, 4096); /* two tiles, one of few rows */
    check_parts("48", QRN_Q8_0, 130, 515, 3872); /* five tiles; k ends in a panel's midst */
}

/* A row of out is the same in calls of other numbers of rows. */
static void test_bf16(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = {{65, 1, 8},     {129, 65, 200}, {200, 300, 72},  {257, 130, 64},
                 {300, 300, 64}, {600, 700, 64}, {100, 100, 2304}}; /* in parts */
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev || !kernel_of(dev, QRN_OP_matmul)) skip();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mem m = {0};
        struct rng r = {c};
        struct qrn_error err;
        const int64_t n = cases[c].n, k = cases[c].k, n_rows = cases[c].m;
        struct qrn_matmul_args a = {.w = random_weights(&m, &r, weight_type_of(QRN_BF16), 2,
                                                        (const int64_t[]){n, k}, 32, QRN_F32)
                                             .w,
                                    .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){n_rows, k}),
                                    .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
                                    .activation = QRN_ACT_BF16,
                                    .any_order = true};
        char what[64];
        (void)snprintf(what, sizeof what, "M %d, N %d, K %d", (int)n_rows, (int)n, (int)k);
        assert_true(kernel_of(dev, QRN_OP_matmul)->supports(&a));
        op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, what);
        if (qrn_matmul(dev, &a, &err) != QRN_OK) fail_msg("%s", err.text);
        if (n_rows >= 129) {
            const struct qrn_tensor all = a.out;
            a.x = qrn_tensor_slice(a.x, 0, n_rows - 70, 70);
            a.out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){70, n});
            if (qrn_matmul(dev, &a, &err) != QRN_OK) fail_msg("%s", err.text);
            assert_memory_equal((const float *)all.data + (n_rows - 70) * n, a.out.data,
                                a.out.n_bytes);
        }
        mem_free_all(&m);
    }
    qrn_device_close(dev);
}

/* Batches of matrices, x as bf16, parts of wider rows. */
static void test_bf16_batches(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {3};
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev || !kernel_of(dev, QRN_OP_matmul)) skip();
    const struct qrn_tensor wide = random_weights(&m, &r, weight_type_of(QRN_BF16), 4,
                                                  (const int64_t[]){2, 2, 40, 96}, 32, QRN_F32)
                                       .w;
    const struct qrn_tensor x = mem_filled(&m, &r, 1.0, 4, (const int64_t[]){4, 6, 12, 100});
    struct qrn_matmul_args a = {
        .w = qrn_tensor_slice(qrn_tensor_slice(wide, 3, 16, 72), 2, 3, 35),
        .x = qrn_tensor_slice(x, 3, 5, 72),
        .out =
            qrn_tensor_slice(mem_filled(&m, &r, 1.0, 4, (const int64_t[]){4, 6, 12, 40}), 3, 2, 35),
        .activation = QRN_ACT_BF16,
        .any_order = true};
    assert_true(kernel_of(dev, QRN_OP_matmul)->supports(&a));
    op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, "batches");
    a.x = mem_tensor(&m, QRN_BF16, 4, (const int64_t[]){4, 6, 12, 72});
    for (int64_t i = 0; i < qrn_tensor_n_elements(&a.x); i++)
        ((uint16_t *)a.x.data)[i] = qrn_float_to_bf16((float)rng_normal(&r));
    op_test_against_reference(dev, QRN_OP_matmul, &a, 1e-5, "batches, x as bf16");
    op_test_same_bits(QRN_OP_matmul, &a, "batches, x as bf16");
    qrn_device_close(dev);
    mem_free_all(&m);
}

/* How slots are spread over experts: evenly, all to one, some to none. */
enum spread { EVENLY, ALL_TO_ONE, SOME_TO_NONE };

static void fill_ids(struct rng *r, enum spread spread, int64_t n_experts, struct qrn_tensor *ids)
{
    for (int64_t i = 0; i < qrn_tensor_n_elements(ids); i++) {
        int32_t id = spread == ALL_TO_ONE ? 1 : (int32_t)rng_below(r, n_experts);
        if (spread == SOME_TO_NONE && i % 5 == 2) id = -1;
        ((int32_t *)ids->data)[i] = id;
    }
}

/* The same ids as columns of wider rows. */
static struct qrn_tensor widened(struct mem *m, const struct qrn_tensor *ids)
{
    const int64_t n = ids->shape[0], top_k = ids->shape[1];
    const struct qrn_tensor wide = mem_tensor(m, QRN_I32, 2, (const int64_t[]){n, top_k + 1});
    for (int64_t i = 0; i < n * (top_k + 1); i++) ((int32_t *)wide.data)[i] = 0;
    for (int64_t i = 0; i < n * top_k; i++)
        ((int32_t *)wide.data)[i + i / top_k + 1] = ((const int32_t *)ids->data)[i];
    return qrn_tensor_slice(wide, 1, 1, top_k);
}

static void check_experts(struct qrn_device *dev, enum qrn_dtype dtype, int64_t n_tokens,
                          int64_t n_x, enum spread spread)
{
    enum { E = 5, TOP_K = 2, N = 133, K = 256 };
    struct mem m = {0};
    struct rng r = {(uint64_t)n_tokens};
    struct qrn_error err;
    const bool bf16 = dtype == QRN_BF16;
    const struct weights w =
        random_weights(&m, &r, weight_type_of(dtype), 3, (const int64_t[]){E, N, K}, 64, QRN_F16);
    struct qrn_matmul_id_args a = {
        .w = bf16 ? w.w : pack_weights(&m, dev, &w, QRN_ACT_Q8),
        .x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){n_tokens, n_x, K}),
        .ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){n_tokens, TOP_K}),
        .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){n_tokens, TOP_K, N}),
        .activation = QRN_ACT_BF16,
        .any_order = bf16, /* packed weights in any order: test_matmul_experts.c */
        .layout = bf16 ? QRN_LAYOUT_ROWS : QRN_LAYOUT_PACKED};
    char what[64];
    (void)snprintf(what, sizeof what, "%s, %d tokens, spread %d", qrn_dtype_info(dtype)->name,
                   (int)n_tokens, (int)spread);
    fill_ids(&r, spread, E, &a.ids);
    const struct qrn_kernel *k = kernel_of(dev, QRN_OP_matmul_id);
    assert_true(k->supports(&a));
    memset(a.out.data, 0xff, a.out.n_bytes);
    if (qrn_kernel_run(dev, k, &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    compare(&w, a.ids.data, &a.x, TOP_K / n_x, &a.out, what);
    const struct qrn_tensor first = a.out;
    a.ids = widened(&m, &a.ids);
    a.out = mem_tensor(&m, QRN_F32, 3, first.shape);
    if (qrn_kernel_run(dev, k, &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    if (memcmp(a.out.data, first.data, first.n_bytes) != 0) fail_msg("%s, wide ids", what);
    mem_free_all(&m);
}

static void test_experts(void **state)
{
    (void)state;
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev || !kernel_of(dev, QRN_OP_matmul_id)) skip();
    check_experts(dev, QRN_BF16, 70, 1, EVENLY);
    check_experts(dev, QRN_BF16, 70, 2, SOME_TO_NONE);
    check_experts(dev, QRN_Q4_K, 70, 1, ALL_TO_ONE);
    check_experts(dev, QRN_Q4_K, 3, 2, SOME_TO_NONE);
    check_experts(dev, QRN_MLX_Q4, 40, 2, EVENLY);
    check_experts(dev, QRN_BF16, 701, 1, SOME_TO_NONE); /* more slots than are looked at at once */
    check_experts(dev, QRN_Q8_0, 1300, 1, ALL_TO_ONE);  /* the larger tile */
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),       cmocka_unit_test(test_packed_edges),
        cmocka_unit_test(test_parts),        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_batches), cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
