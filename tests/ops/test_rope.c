/* SPDX-License-Identifier: MIT
 * rope: every kernel against the reference, in place, scaled, far positions, and every error. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

static const struct {
    int64_t n_tokens, n_heads, head_dim, n_rot;
    int32_t first_position;
    enum qrn_rope_mode mode;
    bool factors, yarn;
    const char *why;
} cases[] = {
    {1, 1, 2, 0, 0, QRN_ROPE_NEOX, false, false, "smallest, position 0"},
    {5, 8, 256, 64, 100, QRN_ROPE_NEOX, false, false, "partial, as Qwen3.5"},
    {1, 3, 256, 64, 262143, QRN_ROPE_NEOX, false, false,
     "the last position of the longest context"},
    {2, 2, 128, 0, 16777215, QRN_ROPE_NORMAL, false, false,
     "neighbours, the last positions of all"},
    {3, 2, 20, 6, 7, QRN_ROPE_NORMAL, true, false, "odd sizes, factors"},
    {4, 2, 128, 0, 5000, QRN_ROPE_NEOX, false, true, "YaRN"},
    {4, 2, 64, 32, 5000, QRN_ROPE_NEOX, true, true, "YaRN with factors"},
    {0, 2, 8, 0, 0, QRN_ROPE_NEOX, false, false, "no tokens"},
};

static struct qrn_rope_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t shape[] = {cases[i].n_tokens, cases[i].n_heads, cases[i].head_dim};
    struct qrn_rope_args a = {
        .x = mem_filled(m, r, 1.0, 3, shape),
        .out = mem_tensor(m, QRN_F32, 3, shape),
        .positions = mem_tensor(m, QRN_I32, 1, shape),
        .n_rot = cases[i].n_rot,
        .theta = 1e7,
        .mode = cases[i].mode,
    };
    for (int64_t t = 0; t < shape[0]; t++)
        ((int32_t *)a.positions.data)[t] = cases[i].first_position + (int32_t)t;
    const int64_t half = (a.n_rot ? a.n_rot : shape[2]) / 2;
    if (cases[i].factors) a.freq_factors = mem_tensor(m, QRN_F32, 1, &half);
    for (int64_t p = 0; p < half && cases[i].factors; p++)
        ((float *)a.freq_factors.data)[p] = (float)rng_uniform(r, 0.5, 8.0);
    if (cases[i].yarn) a.scaling = (struct qrn_rope_scaling){.factor = 4, .original_context = 4096};
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_rope);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_rope_args a = make(&m, &r, i);
        for (size_t j = 0; j < d.n; j++) /* angles are equal: what is left is four roundings */
            op_test_against_reference(d.dev[j], QRN_OP_rope, &a, 1e-6, cases[i].why);
        op_test_same_bits(QRN_OP_rope, &a, cases[i].why);
        a.out = a.x;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_rope, &a, 1e-6, "in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Figures worked out apart from the code: python, float64, Hugging Face's YaRN rule. */
static void test_known_angles(void **state)
{
    (void)state;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    float x[64], out[64];
    int32_t position = 1;
    for (int i = 0; i < 64; i++) x[i] = i < 32 ? 1.0f : 0.0f;
    struct qrn_rope_args a = {
        .x = qrn_tensor_3d(QRN_F32, x, 1, 1, 64),
        .out = qrn_tensor_3d(QRN_F32, out, 1, 1, 64),
        .positions = qrn_tensor_1d(QRN_I32, &position, 1),
        .theta = 10000.0,
    };
    assert_int_equal(qrn_rope(dev, &a, NULL), QRN_OK);
    assert_true(fabsf(out[0] - 0.5403023f) < 1e-6f && fabsf(out[32] - 0.8414710f) < 1e-6f);
    assert_true(fabsf(atan2f(out[32 + 16], out[16]) - 0.01f) < 1e-7f); /* 10000^-0.5 */
    a.scaling = (struct qrn_rope_scaling){.factor = 4, .original_context = 2048};
    assert_int_equal(qrn_rope(dev, &a, NULL), QRN_OK);
    /* low = floor(64 ln(2048 / (32 * 2 pi)) / (2 ln 10000)) = 8, high = ceil(20.1) = 21; magnitude
     * 0.1 ln 4 + 1 */
    const float magnitude = 1.1386294f;
    assert_true(fabsf(hypotf(out[5], out[37]) - magnitude) < 1e-6f);
    assert_true(fabsf(atan2f(out[32 + 5], out[5]) - 0.2371374f) < 1e-6f); /* fast: as before */
    assert_true(fabsf(atan2f(out[32 + 30], out[30]) - 0.0001778279f / 4) < 1e-9f); /* slow: / 4 */
    const float middle = 0.01f / 4 * (8.0f / 13) + 0.01f * (5.0f / 13);
    assert_true(fabsf(atan2f(out[32 + 16], out[16]) - middle) < 1e-8f);
    qrn_device_close(dev);
}

/* Cosines and sines of angles up to 2^24, and beyond: those of the C library, but for the last bit of
 * very few. */
