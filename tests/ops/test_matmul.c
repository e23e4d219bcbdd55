/* SPDX-License-Identifier: MIT
 * matmul: every kernel against the reference for every weight type, tails, strides, batches, and
 * every documented error. */
#include <math.h>
#include <stdio.h>

#include "support/shared.h"
#include "support/tensor_file.h"
#include "support/weights.h"

/* Sums of a few hundred float32 products: 2^-24 for each step, of sums about as large as the
 * result; a single result may be small beside its sums. */
static const double tolerance = 1e-5, tolerance_of_one = 4e-5;

static struct qrn_matmul_args make(struct mem *m, struct rng *r, size_t i_type, int64_t n_rows,
                                   int64_t n, int64_t k, int64_t group)
{
    const struct weights w = random_weights(m, r, i_type, 2, (const int64_t[]){n, k}, group,
                                            group == 64 ? QRN_BF16 : QRN_F32);
    return (struct qrn_matmul_args){
        .w = w.w,
        .scales = w.scales,
        .biases = w.biases,
        .x = mem_filled(m, r, 1.0, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
    };
}

static const struct {
    int64_t m, n, k, group;
    const char *why;
} cases[] = {
    {1, 1, 256, 32, "smallest of every type"},
    {1, 33, 512, 64, "one row, odd N"},
    {5, 17, 768, 128, "a few rows, N above a vector"},
    {13, 48, 256, 32, "rows that fill no tile"},
    {0, 16, 256, 64, "no rows"},
    {3, 0, 256, 64, "no weights"},
};

static void test_types(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_matmul);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (int q8 = 0; q8 < 2; q8++) {
                struct mem m = {0};
                struct rng r = {100 * t + c};
                char what[128];
                struct qrn_matmul_args a =
                    make(&m, &r, t, cases[c].m, cases[c].n, cases[c].k, cases[c].group);
                a.activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32;
                snprintf(what, sizeof what, "%s, %s, %s", qrn_dtype_info(a.w.dtype)->name,
                         q8 ? "q8" : "f32", cases[c].why);
                for (size_t i = 0; i < d.n; i++)
                    op_test_against_reference(d.dev[i], QRN_OP_matmul, &a,
                                              c ? tolerance : tolerance_of_one, what);
                if (c == 3) op_test_same_bits(QRN_OP_matmul, &a, what);
                mem_free_all(&m);
            }
    devices_close(&d);
}

