/* SPDX-License-Identifier: MIT
 * rms_norm: every kernel against the reference, in place, fused, and every documented error. */
#include "support/golden.h"

static const struct {
    int64_t n0, n1, d;
    bool weight, residual, gate;
    const char *why;
} cases[] = {
    {1, 1, 1, false, false, false, "smallest"},
    {1, 1, 256, true, false, false, "decode"},
    {3, 4, 128, true, false, true, "per head, gated"},
    {7, 1, 5120, true, true, false, "fused residual"},
    {2, 3, 17, true, true, true, "no vector width divides 17"},
    {5, 1, 33, false, false, true, "gate alone"},
    {0, 2, 8, true, false, false, "no rows"},
    {2, 3, 132, false, true, true, "a vector more than a piece"},
    {2, 2, 1000, true, true, false, "the longest row of a warp, nearly"},
    {2, 1, 1540, false, false, true, "a block's row"},
    {3, 1, 4096, true, true, false, "a block's row in four pieces"},
    {2, 1, 8100, true, true, false, "the longest that a block holds, nearly"},
    {1, 1, 8300, true, true, false, "longer"},
    {67, 4, 128, true, false, true, "per head, gated, so many that memory bounds them"},
    {65, 8, 100, false, false, true, "the same, shorter than a piece"},
    {129, 2, 256, true, false, false, "many of two pieces"},
    {90, 3, 256, true, false, false, "many, not whole runs"},
    {67, 4, 128, true, true, false, "many, fused residual"},
};

static struct qrn_rms_norm_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t shape[] = {cases[i].n0, cases[i].n1, cases[i].d};
    struct qrn_rms_norm_args a = {.x = mem_filled(m, r, 2.0, 3, shape), .eps = 1e-6f};
    if (cases[i].weight) a.weight = mem_filled(m, r, 1.0, 1, &cases[i].d);
    if (cases[i].residual) a.residual = mem_filled(m, r, 1.0, 3, shape);
    if (cases[i].gate) a.gate = mem_filled(m, r, 3.0, 3, shape);
    if (cases[i].residual) a.sum = mem_tensor(m, QRN_F32, 3, shape);
    a.out = mem_tensor(m, QRN_F32, 3, shape);
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_rms_norm);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_rms_norm_args a = make(&m, &r, i);
        const double tolerance = cases[i].gate ? 4e-6 : 2e-6; /* of a gated element, which may be tens of the rms */
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_rms_norm, &a, tolerance, cases[i].why);
        op_test_same_bits(QRN_OP_rms_norm, &a, cases[i].why);
        a.out = a.x;
        if (cases[i].residual) a.sum = a.residual;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_rms_norm, &a, tolerance, "in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {99};
    devices_open_for(&d, 1, QRN_OP_rms_norm);
    /* the first 20 of rows of 50, as in a fused projection */
    struct qrn_tensor wide = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 50});
    struct qrn_tensor out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){6, 50});
    const struct qrn_rms_norm_args a = {.x = qrn_tensor_slice(wide, 1, 0, 20),
                                        .out = qrn_tensor_slice(out, 1, 30, 20),
                                        .eps = 1e-5f};
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_rms_norm, &a, 2e-6, "strided rows");
    devices_close(&d);
    mem_free_all(&m);
}

/* rounded is what cast makes of out, with out there or not, in place or not; on every kernel. */
static void check_rounded(struct qrn_device *dev, const struct qrn_rms_norm_args *a,
                          enum qrn_dtype type, struct mem *m)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_rms_norm, i)) != NULL; i++) {
        if (k->supports && !k->supports(a)) continue;
        const struct qrn_tensor want = mem_tensor(m, type, a->x.n_dims, a->x.shape);
        const struct qrn_cast_args cast = {.x = a->out, .out = want};
        assert_int_equal(qrn_kernel_run(dev, k, a, NULL), QRN_OK);
        assert_int_equal(qrn_cast(dev, &cast, NULL), QRN_OK);
        struct qrn_rms_norm_args fused = *a;
        for (int with_out = 0; with_out < 2; with_out++) {
            struct qrn_error err;
            fused.rounded = mem_tensor(m, type, a->x.n_dims, a->x.shape);
            fused.out = with_out ? mem_tensor(m, QRN_F32, a->x.n_dims, a->x.shape)
                                 : (struct qrn_tensor){0};
            if (qrn_op_check(qrn_op(QRN_OP_rms_norm), &fused, &err) != QRN_OK)
                fail_msg("%s", err.text);
            assert_int_equal(qrn_kernel_run(dev, k, &fused, NULL), QRN_OK);
            assert_memory_equal(fused.rounded.data, want.data, want.n_bytes);
            if (with_out) assert_memory_equal(fused.out.data, a->out.data, a->out.n_bytes);
        }
        op_test_same_bits(QRN_OP_rms_norm, &fused, "rounded");
        qrn_op(QRN_OP_rms_norm)->reference(&fused);
        for (int64_t e = 0; e < qrn_tensor_n_elements(&want); e++)
            assert_float_equal(qrn_ref_get_flat(&fused.rounded, e), qrn_ref_get_flat(&want, e),
                               0.1);
    }
}

