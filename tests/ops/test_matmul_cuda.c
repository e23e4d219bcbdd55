/* SPDX-License-Identifier: MIT
 * Products on a GPU, real or emulated: a row of out is a function of its x row and the weights alone.
 * Every kernel gives, by memcmp, what rows one by one from weights in rows give: packed or not, any
 * number of rows, experts in groups, x rounded before; but for those of many rows of bf16.  Packed weights may be made in pieces. */
#include <stdio.h>
#include <stdlib.h>

#include "support/weights.h"

static struct qrn_tensor rounded(struct mem *m, struct qrn_device *dev, struct qrn_tensor x,
                                 enum qrn_dtype to)
{
    const struct qrn_cast_args cast = {x, mem_tensor(m, to, x.n_dims, x.shape)};
    struct qrn_error err;
    if (qrn_cast(dev, &cast, &err) != QRN_OK) fail_msg("%s", err.text);
    return cast.out;
}

/* Every kernel that takes a, each against want. */
static size_t run_kernels(struct qrn_device *dev, enum qrn_op_id op, const void *args,
                          const struct qrn_tensor *out, const float *want, const char *what)
{
    const struct qrn_kernel *k;
    size_t n_run = 0;
    for (size_t i = 0; (k = qrn_kernel_at(dev, op, i)) != NULL; i++) {
        struct qrn_error err;
        if (k->supports && !k->supports(args)) continue;
        memset(out->data, 0xff, out->n_bytes);
        if (qrn_kernel_run(dev, k, args, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        if (memcmp(want, out->data, out->n_bytes) != 0)
            fail_msg("%s, %s: other bits than rows one by one", k->name, what);
        n_run++;
    }
    return n_run;
}

static void check(struct qrn_device *dev, size_t t, enum qrn_activation_type act, int64_t n_rows,
                  int64_t n, int64_t k, int64_t group, enum qrn_dtype scales_type)
{
    struct mem m = {0};
    struct rng r = {7 * t + (uint64_t)n_rows};
    struct qrn_error err;
    const struct weights w =
        random_weights(&m, &r, t, 2, (const int64_t[]){n, k}, group, scales_type);
    struct qrn_matmul_args a = {.w = w.w,
                                .scales = w.scales,
                                .biases = w.biases,
                                .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){n_rows, k}),
                                .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
                                .activation = act};
    const struct qrn_tensor x = a.x;
    float *want = mem_guarded(&m, a.out.n_bytes);
    char what[96];
    (void)snprintf(what, sizeof what, "%s, activation %d, M %d, N %d, K %d",
                   qrn_dtype_info(w.w.dtype)->name, (int)act, (int)n_rows, (int)n, (int)k);
    for (int64_t i = 0; i < n_rows; i++) {
        struct qrn_matmul_args one = a;
        one.x = qrn_tensor_slice(x, 0, i, 1);
        one.out = qrn_tensor_2d(QRN_F32, want + i * n, 1, n);
        if (qrn_matmul(dev, &one, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    }
    const size_t n_in_rows = run_kernels(dev, QRN_OP_matmul, &a, &a.out, want, what);
    if (act == QRN_ACT_BF16 && k % 8 == 0 && n > 0) /* such rows are for bulk copies */
        assert_int_equal(n_in_rows, n_rows > 8 || n_rows * k > 60000 ? 2 : 3);
    const bool q8 = act == QRN_ACT_Q8 && qrn_has_integer_form(w.w.dtype);
    if (q8) {
        a.w = pack_weights(&m, dev, &w, QRN_ACT_Q8);
        a.scales = a.biases = (struct qrn_tensor){0};
        a.layout = QRN_LAYOUT_PACKED;
        const size_t n_run = run_kernels(dev, QRN_OP_matmul, &a, &a.out, want, what);
        assert_int_equal(n_run, n_rows <= 4 ? 3 : 2);
        if (k % 128 == 0) {
            a.x = rounded(&m, dev, x, QRN_Q8_ACT);
            run_kernels(dev, QRN_OP_matmul, &a, &a.out, want, what);
        }
    }
    if (act == QRN_ACT_BF16 && w.w.dtype == QRN_BF16) {
        a.x = rounded(&m, dev, x, QRN_BF16);
        run_kernels(dev, QRN_OP_matmul, &a, &a.out, want, what);
    }
    mem_free_all(&m);
}

static void test_rows(void **state)
{
    (void)state;
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev) skip();
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const bool small = qrn_dtype_info(weight_types[t].dtype)->block_elements <= 32;
        if (!qrn_has_integer_form(weight_types[t].dtype)) continue;
        check(dev, t, QRN_ACT_Q8, 3, 37, 768, 64, QRN_BF16);
        check(dev, t, QRN_ACT_Q8, 11, 33, small ? 480 : 512, 32, QRN_F32);
        /* panels come in pairs: of five one is left */
        check(dev, t, QRN_ACT_Q8, 2 + t % 3, 40, small ? 128 * 5 : 128 * 6, 32, QRN_F32);
        if (t % 3 == 0 || qrn_is_mlx(weight_types[t].dtype))
            check(dev, t, QRN_ACT_Q8, 34, 5, 1280, 128, QRN_F16);
    }
    check(dev, 5, QRN_ACT_Q8, 1, 3, 128 * 70, 32,
          QRN_F32); /* more than is in shared memory at once */
    check(dev, 5, QRN_ACT_Q8, 3, 3, 128 * 37, 32, QRN_F32);
    check(dev, 5, QRN_ACT_Q8, 1, 40, 128 * 1250, 32, QRN_F32); /* leaves room for a ring of few places */
    qrn_device_close(dev);
}

