/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul: every kernel against the reference, strided, in place,
 * errors. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "support/op_test.h"

/* Their argument structs are alike: two tensors in, one out; that of silu_mul has one thing more. */
struct binary_args {
    struct qrn_tensor x, y, out;
    bool drops_inputs;
};

static size_t bytes_of(enum qrn_op_id id)
{
    return id == QRN_OP_silu_mul ? sizeof(struct binary_args)
                                 : offsetof(struct binary_args, drops_inputs);
}

static const struct {
    enum qrn_op_id id;
    const char *x, *y;
    double tolerance; /* one rounding, and two for each exp and quotient */
} ops[] = {
    {QRN_OP_add, "x", "y", 5e-7},
    {QRN_OP_mul, "x", "y", 1e-6},
    {QRN_OP_silu_mul, "gate", "up", 3e-6},
    {QRN_OP_sigmoid_mul, "x", "gate", 3e-6},
};
enum { N_OPS = sizeof ops / sizeof *ops };

static const struct {
    int64_t n0, n1, d;
    const char *why;
} cases[] = {
    {1, 1, 1, "smallest"},        {1, 1, 3584, "decode"},     {5, 3, 17, "no width divides 17"},
    {33, 1, 100, "many rows"},    {1, 2, 65, "just over 64"}, {0, 4, 8, "no rows"},
    {3, 2, 0, "rows of nothing"}, {67, 1, 512, "so many that memory bounds them"},
};

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_add);
    for (size_t o = 0; o < N_OPS; o++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const int64_t shape[] = {cases[i].n0, cases[i].n1, cases[i].d};
            struct mem m = {0};
            struct rng r = {100 * o + i};
            struct binary_args a = {.x = mem_filled(&m, &r, 3.0, 3, shape),
                                    .y = mem_filled(&m, &r, 2.0, 3, shape),
                                    .out = mem_tensor(&m, QRN_F32, 3, shape)};
            assert_int_equal(qrn_op(ops[o].id)->args_bytes, bytes_of(ops[o].id));
            op_test_same_bits(ops[o].id, &a, cases[i].why);
            const struct qrn_tensor outs[] = {a.out, a.x, a.y};
            for (size_t k = 0; k < 3; k++) {
                a.out = outs[k];
                for (size_t j = 0; j < d.n; j++)
                    op_test_against_reference(d.dev[j], ops[o].id, &a, ops[o].tolerance,
                                              k ? "in place" : cases[i].why);
            }
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* The gate of an attention layer: [n_tokens, n_heads, head_dim] inside rows of [query | gate]. */
static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {7};
    devices_open_for(&d, 3, QRN_OP_add);
    const struct qrn_tensor fused = mem_filled(&m, &r, 2.0, 3, (const int64_t[]){5, 3, 80});
    const struct qrn_tensor x = mem_filled(&m, &r, 2.0, 3, (const int64_t[]){5, 3, 40});
    const struct qrn_tensor wide = mem_filled(&m, &r, 2.0, 3, (const int64_t[]){5, 3, 55});
    const struct binary_args a = {
        .x = x, .y = qrn_tensor_slice(fused, 2, 40, 40), .out = qrn_tensor_slice(wide, 2, 9, 40)};
    for (size_t o = 0; o < N_OPS; o++)
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], ops[o].id, &a, ops[o].tolerance, "strided");
    op_test_same_bits(QRN_OP_sigmoid_mul, &a, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

/* So many elements that memory bounds them, in rows apart that are whole runs, or that would be but for where they
 * begin. */
static void test_runs(void **state)
{
    (void)state;
    static const int64_t runs[][2] = {{512, 0}, {256, 0}, {768, 4}, {512, 1}, {384, 0}}; /* length, beginning */
    static const enum qrn_dtype types[] = {QRN_F32, QRN_BF16, QRN_Q8_ACT};
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_silu_mul);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            const int64_t n = runs[i][0], begin = runs[i][1], n_rows = 83;
            struct mem m = {0};
            struct rng r = {i};
            const struct qrn_tensor both = mem_filled(&m, &r, 2.0, 2, (const int64_t[]){n_rows, 2 * n + 8});
            struct binary_args a = {.x = qrn_tensor_slice(both, 1, begin, n),
                                    .y = qrn_tensor_slice(both, 1, n + 4, n),
                                    .out = mem_tensor(&m, types[t], 2, (const int64_t[]){n_rows, n})};
            op_test_same_bits(QRN_OP_silu_mul, &a, "runs");
            for (size_t j = 0; j < d.n && t == 0; j++)
                op_test_against_reference(d.dev[j], QRN_OP_silu_mul, &a, 3e-6, "runs");
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* An element's bits come from its own inputs, wherever it stands. */
static void test_place_does_not_matter(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {8};
    devices_open_for(&d, 2, QRN_OP_add);
    const struct qrn_tensor x = mem_filled(&m, &r, 4.0, 2, (const int64_t[]){1, 200});
    const struct qrn_tensor y = mem_filled(&m, &r, 4.0, 2, (const int64_t[]){1, 200});
    const struct qrn_tensor out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){1, 200});
    const struct qrn_tensor one = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){1, 1});
    for (size_t o = 0; o < N_OPS; o++)
        for (size_t j = 0; j < d.n; j++) {
            const struct binary_args all = {x, y, out, false};
            assert_int_equal(qrn_op_call(d.dev[j], ops[o].id, &all, NULL), QRN_OK);
            for (int64_t i = 0; i < 200; i += 13) {
                const struct binary_args a = {qrn_tensor_slice(x, 1, i, 1),
                                              qrn_tensor_slice(y, 1, i, 1), one, false};
                assert_int_equal(qrn_op_call(d.dev[j], ops[o].id, &a, NULL), QRN_OK);
                assert_memory_equal(one.data, (float *)out.data + i, sizeof(float));
            }
        }
    devices_close(&d);
    mem_free_all(&m);
}