static void test_rounded(void **state)
{
    (void)state;
    static const struct {
        int64_t n, d;
        enum qrn_dtype type;
        bool all;
    } some[] = {
        {1, 1024, QRN_Q8_ACT, true},
        {5, 640, QRN_Q8_ACT, true},
        {3, 128, QRN_Q8_ACT, false},
        {4, 1111, QRN_BF16, true},
    };
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_rms_norm);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct mem m = {0};
        struct rng r = {i + 70};
        const int64_t shape[] = {some[i].n, some[i].d};
        struct qrn_rms_norm_args a = {.x = mem_filled(&m, &r, 2.0, 2, shape), .eps = 1e-6f};
        a.weight = mem_filled(&m, &r, 1.0, 1, &some[i].d);
        a.out = mem_tensor(&m, QRN_F32, 2, shape);
        if (some[i].all) a.residual = mem_filled(&m, &r, 1.0, 2, shape);
        if (some[i].all) a.gate = mem_filled(&m, &r, 3.0, 2, shape);
        for (size_t j = 0; j < d.n; j++) check_rounded(d.dev[j], &a, some[i].type, &m);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* The op in plain float32, one element after the other. */
static void plain(const struct qrn_rms_norm_args *a, int64_t n_rows, int64_t d)
{
    for (int64_t r = 0; r < n_rows; r++) {
        const float *x = (float *)a->x.data + r * d, *z = (float *)a->gate.data + r * d;
        float sum = 0.0f;
        for (int64_t i = 0; i < d; i++) sum += x[i] * x[i];
        const float scale = 1.0f / sqrtf(sum / (float)d + a->eps);
        for (int64_t i = 0; i < d; i++)
            ((float *)a->out.data)[r * d + i] =
                x[i] * scale * ((float *)a->weight.data)[i] * (z[i] / (1.0f + expf(-z[i])));
    }
}

/* An entry made by PyTorch: the reference agrees with it, and no kernel is further from the
 * reference than 4 times the plain float32 op. */
static void test_golden(void **state)
{
    (void)state;
    enum { N = 9, D = 128 };
    const int64_t shape[] = {N, D}, row[] = {D};
    struct devices d;
    struct mem m = {0};
    struct tensor_file file;
    devices_open_for(&d, 2, QRN_OP_rms_norm);
    tensor_file_open("tests/data/op_goldens.safetensors", &file);
    struct qrn_rms_norm_args a = {
        .x = golden_tensor(&m, &file, "rms_norm_gated.0.x", QRN_F32, 2, shape),
        .weight = golden_tensor(&m, &file, "rms_norm_gated.0.weight", QRN_F32, 1, row),
        .gate = golden_tensor(&m, &file, "rms_norm_gated.0.z", QRN_F32, 2, shape),
        .out = mem_tensor(&m, QRN_F64, 2, shape), .eps = 1e-6f};
    const struct qrn_tensor want =
        golden_tensor(&m, &file, "rms_norm_gated.0.out", QRN_F32, 2, shape);
    const struct qrn_tensor exact = a.out;
    qrn_op(QRN_OP_rms_norm)->reference(&a);
    assert_true(golden_error(&exact, &want) < 2e-6);
    a.out = mem_tensor(&m, QRN_F32, 2, shape);
    plain(&a, N, D);
    const double allowed = 4.0 * golden_error(&a.out, &exact);
    for (size_t j = 0; j < d.n; j++) {
        const struct qrn_kernel *k;
        for (size_t i = 0; (k = qrn_kernel_at(d.dev[j], QRN_OP_rms_norm, i)) != NULL; i++) {
            assert_int_equal(qrn_kernel_run(d.dev[j], k, &a, NULL), QRN_OK);
            const double error = golden_error(&a.out, &exact);
            if (j == 0)
                print_message("%s: %.3g, plain float32 %.3g\n", k->name, error, allowed / 4.0);
            assert_true(error <= allowed);
        }
    }
    tensor_file_close(&file);
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
    const struct qrn_rms_norm_args good = make(&m, &r, 4);
    struct qrn_rms_norm_args a = good;
    a.x = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_ARGUMENT, "rms_norm: x is missing");
    a = good;
    a.out.shape[2] = 16;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_SHAPE,
                  "out.shape[2] is 16, wants 17 (that of x)");
    a = good;
    a.weight.shape[0] = 16;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_SHAPE, "weight.shape[0] is 16, wants 17");
    a = good;
    a.gate.dtype = QRN_F16;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_DTYPE, "gate is f16, wants f32");
    a = good;
    a.out.stride[1] = 0;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_SHAPE, "out is written but its stride[1] is 0");
    a = good;
    a.out = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_ARGUMENT, "out is missing, and rounded too");
    a.rounded = good.out;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_DTYPE, "rounded is f32, wants bf16 or q8_act");
    a.rounded = mem_tensor(&m, QRN_BF16, 3, (const int64_t[]){2, 3, 16});
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_SHAPE, "rounded.shape[2] is 16, wants 17");
    a = good;
    a.eps = -1.0f;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_ARGUMENT, "eps is -1, wants 0 or more");
    a = good;
    a.x.n_bytes -= 1;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_SHAPE, "x needs 408 bytes, has 407");
    a = good;
    a.out = a.weight;
    a.out.n_dims = 3;
    a.out.shape[0] = a.out.shape[1] = 1;
    a.out.shape[2] = 17;
    a.out.stride[2] = 1;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_ARGUMENT, "out overlaps weight");
    a = good;
    a.out = a.x;
    a.out.data = (float *)a.out.data + 1;
    a.x.n_bytes = a.out.n_bytes = 4096;
    op_test_fails(dev, QRN_OP_rms_norm, &a, QRN_ERR_ARGUMENT, "out overlaps x");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