/* Floats of each type, and bf16 with activations rounded to it. */
static void test_floats(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = {{1, 5, 64},     {3, 40, 100},   {9, 70, 1030}, {33, 35, 515},
                 {21, 70, 136},  {70, 130, 256}, {8, 77, 200},  {6, 32, 8},
                 {30, 410, 264}, {64, 330, 136}, {16, 50, 392}, {130, 450, 136}, {300, 520, 392}};
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev) skip();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t t = 0; t < 4; t++)
            check(dev, t < 3 ? t : 2, t < 3 ? QRN_ACT_F32 : QRN_ACT_BF16, cases[c].m, cases[c].n,
                  cases[c].k, 32, QRN_F32);
    qrn_device_close(dev);
}

/* Pieces of QRN_PACK_ROWS rows, one after the other, are the whole. */
static void test_pieces(void **state)
{
    (void)state;
    enum { N = QRN_PACK_ROWS + 21 };
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev) skip();
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct mem m = {0};
        struct rng r = {3 * t};
        const struct weights w =
            random_weights(&m, &r, t, 2, (const int64_t[]){N, 512}, 64, QRN_F16);
        const struct qrn_tensor whole = pack_weights(&m, dev, &w, QRN_ACT_Q8);
        size_t done = 0;
        for (int64_t first = 0; whole.n_dims && first < N; first += QRN_PACK_ROWS) {
            const int64_t n = N - first < QRN_PACK_ROWS ? N - first : QRN_PACK_ROWS;
            struct weights part = {.w = qrn_tensor_slice(w.w, 0, first, n)};
            if (w.scales.n_dims) {
                part.scales = qrn_tensor_slice(w.scales, 0, first, n);
                part.biases = qrn_tensor_slice(w.biases, 0, first, n);
            }
            const struct qrn_tensor piece = pack_weights(&m, dev, &part, QRN_ACT_Q8);
            if (done + piece.n_bytes > whole.n_bytes ||
                memcmp(piece.data, (const char *)whole.data + done, piece.n_bytes) != 0)
                fail_msg("%s: rows from %d on", qrn_dtype_info(w.w.dtype)->name, (int)first);
            done += piece.n_bytes;
        }
        if (whole.n_dims) assert_int_equal(done, whole.n_bytes);
        mem_free_all(&m);
    }
    qrn_device_close(dev);
}

