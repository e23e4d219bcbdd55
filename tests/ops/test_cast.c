/* SPDX-License-Identifier: MIT
 * cast and copy: every pair of types, all 16-bit values, rounding, strides, and errors. */
#include <math.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/q8_act.h"
#include "support/op_test.h"

/* Any bytes, of any type: whole blocks. */
static struct qrn_tensor random_tensor(struct mem *m, struct rng *r, enum qrn_dtype dtype,
                                       int n_dims, const int64_t *shape)
{
    struct qrn_tensor t = {.dtype = dtype, .n_dims = n_dims};
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i];
    }
    assert_true(qrn_tensor_extent(&t, &t.n_bytes));
    t.data = mem_guarded(m, t.n_bytes);
    for (size_t i = 0; i < t.n_bytes; i++) ((uint8_t *)t.data)[i] = (uint8_t)rng_next(r);
    return t;
}

/* Whether element i of out is f, rounded; what NaNs carry is nobody's business. */
static bool is_cast(const struct qrn_tensor *out, int64_t i, float f)
{
    const uint16_t half = ((const uint16_t *)out->data)[i];
    if (out->dtype == QRN_F32) {
        const float got = ((const float *)out->data)[i];
        return isnan(f) ? isnan(got) : memcmp(&got, &f, sizeof f) == 0;
    }
    if (out->dtype == QRN_F16)
        return isnan(f) ? isnan(qrn_f16_to_float(half)) : half == qrn_float_to_f16(f);
    return isnan(f) ? isnan(qrn_bf16_to_float(half)) : half == qrn_float_to_bf16(f);
}

/* Every type that has values, to each float type: equal to decoding it all and rounding once. */
static void test_every_type(void **state)
{
    (void)state;
    static const enum qrn_dtype outs[] = {QRN_F32, QRN_F16, QRN_BF16};
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_cast);
    size_t n_types = 0;
    for (int type = 0; type < QRN_DTYPE_COUNT; type++) {
        if (!qrn_decoder((enum qrn_dtype)type)) continue;
        n_types++;
        const int32_t block = qrn_dtype_info((enum qrn_dtype)type)->block_elements;
        /* pieces are cut at 1024; no width divides 1031 */
        const int64_t shape[] = {3, 2, block == 1 ? 1031 : 1280};
        const int64_t n = shape[0] * shape[1] * shape[2];
        struct mem m = {0};
        struct rng r = {(uint64_t)type};
        const struct qrn_tensor x = random_tensor(&m, &r, (enum qrn_dtype)type, 3, shape);
        const struct qrn_tensor values = mem_tensor(&m, QRN_F32, 3, shape);
        const uint64_t mode = qrn_float_mode_enter(); /* in which kernels run: denormals are 0 */
        qrn_decoder(x.dtype)(x.data, values.data, (size_t)n);
        qrn_float_mode_leave(mode);
        for (size_t o = 0; o < 3; o++) {
            const struct qrn_cast_args a = {x, mem_tensor(&m, outs[o], 3, shape)};
            for (size_t j = 0; j < d.n; j++) {
                memset(a.out.data, 0x55, a.out.n_bytes);
                assert_int_equal(qrn_cast(d.dev[j], &a, NULL), QRN_OK);
                for (int64_t i = 0; i < n; i++) {
                    const float f = ((const float *)values.data)[i];
                    if (!is_cast(&a.out, i, f))
                        fail_msg("%s to %s on %s: element %lld", qrn_dtype_info(x.dtype)->name,
                                 qrn_dtype_info(outs[o])->name, qrn_device_bits(d.dev[j]),
                                 (long long)i);
                }
            }
            op_test_same_bits(QRN_OP_cast, &a, "every type");
        }
        mem_free_all(&m);
    }
    assert_true(n_types > 30);
    devices_close(&d);
}