static void test_plain_tails(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_matmul);
    static const int64_t ks[] = {0, 1, 7, 33, 100, 1030};
    for (size_t t = 0; t < 4; t++) /* f32 f16 bf16 f64 */
        for (size_t c = 0; c < sizeof ks / sizeof *ks; c++) {
            struct mem m = {0};
            struct rng r = {t + 10 * c};
            const struct qrn_matmul_args a = make(&m, &r, t, 9, 21, ks[c], 32);
            for (size_t i = 0; i < d.n; i++)
                op_test_against_reference(d.dev[i], QRN_OP_matmul, &a, tolerance, "K tail");
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* Columns 32.. of wide x rows, out rows inside wider ones, weights that are a part of a fused
 * matrix. */
static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {7};
    devices_open_for(&d, 2, QRN_OP_matmul);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (int q8 = 0; q8 < 2; q8++) {
            if (qrn_dtype_info(weight_types[t].dtype)->block_elements > 128) continue;
            struct weights w =
                random_weights(&m, &r, t, 2, (const int64_t[]){60, 512}, 32, QRN_F16);
            const int64_t begin = 128, k = 256;
            if (w.scales.n_dims) {
                w.scales =
                    qrn_tensor_slice(qrn_tensor_slice(w.scales, 0, 10, 37), 1, begin / 32, k / 32);
                w.biases =
                    qrn_tensor_slice(qrn_tensor_slice(w.biases, 0, 10, 37), 1, begin / 32, k / 32);
            }
            const struct qrn_tensor x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 400});
            const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 50});
            const struct qrn_matmul_args a = {
                .w = qrn_tensor_slice(qrn_tensor_slice(w.w, 0, 10, 37), 1, begin, k),
                .scales = w.scales,
                .biases = w.biases,
                .x = qrn_tensor_slice(x, 1, 32, k),
                .out = qrn_tensor_slice(out, 1, 5, 37),
                .activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32};
            for (size_t i = 0; i < d.n; i++)
                op_test_against_reference(d.dev[i], QRN_OP_matmul, &a, tolerance,
                                          qrn_dtype_info(a.w.dtype)->name);
        }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_batches(void **state)
{
    (void)state;
    static const struct {
        int nw, nx;
        int64_t w[4], x[4];
        const char *why;
    } batches[] = {
        {2, 3, {19, 64}, {3, 2, 64}, "one matrix for all batches"},
        {3, 3, {2, 19, 64}, {6, 4, 64}, "r2 3"},
        {4, 4, {2, 3, 19, 64}, {4, 6, 5, 64}, "r2 2, r3 2"},
        {3, 4, {3, 19, 64}, {2, 3, 1, 64}, "w without the outer dimension"},
        {4, 4, {2, 1, 19, 64}, {2, 0, 5, 64}, "no batches"},
        {3, 3, {0, 19, 64}, {0, 5, 64}, "no matrices"},
    };
    struct devices d;
    struct mem m = {0};
    struct rng r = {3};
    devices_open_for(&d, 3, QRN_OP_matmul);
    static const enum qrn_dtype types[] = {QRN_F32, QRN_Q4_0, QRN_MLX_Q4};
    for (size_t c = 0; c < sizeof batches / sizeof *batches; c++)
        for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
            for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
                if (weight_types[t].dtype != types[i]) continue;
                const struct weights w =
                    random_weights(&m, &r, t, batches[c].nw, batches[c].w, 32, QRN_BF16);
                int64_t out[4];
                memcpy(out, batches[c].x, sizeof out);
                out[batches[c].nx - 1] = 19;
                const struct qrn_matmul_args a = {
                    .w = w.w,
                    .scales = w.scales,
                    .biases = w.biases,
                    .x = mem_filled(&m, &r, 1.0, batches[c].nx, batches[c].x),
                    .out = mem_tensor(&m, QRN_F32, batches[c].nx, out),
                    .activation = i ? QRN_ACT_Q8 : QRN_ACT_F32};
                for (size_t j = 0; j < d.n; j++)
                    op_test_against_reference(d.dev[j], QRN_OP_matmul, &a, tolerance,
                                              batches[c].why);
            }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_not_finite(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {8};
    devices_open_for(&d, 2, QRN_OP_matmul);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (int i = 0; i < 2; i++) {
            struct qrn_matmul_args a = make(&m, &r, t, 4, 20, 256, 64);
            float *x = a.x.data;
            x[256 + 40] = i ? INFINITY : NAN;
            for (int n = 0; n < 256; n++) x[2 * 256 + n] = 1e-42f; /* no scale in float32 */
            for (int n = 0; n < 256; n++) x[3 * 256 + n] = n % 2 ? 3.4e38f : -1e30f;
            a.activation = QRN_ACT_Q8;
            for (size_t j = 0; j < d.n; j++) {
                struct qrn_error err;
                if (qrn_matmul(d.dev[j], &a, &err) != QRN_OK) fail_msg("%s", err.text);
                const float *out = a.out.data;
                for (int n = 0; n < 20; n++) {
                    assert_true(isfinite(out[n]));
                    assert_false(isfinite(out[20 + n]));
                    if (qrn_has_integer_form(a.w.dtype)) assert_true(isnan(out[20 + n]));
                    assert_true(fabsf(out[40 + n]) < 1e-38f);
                }
            }
        }
    devices_close(&d);
    mem_free_all(&m);
}