static void check_experts(struct qrn_device *dev, size_t t, int n_tokens, int n)
{
    enum { TOP_K = 3, E = 40, K = 384 };
    const bool bf16 = weight_types[t].dtype == QRN_BF16;
    const int64_t k = qrn_dtype_info(weight_types[t].dtype)->block_elements > 32 ? 512 : K;
    struct mem m = {0};
    struct rng r = {t};
    struct qrn_error err;
    const struct weights w = random_weights(&m, &r, t, 3, (const int64_t[]){E, n, k}, 64, QRN_F32);
    struct qrn_matmul_id_args a = {
        .w = w.w,
        .x = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){n_tokens, 1, k}),
        .ids = mem_tensor(&m, QRN_I32, 2, (const int64_t[]){n_tokens, TOP_K}),
        .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){n_tokens, TOP_K, n}),
        .activation = bf16 ? QRN_ACT_BF16 : QRN_ACT_Q8};
    int32_t *ids = a.ids.data;
    float *want = mem_guarded(&m, a.out.n_bytes);
    for (int i = 0; i < n_tokens * TOP_K; i++) {
        ids[i] = i % 3 ? 7 : (int32_t)rng_below(&r, E);
        const struct qrn_tensor one = qrn_tensor_slice(w.w, 0, ids[i], 1);
        const struct qrn_matmul_args row = {
            .w = qrn_tensor_2d(one.dtype, one.data, n, k),
            .x = qrn_tensor_2d(QRN_F32, (float *)a.x.data + i / TOP_K * k, 1, k),
            .out = qrn_tensor_2d(QRN_F32, want + (ptrdiff_t)i * n, 1, n),
            .activation = a.activation};
        if (qrn_matmul(dev, &row, &err) != QRN_OK) fail_msg("%s", err.text);
    }
    run_kernels(dev, QRN_OP_matmul_id, &a, &a.out, want, "experts in rows");
    if (!bf16) {
        a.w = pack_weights(&m, dev, &w, QRN_ACT_Q8);
        a.layout = QRN_LAYOUT_PACKED;
        assert_int_equal(run_kernels(dev, QRN_OP_matmul_id, &a, &a.out, want, "experts, packed"),
                         n_tokens * TOP_K > 32 ? 2 : 3);
    }
    mem_free_all(&m);
}

/* Slots in groups: more of them than a tile has, of one expert; experts without slots.  Few slots: shares
 * of blocks that end within a matrix. */
static void test_experts(void **state)
{
    (void)state;
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev) skip();
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        const enum qrn_dtype dtype = weight_types[t].dtype;
        if (dtype != QRN_Q4_K && dtype != QRN_Q8_0 && dtype != QRN_BF16) continue;
        check_experts(dev, t, 70, 21);
        check_experts(dev, t, 2, 101);
    }
    qrn_device_close(dev);
}

/* Groups of rows that two blocks share, whatever their number; rows of x in several tiles. */
static void test_shares(void **state)
{
    static const char *const n_multiprocessors[] = {"1", "3", "4", "7"};
    (void)state;
    for (size_t i = 0; i < sizeof n_multiprocessors / sizeof *n_multiprocessors; i++) {
        setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors[i], 1);
        struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
        unsetenv("QRN_EMULATED_MULTIPROCESSORS");
        if (!dev) skip();
        for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
            const enum qrn_dtype dtype = weight_types[t].dtype;
            if (dtype == QRN_BF16) {
                check(dev, t, QRN_ACT_BF16, 1, 229, 1288, 32, QRN_F32);
                check(dev, t, QRN_ACT_BF16, 2 + 2 * (int64_t)i, 165, 760, 32, QRN_F32);
                check(dev, t, QRN_ACT_BF16, 3, 45 * (int64_t)i, 392, 32, QRN_F32);
            }
            if (dtype != QRN_Q4_0 && dtype != QRN_Q6_K && dtype != QRN_MLX_Q4) continue;
            check(dev, t, QRN_ACT_Q8, 1, 229, 1280, 64, QRN_BF16);
            check(dev, t, QRN_ACT_Q8, 2 + (int64_t)i, 165, 768, 64, QRN_F16);
            if (dtype == QRN_MLX_Q4) check(dev, t, QRN_ACT_Q8, 19, 65, 1280, 64, QRN_F16);
        }
        qrn_device_close(dev);
    }
}