static void test_far_angles(void **state)
{
    enum { T = 4000, HALF = 5 };
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {9};
    devices_open_for(&d, 2, QRN_OP_rope);
    struct qrn_rope_args a = {.x = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){T, 1, 2 * HALF}),
                              .out = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){T, 1, 2 * HALF}),
                              .positions = mem_tensor(&m, QRN_I32, 1, (const int64_t[]){T}),
                              .freq_factors = mem_tensor(&m, QRN_F32, 1, (const int64_t[]){HALF}),
                              .theta = 1.0, .mode = QRN_ROPE_NEOX};
    const float factors[HALF] = {1.0f, 1.7f, 300.0f, 1e5f, 0.01f};
    memcpy(a.freq_factors.data, factors, sizeof factors);
    for (int64_t t = 0; t < T; t++) {
        ((int32_t *)a.positions.data)[t] = (int32_t)rng_below(&r, 16777217);
        for (int i = 0; i < 2 * HALF; i++)
            ((float *)a.x.data)[t * 2 * HALF + i] = i < HALF ? 1.0f : 0.0f;
    }
    for (size_t n = 0; n < d.n; n++) {
        int64_t n_off = 0;
        assert_int_equal(qrn_rope(d.dev[n], &a, NULL), QRN_OK);
        for (int64_t t = 0; t < T; t++)
            for (int i = 0; i < HALF; i++) {
                const float *out = (const float *)a.out.data + t * 2 * HALF + i;
                const float frequency = (float)(1.0 / (double)factors[i]);
                const double angle = (double)((float)((int32_t *)a.positions.data)[t] * frequency);
                const float c = (float)cos(angle), s = (float)sin(angle);
                n_off += out[0] != c;
                n_off += out[HALF] != s;
                assert_true(fabsf(out[0] - c) <= fabsf(c) * 1.2e-7f);
                assert_true(fabsf(out[HALF] - s) <= fabsf(s) * 1.2e-7f);
            }
        assert_true(n_off <= 2 * T * HALF / 1000);
    }
    devices_close(&d);
    mem_free_all(&m);
}

/* A token's rotation is its own: alone, in a batch, whatever stands before it. */
static void test_rows_alone(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {1};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_rope_args a = make(&m, &r, 1);
    assert_int_equal(qrn_rope(dev, &a, NULL), QRN_OK);
    for (int64_t t = 0; t < a.x.shape[0]; t++) {
        float out[8 * 256];
        struct qrn_rope_args one = a;
        one.x = qrn_tensor_slice(a.x, 0, t, 1);
        one.positions = qrn_tensor_slice(a.positions, 0, t, 1);
        one.out = qrn_tensor_3d(QRN_F32, out, 1, 8, 256);
        assert_int_equal(qrn_rope(dev, &one, NULL), QRN_OK);
        assert_memory_equal(out, (float *)a.out.data + t * 8 * 256, sizeof out);
    }
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
    const struct qrn_rope_args good = make(&m, &r, 4);
    struct qrn_rope_args a;
#define FAILS(change, status, text)                                                                \
    a = good;                                                                                      \
    change;                                                                                        \
    op_test_fails(dev, QRN_OP_rope, &a, status, text)
    FAILS(a.positions = (struct qrn_tensor){0}, QRN_ERR_ARGUMENT, "rope: positions is missing");
    FAILS((a.x.n_dims = 2, a.x.stride[1] = 1), QRN_ERR_SHAPE, "x has 2 dimensions, wants 3");
    FAILS(a.x.dtype = QRN_F16, QRN_ERR_DTYPE, "x is f16, wants f32");
    FAILS(a.out.shape[1] = 1, QRN_ERR_SHAPE, "out.shape[1] is 1, wants 2 (that of x)");
    FAILS(a.positions.shape[0] = 2, QRN_ERR_SHAPE, "positions.shape[0] is 2, wants 3");
    FAILS(a.positions.dtype = QRN_F32, QRN_ERR_DTYPE, "positions is f32, wants i32");
    FAILS(a.n_rot = 5, QRN_ERR_ARGUMENT, "n_rot is 5, wants an even number up to 20");
    FAILS(a.n_rot = 22, QRN_ERR_ARGUMENT, "n_rot is 22, wants an even number up to 20");
    FAILS(a.n_rot = -2, QRN_ERR_ARGUMENT, "n_rot is -2, wants");
    FAILS(a.theta = 0, QRN_ERR_ARGUMENT, "theta is 0, wants above 0");
    FAILS(a.mode = (enum qrn_rope_mode)7, QRN_ERR_ARGUMENT, "mode is 7, wants 0 or 1");
    FAILS(a.freq_factors.shape[0] = 2, QRN_ERR_SHAPE, "freq_factors.shape[0] is 2, wants 3");
    FAILS(a.scaling.factor = 0.5f, QRN_ERR_ARGUMENT, "scaling.factor is 0.5, wants 0, 1 or more");
    FAILS(a.scaling.factor = 4, QRN_ERR_ARGUMENT, "scaling.original_context is 0, wants above 0");
    FAILS(a.scaling = ((struct qrn_rope_scaling){2, 4096, -1, 0, 0}), QRN_ERR_ARGUMENT,
          "beta_fast, beta_slow, attention_factor are -1, 0, 0, want 0 or more");
    FAILS(((int32_t *)a.positions.data)[1] = -4, QRN_ERR_ARGUMENT,
          "positions[1] is -4, wants 0 to 16777216");
    FAILS(((int32_t *)a.positions.data)[1] = 16777217, QRN_ERR_ARGUMENT,
          "positions[1] is 16777217");
    FAILS(a.out.data = (float *)a.x.data + 1, QRN_ERR_ARGUMENT, "out overlaps x");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_known_angles),
        cmocka_unit_test(test_far_angles),
        cmocka_unit_test(test_rows_alone),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