/* The largest |got - want| of out, and that of a sum in float32 by the plain loop. */
static void errors_of(const struct qrn_matmul_args *a, double *ours, double *plain)
{
    const int64_t n = a->out.shape[1], k = a->x.shape[1];
    float *w = test_malloc((size_t)k * sizeof *w), *x = test_malloc((size_t)k * sizeof *x);
    *ours = *plain = 0.0;
    for (int64_t r = 0; r < a->x.shape[0] * n; r++) {
        const struct qrn_weight_row row =
            qrn_weight_row(&a->w, &a->scales, &a->biases, 0, 0, r % n);
        const float *from = (const float *)a->x.data + r / n * k;
        const double want = qrn_ref_dot(&row, &a->x, r / n * k, k, a->activation);
        const bool q8 = a->activation == QRN_ACT_Q8 && qrn_has_integer_form(a->w.dtype);
        qrn_weight_decode(&row, 0, k, w);
        for (int64_t i = 0; i < k; i += QRN_Q8_ACT_BLOCK) {
            struct qrn_q8_act block;
            const int left = (int)(k - i < QRN_Q8_ACT_BLOCK ? k - i : QRN_Q8_ACT_BLOCK);
            qrn_q8_act_block(from + i, left, &block);
            for (int j = 0; j < left; j++)
                x[i + j] = q8 ? block.d * (float)block.q[j] : from[i + j];
        }
        float sum = 0.0f;
        for (int64_t i = 0; i < k; i++) sum += w[i] * x[i];
        *ours = fmax(*ours, fabs((double)((const float *)a->out.data)[r] - want));
        *plain = fmax(*plain, fabs((double)sum - want));
    }
    test_free(w);
    test_free(x);
}

/* Blocks that llama.cpp wrote: the error of every kernel is at most 4 times that of the plain
 * loop. */
static void compare_file(const char *path)
{
    struct tensor_file file;
    struct devices d;
    struct mem m = {0};
    struct rng r = {12};
    const char *key;
    json_t *info;
    int n_types = 0;
    tensor_file_open(path, &file);
    devices_open_for(&d, 2, QRN_OP_matmul);
    json_object_foreach(file.header, key, info)
    {
        char name[16];
        size_t n_raw, n_values;
        const char *dot = strstr(key, ".raw");
        if (!dot) continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
        const uint8_t *raw = tensor_file_find(&file, key, &n_raw);
        char values[32];
        snprintf(values, sizeof values, "%s.values", name);
        assert_non_null(tensor_file_find(&file, values, &n_values));
        const int64_t k = 1024, n = (int64_t)(n_values / 4) / k;
        if (n_values / 4 % 1024 != 0) fail_msg("%s has %zu values", name, n_values / 4);
        const struct qrn_matmul_args rows = {
            .w = qrn_tensor_2d(qrn_dtype_from_name(name), mem_guarded(&m, n_raw), n, k),
            .x = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){7, k}),
            .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){7, n})};
        memcpy(rows.w.data, raw, n_raw);
        for (size_t i = 0; i < d.n; i++)
            for (int q8 = 0; q8 < 2; q8++) {
                const struct qrn_kernel *kernel;
                struct qrn_matmul_args a = rows;
                struct qrn_error err;
                double ours, plain;
                a.activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32;
                for (size_t j = 0; (kernel = qrn_kernel_at(d.dev[i], QRN_OP_matmul, j)) != NULL;
                     j++) {
                    if (kernel->supports && !kernel->supports(&a)) continue;
                    if (qrn_kernel_run(d.dev[i], kernel, &a, &err) != QRN_OK)
                        fail_msg("%s", err.text);
                    errors_of(&a, &ours, &plain);
                    if (i == 0)
                        print_message("%-8s %s %-22s error %.3g, plain loop %.3g\n", name,
                                      q8 ? "q8 " : "f32", kernel->name, ours, plain);
                    if (!(ours <= 4 * plain))
                        fail_msg("%s, %s: error %g, plain loop %g", kernel->name, name, ours,
                                 plain);
                }
            }
        n_types++;
    }
    assert_int_equal(n_types, 23);
    devices_close(&d);
    tensor_file_close(&file);
    mem_free_all(&m);
}