/* A rounded out is what cast makes of a float32 one; on every kernel, any number of threads. */
static void test_rounded(void **state)
{
    (void)state;
    static const struct {
        int64_t n, d;
        enum qrn_dtype type;
    } some[] = {{1, 3584, QRN_Q8_ACT}, {7, 384, QRN_Q8_ACT}, {3, 1111, QRN_BF16}};
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_add);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct mem m = {0};
        struct rng r = {i + 70};
        const int64_t shape[] = {some[i].n, some[i].d};
        struct binary_args a = {mem_filled(&m, &r, 3.0, 2, shape),
                                mem_filled(&m, &r, 2.0, 2, shape),
                                mem_tensor(&m, QRN_F32, 2, shape), false};
        const struct qrn_tensor plain = a.out, want = mem_tensor(&m, some[i].type, 2, shape),
                                got = mem_tensor(&m, some[i].type, 2, shape);
        for (size_t o = 0; o < N_OPS * d.n; o++) {
            struct qrn_device *dev = d.dev[o / N_OPS];
            const enum qrn_op_id id = ops[o % N_OPS].id;
            const struct qrn_kernel *k;
            for (size_t j = 0; (k = qrn_kernel_at(dev, id, j)) != NULL; j++) {
                const struct qrn_cast_args cast = {.x = plain, .out = want};
                a.out = plain;
                assert_int_equal(qrn_kernel_run(dev, k, &a, NULL), QRN_OK);
                assert_int_equal(qrn_cast(dev, &cast, NULL), QRN_OK);
                a.out = got;
                assert_int_equal(qrn_kernel_run(dev, k, &a, NULL), QRN_OK);
                assert_memory_equal(got.data, want.data, want.n_bytes);
            }
            op_test_same_bits(id, &a, "rounded");
            qrn_op(id)->reference(&a);
            for (int64_t e = 0; e < qrn_tensor_n_elements(&want); e++)
                assert_float_equal(qrn_ref_get_flat(&got, e), qrn_ref_get_flat(&want, e), 0.3);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Gates far out saturate: they give 0 or the other factor, never NaN. */
static void test_extremes(void **state)
{
    (void)state;
    static const float gate[] = {-INFINITY, -1e30f, -104.0f, -89.0f, 89.0f, 1e30f};
    static const float silu_want[] = {NAN, 0.0f, 0.0f, 0.0f, 178.0f, 2e30f};
    static const float sigmoid_want[] = {0.0f, 0.0f, 0.0f, 0.0f, 2.0f, 2.0f};
    struct devices d;
    struct mem m = {0};
    devices_open_for(&d, 1, QRN_OP_add);
    for (size_t j = 0; j < d.n; j++)
        for (size_t i = 0; i < sizeof gate / sizeof *gate; i++) {
            const struct qrn_tensor g = mem_tensor(&m, QRN_F32, 1, (const int64_t[]){1});
            const struct qrn_tensor t = mem_tensor(&m, QRN_F32, 1, (const int64_t[]){1});
            const struct qrn_tensor out = mem_tensor(&m, QRN_F32, 1, (const int64_t[]){1});
            const float *y = out.data;
            *(float *)g.data = gate[i];
            *(float *)t.data = 2.0f;
            const struct qrn_silu_mul_args s = {g, t, out, false};
            assert_int_equal(qrn_silu_mul(d.dev[j], &s, NULL), QRN_OK);
            if (!isnan(silu_want[i]))
                assert_float_equal(*y, silu_want[i], fabsf(silu_want[i]) * 1e-6f);
            const struct qrn_sigmoid_mul_args b = {t, g, out};
            assert_int_equal(qrn_sigmoid_mul(d.dev[j], &b, NULL), QRN_OK);
            assert_float_equal(*y, sigmoid_want[i], 1e-6f);
        }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const int64_t shape[] = {3, 17};
    const struct binary_args good = {mem_filled(&m, &r, 1.0, 2, shape),
                                     mem_filled(&m, &r, 1.0, 2, shape),
                                     mem_tensor(&m, QRN_F32, 2, shape), false};
    for (size_t o = 0; o < N_OPS; o++) {
        char text[100];
        struct binary_args a = good;
        a.y = (struct qrn_tensor){0};
        (void)snprintf(text, sizeof text, "%s: %s is missing", qrn_op(ops[o].id)->name, ops[o].y);
        op_test_fails(dev, ops[o].id, &a, QRN_ERR_ARGUMENT, text);
        a = good;
        a.y.shape[1] = 16;
        (void)snprintf(text, sizeof text, "%s.shape[1] is 16, wants 17 (that of %s)", ops[o].y,
                       ops[o].x);
        op_test_fails(dev, ops[o].id, &a, QRN_ERR_SHAPE, text);
        a = good;
        a.out.shape[0] = 2;
        op_test_fails(dev, ops[o].id, &a, QRN_ERR_SHAPE, "out.shape[0] is 2, wants 3");
        a = good;
        a.x.dtype = QRN_BF16;
        (void)snprintf(text, sizeof text, "%s is bf16, wants f32", ops[o].x);
        op_test_fails(dev, ops[o].id, &a, QRN_ERR_DTYPE, text);
        a = good;
        a.out.dtype = QRN_I32;
        op_test_fails(dev, ops[o].id, &a, QRN_ERR_DTYPE, "out is i32, wants f32 or bf16 or q8_act");
        a = good;
        a.out = a.x;
        a.out.shape[0] = a.y.shape[0] = a.x.shape[0] = 2;
        a.out.data = (float *)a.out.data + 17;
        (void)snprintf(text, sizeof text, "out overlaps %s", ops[o].x);
        op_test_fails(dev, ops[o].id, &a, QRN_ERR_ARGUMENT, text);
    }
    qrn_device_close(dev);
    mem_free_all(&m);
}

/* Arguments may be columns of one matrix, side by side. */
static void test_columns(void **state)
{
    (void)state;
    enum { ROWS = 3, D = 17, PITCH = 60 };
    struct mem m = {0};
    struct qrn_device *dev;
    struct qrn_error err;
    struct rng r = {3};
    const int64_t whole[] = {ROWS, PITCH}, one[] = {ROWS, D};
    const struct qrn_tensor all = mem_tensor(&m, QRN_F32, 2, whole),
                            alone = mem_tensor(&m, QRN_F32, 2, one);
    float *x = all.data;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    for (int i = 0; i < ROWS * PITCH; i++) x[i] = (float)rng_normal(&r);
    struct qrn_silu_mul_args a = {.gate = qrn_tensor_slice(all, 1, 2, D),
                                  .up = qrn_tensor_slice(all, 1, 2 + D, D),
                                  .out = alone};
    assert_int_equal(qrn_silu_mul(dev, &a, &err), QRN_OK);
    a.out = qrn_tensor_slice(all, 1, 2 + 2 * D, D);
    const float beside = x[2 + 3 * D];
    assert_int_equal(qrn_silu_mul(dev, &a, &err), QRN_OK);
    for (int i = 0; i < ROWS; i++)
        assert_memory_equal(x + i * PITCH + 2 + 2 * D, (float *)alone.data + i * D,
                            D * sizeof(float));
    assert_true(beside == x[2 + 3 * D]);
    a.out = qrn_tensor_slice(all, 1, 1 + 2 * D, D); /* one of up's columns */
    op_test_fails(dev, QRN_OP_silu_mul, &a, QRN_ERR_ARGUMENT, "out overlaps up");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_place_does_not_matter),
        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