/* The reference casts by the same rules; its own rounding is that of half.h. */
static void test_reference(void **state)
{
    (void)state;
    static const enum qrn_dtype types[] = {QRN_F32, QRN_F16, QRN_BF16};
    static const double tolerance[] = {0.0, 2e-3,
                                       1.5e-2}; /* half a last place of values to 3 rms */
    struct devices d;
    struct mem m = {0};
    struct rng r = {3};
    devices_open_for(&d, 2, QRN_OP_cast);
    const int64_t shape[] = {5, 2, 33}, wide[] = {5, 2, 40};
    const struct qrn_tensor source = mem_filled(&m, &r, 1.0, 3, wide);
    for (size_t i = 0; i < 3; i++)
        for (size_t o = 0; o < 3; o++) {
            const struct qrn_tensor x = mem_tensor(&m, types[i], 3, wide);
            struct qrn_cast_args a = {source, x};
            assert_int_equal(qrn_cast(d.dev[0], &a, NULL), QRN_OK);
            a = (struct qrn_cast_args){qrn_tensor_slice(x, 2, 3, 33),
                                       mem_tensor(&m, types[o], 3, shape)};
            for (size_t j = 0; j < d.n; j++)
                op_test_against_reference(d.dev[j], QRN_OP_cast, &a, tolerance[o],
                                          "strided source");
            a.out = qrn_tensor_slice(mem_tensor(&m, types[o], 3, wide), 2, 6, 33);
            for (size_t j = 0; j < d.n; j++)
                op_test_against_reference(d.dev[j], QRN_OP_cast, &a, tolerance[o], "strided both");
        }
    devices_close(&d);
    mem_free_all(&m);
}

/* Ties go to the even neighbour; what is too large becomes infinite; tiny values are not lost to
 * flushing; all 65536 halves come back as they were. */