static void test_golden_blocks(void **state)
{
    (void)state;
    compare_file("tests/data/block_goldens.safetensors");
}

static void test_shared_blocks(void **state)
{
    (void)state;
    const char *path = shared_path("references/ggml_blocks.safetensors");
    if (!path) skip();
    compare_file(path);
}

static void test_pack(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {6};
    struct qrn_device *dev, *plain;
    struct qrn_error err;
    size_t n_bytes;
    const enum qrn_op_id op = QRN_OP_matmul_pack;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_device_options portable = {.cpu_disable = "avx2,neon"};
    assert_int_equal(qrn_device_open(&portable, &plain, NULL), QRN_OK);
    const struct weights w = random_weights(&m, &r, 5, 2, (const int64_t[]){5, 64}, 32, QRN_F32);
    assert_int_equal(w.w.dtype, QRN_Q4_0);
    const struct qrn_matmul_pack_args good = {.w = w.w};
    struct qrn_matmul_pack_args a = good;
    /* without packed, and without memory */
    a.w.data = NULL;
    assert_int_equal(qrn_matmul_packed_bytes(plain, &a, &n_bytes, &err), QRN_OK);
    assert_int_equal(n_bytes, 0);
    assert_int_equal(qrn_matmul_packed_bytes(dev, &a, &n_bytes, &err), QRN_OK);
    a.w = qrn_tensor_2d(QRN_IQ2_XS, NULL, 5, 256);
    size_t other = 1;
    assert_int_equal(qrn_matmul_packed_bytes(dev, &a, &other, &err), QRN_OK);
    assert_int_equal(other, 0);
    a.w = qrn_tensor_1d(QRN_F32, NULL, 5);
    assert_int_equal(qrn_matmul_packed_bytes(dev, &a, &other, &err), QRN_ERR_SHAPE);
    assert_string_equal(err.text, "matmul_pack: w has 1 dimensions, wants 2 or 3");
    a.w = qrn_tensor_2d(QRN_F32, NULL, 5, 5);
    a.w.shape[1] = -5;
    assert_int_equal(qrn_matmul_packed_bytes(dev, &a, &other, &err), QRN_ERR_SHAPE);
    a.w = qrn_tensor_2d(QRN_F32, NULL, INT64_MAX / 2, INT64_MAX / 2);
    assert_int_equal(qrn_matmul_packed_bytes(dev, &a, &other, &err), QRN_ERR_SHAPE);
    assert_string_equal(err.text, "matmul_pack: the size of w does not fit in memory");
    a.w = qrn_tensor_2d(QRN_I32, NULL, 5, 5);
    assert_int_equal(qrn_matmul_packed_bytes(dev, &a, &other, &err), QRN_ERR_DTYPE);
    a = good;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul_pack: packed is missing");
    a.packed = qrn_tensor_1d(QRN_F32, w.w.data, 5);
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul_pack: packed overlaps w");
    if (n_bytes) { /* a processor with a packed form */
        a.packed = qrn_tensor_1d(QRN_U8, mem_guarded(&m, n_bytes), (int64_t)n_bytes);
        a.packed.n_bytes--;
        op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul_pack: packed needs");
        a.packed.shape[0]--;
        op_test_fails(dev, op, &a, QRN_ERR_UNSUPPORTED, "matmul_pack: no kernel");
        a.packed.dtype = QRN_I8;
        op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "matmul_pack: packed is i8, wants u8");
    }
    qrn_device_close(plain);
    qrn_device_close(dev);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    size_t mlx = 0, q4 = 0;
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        if (weight_types[t].dtype == QRN_MLX_Q4) mlx = t;
        if (weight_types[t].dtype == QRN_Q4_0) q4 = t;
    }
    const struct qrn_matmul_args good = make(&m, &r, q4, 3, 5, 64, 32);
    const struct qrn_matmul_args codes = make(&m, &r, mlx, 3, 5, 64, 32);
    const struct qrn_matmul_args plain = make(&m, &r, 0, 3, 5, 33, 32);
    struct qrn_matmul_args a = good;
    const enum qrn_op_id op = QRN_OP_matmul;
    a.w = (struct qrn_tensor){0};
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul: w is missing");
    a = good;
    a.w = qrn_tensor_2d(QRN_I32, good.w.data, 5, 4);
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "matmul: w is i32, which holds no weights");
    a = good;
    a.x.dtype = QRN_F16;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "matmul: x is f16, wants f32");
    a = good;
    a.x.shape[1] = 32;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: x.shape[1] is 32, wants 64 (K of w)");
    a = good;
    a.w.shape[1] = 63;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "w.shape[1] is 63, wants whole blocks of 32 (q4_0)");
    a = good;
    a.out.shape[1] = 4;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: out.shape[1] is 4, wants 5");
    a = good;
    a.w.n_bytes -= 1;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: w needs 180 bytes, has 179");
    a = good;
    a.x = qrn_tensor_1d(QRN_F32, good.x.data, 64);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: x has 1 dimensions, wants 2 to 4");
    a = good;
    a.w = qrn_tensor_3d(QRN_Q4_0, good.w.data, 1, 5, 64);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: w has 3 dimensions, wants 2 to 2");
    a = good;
    a.w = qrn_tensor_3d(QRN_Q4_0, good.w.data, 2, 2, 64);
    a.x = qrn_tensor_3d(QRN_F32, good.x.data, 3, 1, 64);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: x.shape[0] is 3, wants a multiple of 2");
    a = good;
    a.activation = (enum qrn_activation_type)3;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul: activation is 3, wants 0 to 2");
    a = good;
    a.layout = (enum qrn_weight_layout)7;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul: layout is 7, wants 0 or 1");
    a = good;
    a.scales = codes.scales;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT,
                  "matmul: scales and biases are for MLX codes in rows, w is q4_0");
    a = good;
    a.out = a.x;
    a.out.shape[1] = 5;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul: out overlaps x");
    a = codes;
    a.scales = (struct qrn_tensor){0};
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul: scales is missing, w is mlx_q4");
    a = codes;
    a.biases.dtype = QRN_I32;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "matmul: biases is i32, wants f32 or f16 or bf16");
    a = codes;
    a.scales.shape[1] = 1;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE,
                  "matmul: biases.shape[1] is 2, wants 1 (that of scales)");
    a = codes;
    a.scales.shape[0] = 4;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: scales.shape[0] is 4, wants 5 (that of w)");
    a = codes;
    a.scales = qrn_tensor_2d(QRN_BF16, codes.scales.data, 5, 4);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE,
                  "matmul: scales.shape[1] is 4 for 64 columns, wants groups of 32");
    a = codes;
    a.layout = QRN_LAYOUT_PACKED;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "w is mlx_q4, packed");
    a = good;
    a.layout = QRN_LAYOUT_PACKED;
    op_test_fails(dev, op, &a, QRN_ERR_UNSUPPORTED, "matmul: no kernel");
    a = good;
    a.layout = QRN_LAYOUT_PACKED;
    a.w.stride[0] = 32;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul: w.stride[0] is 32, wants 64 (packed)");
    a = good;
    a.x = mem_tensor(&m, QRN_Q8_ACT, 2, (const int64_t[]){3, 128});
    a.w = mem_tensor(&m, QRN_Q4_0, 2, (const int64_t[]){5, 128});
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT,
                  "matmul: x is q8_act, activation wants to be 1 (Q8)");
    a.activation = QRN_ACT_Q8;
    a.w = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){5, 128});
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "matmul: x is q8_act, wants f32 with f32 weights");
    a = plain;
    a.activation = QRN_ACT_Q8;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE,
                  "matmul: K is 33, 8-bit activations want a multiple of 32");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),         cmocka_unit_test(test_plain_tails),
        cmocka_unit_test(test_strided),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_not_finite),    cmocka_unit_test(test_golden_blocks),
        cmocka_unit_test(test_shared_blocks), cmocka_unit_test(test_pack),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