/* Rings that end whichever warp is the slowest: one that multiplies, copies or adds. */
static void test_slow_warps(void **state)
{
    static const char *const warps[] = {"0", "6", "8", "9", "11", "12", "13"};
    (void)state;
    for (size_t i = 0; i < sizeof warps / sizeof *warps; i++) {
        setenv("QRN_EMULATED_SLOW_WARP", warps[i], 1);
        struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
        unsetenv("QRN_EMULATED_SLOW_WARP");
        if (!dev) skip();
        for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
            const enum qrn_dtype dtype = weight_types[t].dtype;
            if (dtype == QRN_BF16) check(dev, t, QRN_ACT_BF16, 1, 101, 6400, 32, QRN_F32);
            if (dtype != QRN_Q4_0 && dtype != QRN_Q4_K) continue;
            check(dev, t, QRN_ACT_Q8, 1, 101, 7936, 32, QRN_F32);
            check(dev, t, QRN_ACT_Q8, 3, 69, 2304, 32, QRN_F32);
        }
        qrn_device_close(dev);
    }
}

/* Rows of bf16 x that shared memory has no room for, or little. */
static void test_long_rows(void **state)
{
    (void)state;
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    if (!dev) skip();
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        if (weight_types[t].dtype != QRN_BF16) continue;
        check(dev, t, QRN_ACT_BF16, 5, 135, 5128, 32, QRN_F32);
        check(dev, t, QRN_ACT_BF16, 7, 135, 12296, 32, QRN_F32);
    }
    qrn_device_close(dev);
}

/* The expression of products with rounded activations is that of processors with FMA. */
static void test_processor(void **state)
{
    (void)state;
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul), *cpu;
    struct qrn_error err;
    if (!dev) skip();
    assert_int_equal(qrn_device_open(NULL, &cpu, &err), QRN_OK);
    if (strcmp(qrn_device_bits(cpu), "cpu generic") == 0) { /* it multiplies, then adds */
        qrn_device_close(cpu);
        qrn_device_close(dev);
        skip();
    }
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct mem m = {0};
        struct rng r = {t};
        if (!qrn_has_integer_form(weight_types[t].dtype)) continue;
        const struct weights w =
            random_weights(&m, &r, t, 2, (const int64_t[]){9, 512}, 64, QRN_BF16);
        struct qrn_matmul_args a = {.w = w.w,
                                    .scales = w.scales,
                                    .biases = w.biases,
                                    .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){2, 512}),
                                    .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){2, 9}),
                                    .activation = QRN_ACT_Q8};
        float *want = mem_guarded(&m, a.out.n_bytes);
        if (qrn_matmul(cpu, &a, &err) != QRN_OK) fail_msg("%s", err.text);
        memcpy(want, a.out.data, a.out.n_bytes);
        run_kernels(dev, QRN_OP_matmul, &a, &a.out, want, qrn_dtype_info(w.w.dtype)->name);
        mem_free_all(&m);
    }
    qrn_device_close(cpu);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_floats),
        cmocka_unit_test(test_pieces),    cmocka_unit_test(test_experts),
        cmocka_unit_test(test_processor), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_long_rows), cmocka_unit_test(test_slow_warps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