static void test_rounding(void **state)
{
    (void)state;
    static const struct {
        float from;
        uint16_t f16, bf16;
    } known[] = {
        {1.0f + 0x1p-11f, 0x3c00, 0x3f80},
        {1.0f + 0x3p-11f, 0x3c02, 0x3f80},
        {1.0f + 0x1.01p-11f, 0x3c01, 0x3f80},
        {1.0f + 0x1p-8f, 0x3c04, 0x3f80},
        {1.0f + 0x3p-8f, 0x3c0c, 0x3f82},
        {65504.0f, 0x7bff, 0x4780},
        {65520.0f, 0x7c00, 0x4780},
        {-65519.0f, 0xfbff, 0xc780},
        {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300},
        {0x1.8p-25f, 0x0001, 0x3340},
        {0x1p-130f, 0x0000, 0x0008},
        {3.4e38f, 0x7c00, 0x7f80},
        {-INFINITY, 0xfc00, 0xff80},
        {-0.0f, 0x8000, 0x8000},
        {0x1.ffcp-15f, 0x0400, 0x3880},
    };
    struct devices d;
    struct mem m = {0};
    devices_open_for(&d, 1, QRN_OP_cast);
    const int64_t n = 65536;
    const struct qrn_tensor halves = mem_tensor(&m, QRN_F16, 1, &n),
                            back = mem_tensor(&m, QRN_F16, 1, &n);
    const struct qrn_tensor floats = mem_tensor(&m, QRN_F32, 1, &n);
    for (size_t j = 0; j < d.n; j++) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            const int64_t nine = 9; /* vectors and tails alike */
            const struct qrn_cast_args a = {mem_tensor(&m, QRN_F32, 1, &nine),
                                            mem_tensor(&m, QRN_F16, 1, &nine)};
            const struct qrn_cast_args b = {a.x, mem_tensor(&m, QRN_BF16, 1, &nine)};
            const uint16_t *f16 = a.out.data, *bf16 = b.out.data;
            for (int k = 0; k < 9; k++) ((float *)a.x.data)[k] = known[i].from;
            assert_int_equal(qrn_cast(d.dev[j], &a, NULL), QRN_OK);
            assert_int_equal(qrn_cast(d.dev[j], &b, NULL), QRN_OK);
            for (int k = 0; k < 9; k++)
                if (f16[k] != known[i].f16 || bf16[k] != known[i].bf16)
                    fail_msg("%a: f16 %04x bf16 %04x", (double)known[i].from, f16[k], bf16[k]);
        }
        for (int type = 0; type < 2; type++) {
            const enum qrn_dtype dtype = type ? QRN_BF16 : QRN_F16;
            struct qrn_cast_args there = {halves, floats}, here = {floats, back};
            there.x.dtype = here.out.dtype = dtype;
            for (int i = 0; i < 65536; i++) ((uint16_t *)halves.data)[i] = (uint16_t)i;
            assert_int_equal(qrn_cast(d.dev[j], &there, NULL), QRN_OK);
            assert_int_equal(qrn_cast(d.dev[j], &here, NULL), QRN_OK);
            for (int i = 0; i < 65536; i++) {
                const uint16_t got = ((uint16_t *)back.data)[i];
                const uint16_t quiet = type ? 0x40 : 0x200, infinity = type ? 0x7f80 : 0x7c00;
                const bool nan = (i & 0x7fff) > infinity;
                assert_int_equal(got, nan ? i | quiet : i);
            }
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

/* Any type, rows apart on both sides; what lies between the rows of out stays. */
static void test_copy(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_copy);
    for (int type = 0; type < QRN_DTYPE_COUNT; type++) {
        const struct qrn_dtype_info *info = qrn_dtype_info((enum qrn_dtype)type);
        const int64_t n = 3 * info->block_elements, size = info->block_bytes;
        const int64_t from[] = {4, 3, 2 * n}, to[] = {4, 3, n + info->block_elements};
        struct mem m = {0};
        struct rng r = {(uint64_t)type + 77};
        const struct qrn_tensor x = random_tensor(&m, &r, (enum qrn_dtype)type, 3, from);
        const struct qrn_tensor out = random_tensor(&m, &r, (enum qrn_dtype)type, 3, to);
        const struct qrn_copy_args a = {qrn_tensor_slice(x, 2, n, n),
                                        qrn_tensor_slice(out, 2, info->block_elements, n)};
        for (size_t j = 0; j < d.n; j++) {
            memset(out.data, 0x5a, out.n_bytes);
            assert_int_equal(qrn_copy(d.dev[j], &a, NULL), QRN_OK);
            for (int64_t row = 0; row < 12; row++) {
                const char *got = (char *)out.data + row * 4 * size,
                           *want = (char *)x.data + row * 6 * size;
                for (int64_t i = 0; i < size; i++) assert_int_equal(got[i], 0x5a);
                assert_memory_equal(got + size, want + 3 * size, (size_t)(3 * size));
            }
        }
        op_test_same_bits(QRN_OP_copy, &a, info->name);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Rounded activations: every device writes the bytes of the definition, for blocks with values that
 * are not finite, too small for a scale, or ties. */
static void test_rounded(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {4};
    devices_open_for(&d, 3, QRN_OP_cast);
    enum { N = QRN_Q8_ACT_BLOCK };
    const int64_t shape[] = {7, 35 * N}, wide[] = {7, 37 * N};
    const struct qrn_tensor source = mem_filled(&m, &r, 3.0, 2, wide);
    float *x = source.data;
    for (int64_t i = 0; i < 7 * 37 * N; i += N) { /* rows of 37 blocks */
        const float special[] = {NAN,      INFINITY, -INFINITY,    3.4e38f,         1e-42f,
                                 1.4e-36f, 0.0f,     0x1.fcp-120f, 0x1.fbfffep-120f};
        enum { N_SPECIAL = sizeof special / sizeof *special };
        if (i / N % 3) continue;
        if (i / N % 2)
            for (int j = 0; j < N; j++) x[i + j] *= 1e-37f;
        x[i + i / (3 * N) % N] = special[i / (3 * N) % N_SPECIAL];
    }
    for (int j = 0; j < N; j++) /* halves */
        x[39 * N + j] = (float)(j - 64) * 1.984375f - (float)(j == 127) * 246.0f;
    for (int in = 0; in < 2; in++) {
        struct qrn_cast_args a = {
            qrn_tensor_slice(source, 1, N, 35 * N),
            qrn_tensor_slice(mem_tensor(&m, QRN_Q8_ACT, 2, wide), 1, 2 * N, 35 * N)};
        if (in) { /* from another type, through float32 */
            const struct qrn_cast_args half = {a.x, mem_tensor(&m, QRN_F16, 2, shape)};
            assert_int_equal(qrn_cast(d.dev[0], &half, NULL), QRN_OK);
            a.x = half.out;
        }
        struct qrn_q8_act *want = test_malloc(7 * 35 * sizeof *want);
        for (int i = 0; i < 7 * 35; i++) {
            float values[N];
            for (int j = 0; j < N; j++)
                values[j] = (float)qrn_ref_get(&a.x, i / 35, i % 35 * N + j, 0, 0);
            qrn_q8_act_block(values, N, &want[i]);
        }
        for (size_t i = 0; i < d.n; i++) {
            const struct qrn_kernel *k;
            for (size_t j = 0; (k = qrn_kernel_at(d.dev[i], QRN_OP_cast, j)) != NULL; j++) {
                struct qrn_error err;
                memset(a.out.data, 0x55, 7 * 37 * sizeof *want - 2 * sizeof *want);
                if (qrn_kernel_run(d.dev[i], k, &a, &err) != QRN_OK) fail_msg("%s", err.text);
                for (int b = 0; b < 7 * 35; b++) {
                    const struct qrn_q8_act *got =
                        (const struct qrn_q8_act *)a.out.data + b / 35 * 37 + b % 35;
                    const bool nan = isnan(want[b].d);
                    if (nan ? !isnan(got->d) : got->d != want[b].d)
                        fail_msg("%s: block %d has d %g, wants %g", k->name, b, (double)got->d,
                                 (double)want[b].d);
                    assert_memory_equal(got->sum, want[b].sum, sizeof got->sum + sizeof got->q);
                }
            }
        }
        op_test_same_bits(QRN_OP_cast, &a, "rounded");
        test_free(want);
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_copy_reference(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {9};
    devices_open_for(&d, 2, QRN_OP_copy);
    const int64_t shapes[][3] = {{3, 4, 17}, {0, 4, 8}, {2, 3, 0}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct qrn_copy_args a = {mem_filled(&m, &r, 1.0, 3, shapes[i]),
                                  mem_tensor(&m, QRN_F32, 3, shapes[i])};
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_copy, &a, 0.0, "f32");
        a.x.dtype = a.out.dtype = QRN_I32;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_copy, &a, 0.0, "i32");
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
    const int64_t shape[] = {3, 64};
    const struct qrn_cast_args good = {mem_filled(&m, &r, 1.0, 2, shape),
                                       mem_tensor(&m, QRN_F16, 2, shape)};
    struct qrn_cast_args a = good;
    a.x.dtype = QRN_I32;
    op_test_fails(dev, QRN_OP_cast, &a, QRN_ERR_DTYPE,
                  "cast: x is i32, wants a type that has values");
    a = good;
    a.out.dtype = QRN_Q8_0;
    op_test_fails(dev, QRN_OP_cast, &a, QRN_ERR_DTYPE,
                  "out is q8_0, wants f32 or f16 or bf16 or q8_act");
    a = good;
    a.out.shape[1] = 63;
    op_test_fails(dev, QRN_OP_cast, &a, QRN_ERR_SHAPE, "out.shape[1] is 63, wants 64 (that of x)");
    a = good;
    a.x.dtype = QRN_Q4_0;
    a.x.shape[1] = a.out.shape[1] = 63;
    op_test_fails(dev, QRN_OP_cast, &a, QRN_ERR_SHAPE,
                  "x.shape[1] is 63, wants whole blocks of 32");
    a = good;
    a.out.data = a.x.data;
    op_test_fails(dev, QRN_OP_cast, &a, QRN_ERR_ARGUMENT, "out overlaps x");
    struct qrn_copy_args c = {good.x, good.out};
    op_test_fails(dev, QRN_OP_copy, &c, QRN_ERR_DTYPE, "copy: out is f16, wants f32");
    c.out = c.x;
    op_test_fails(dev, QRN_OP_copy, &c, QRN_ERR_ARGUMENT, "copy: out overlaps x");
    c.out = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_copy, &c, QRN_ERR_ARGUMENT, "copy: out is missing");
    c.out = mem_tensor(&m, QRN_F32, 1, shape);
    op_test_fails(dev, QRN_OP_copy, &c, QRN_ERR_SHAPE, "out has 1 dimensions, x has 2");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type), cmocka_unit_test(test_reference),
        cmocka_unit_test(test_rounding),   cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_copy),       cmocka_unit_test(test_copy_reference),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
