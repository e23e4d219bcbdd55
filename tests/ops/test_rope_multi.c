/* SPDX-License-Identifier: MIT
 * rope_multi: all modes against the reference, equal axes against rope, PyTorch's entries, errors.
 */
#include <math.h>
#include <string.h>

#include "support/op_test.h"
#include "support/shared.h"
#include "support/tensor_file.h"

static const struct {
    int64_t n_tokens, n_heads, head_dim, n_rot, n_axes;
    enum qrn_rope_multi_mode mode;
    int32_t sections[4];
    const char *why;
} cases[] = {
    {1, 1, 2, 0, 3, QRN_ROPE_MROPE, {1, 0, 0, 0}, "smallest"},
    {7, 2, 256, 64, 3, QRN_ROPE_IMROPE, {11, 11, 10, 0}, "Qwen3.5"},
    {7, 2, 256, 64, 4, QRN_ROPE_IMROPE, {11, 11, 10, 0}, "Qwen3.5, four axes"},
    {4, 2, 128, 0, 4, QRN_ROPE_IMROPE, {24, 20, 20, 0}, "pairs that no section takes"},
    {4, 2, 128, 0, 3, QRN_ROPE_IMROPE, {24, 20, 20, 0}, "the same with three axes"},
    {5, 3, 128, 0, 3, QRN_ROPE_MROPE, {16, 24, 24, 0}, "Qwen2-VL"},
    {8, 2, 20, 12, 4, QRN_ROPE_MROPE, {2, 2, 1, 0}, "sections shorter than the pairs begin again"},
    {3, 1, 16, 10, 4, QRN_ROPE_MROPE, {1, 1, 1, 2}, "fourth axis"},
    {6, 2, 80, 0, 4, QRN_ROPE_VISION, {20, 20, 0, 0}, "image"},
    {0, 2, 8, 0, 3, QRN_ROPE_MROPE, {4, 0, 0, 0}, "no tokens"},
};

static struct qrn_rope_multi_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t shape[] = {cases[i].n_tokens, cases[i].n_heads, cases[i].head_dim};
    const int64_t axes[] = {cases[i].n_axes, cases[i].n_tokens};
    struct qrn_rope_multi_args a = {
        .x = mem_filled(m, r, 1.0, 3, shape),
        .out = mem_tensor(m, QRN_F32, 3, shape),
        .positions = mem_tensor(m, QRN_I32, 2, axes),
        .n_rot = cases[i].n_rot,
        .theta = 1e7,
        .mode = cases[i].mode,
    };
    memcpy(a.sections, cases[i].sections, sizeof a.sections);
    for (int64_t p = 0; p < axes[0] * axes[1]; p++)
        ((int32_t *)a.positions.data)[p] = (int32_t)rng_below(r, 262144);
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_rope_multi);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_rope_multi_args a = make(&m, &r, i);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_rope_multi, &a, 1e-6, cases[i].why);
        op_test_same_bits(QRN_OP_rope_multi, &a, cases[i].why);
        a.out = a.x;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_rope_multi, &a, 1e-6, "in place");
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_equal_axes(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_rope_multi);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].mode == QRN_ROPE_VISION) continue;
        struct mem m = {0};
        struct rng r = {i};
        const struct qrn_rope_multi_args a = make(&m, &r, i);
        const int64_t n = cases[i].n_tokens;
        for (int64_t axis = 1; axis < cases[i].n_axes; axis++)
            memcpy((int32_t *)a.positions.data + axis * n, a.positions.data, (size_t)n * 4);
        const struct qrn_rope_args plain = {
            .x = a.x,
            .out = mem_tensor(&m, QRN_F32, 3, a.out.shape),
            .n_rot = a.n_rot,
            .theta = a.theta,
            .positions = qrn_tensor_1d(QRN_I32, a.positions.data, n),
            .mode = QRN_ROPE_NEOX,
        };
        for (size_t j = 0; j < d.n; j++) {
            assert_int_equal(qrn_rope_multi(d.dev[j], &a, NULL), QRN_OK);
            assert_int_equal(qrn_rope(d.dev[j], &plain, NULL), QRN_OK);
            assert_memory_equal(a.out.data, plain.out.data, a.out.n_bytes);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* The axis and the frequency of every pair, seen through the angle that position 1 makes. */
static void test_axes(void **state)
{
    (void)state;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    float x[16], out[16];
    int32_t positions[4];
    for (int i = 0; i < 16; i++) x[i] = i < 8 ? 1.0f : 0.0f;
    static const struct {
        enum qrn_rope_multi_mode mode;
        int32_t sections[4];
        int axis[8];
    } expected[] = {
        {QRN_ROPE_MROPE, {3, 2, 2, 1}, {0, 0, 0, 1, 1, 2, 2, 3}},
        {QRN_ROPE_IMROPE, {3, 3, 2, 0}, {0, 1, 2, 0, 1, 2, 0, 1}},
        {QRN_ROPE_IMROPE, {3, 2, 1, 2}, {0, 1, 2, 0, 1, 3, 0, 3}},
        {QRN_ROPE_VISION, {4, 4, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}},
    };
    for (size_t c = 0; c < sizeof expected / sizeof *expected; c++)
        for (int axis = 0; axis < 4; axis++) {
            for (int i = 0; i < 4; i++) positions[i] = i == axis;
            struct qrn_rope_multi_args a = {
                .x = qrn_tensor_3d(QRN_F32, x, 1, 1, 16),
                .out = qrn_tensor_3d(QRN_F32, out, 1, 1, 16),
                .positions = qrn_tensor_2d(QRN_I32, positions, 4, 1),
                .theta = 100.0,
                .mode = expected[c].mode,
            };
            memcpy(a.sections, expected[c].sections, sizeof a.sections);
            assert_int_equal(qrn_rope_multi(dev, &a, NULL), QRN_OK);
            for (int p = 0; p < 8; p++) {
                const bool image = expected[c].mode == QRN_ROPE_VISION;
                const double f =
                    image ? pow(100.0, -2.0 * (p % 4) / 8.0) : pow(100.0, -2.0 * p / 16.0);
                const double want = expected[c].axis[p] == axis ? f : 0.0;
                assert_true(fabs(atan2((double)out[p + 8], (double)out[p]) - want) < 1e-6);
            }
        }
    qrn_device_close(dev);
}

/* The plain way: everything in float32. */
static void plain_rope(const float *x, float *out, const int32_t *positions,
                       const int32_t *sections, int64_t n_tokens, int64_t n_rot, int64_t d,
                       int64_t t)
{
    memcpy(out, x, (size_t)d * sizeof *x);
    for (int64_t p = 0; p < n_rot / 2; p++) {
        const int axis = p % 3 == 1 && p < 3 * sections[1]   ? 1
                         : p % 3 == 2 && p < 3 * sections[2] ? 2
                                                             : 0;
        const float f = 1.0f / powf(1e7f, (float)(2 * p) / (float)n_rot);
        const float angle = (float)positions[axis * n_tokens + t] * f, c = cosf(angle),
                    s = sinf(angle);
        out[p] = x[p] * c - x[p + n_rot / 2] * s;
        out[p + n_rot / 2] = x[p + n_rot / 2] * c + x[p] * s;
    }
}

static double worst_error(const float *got, const float *want, int64_t n)
{
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    return worst;
}

static void *entry(struct mem *m, const struct tensor_file *f, int i, const char *name,
                   size_t *n_bytes)
{
    char full[64];
    snprintf(full, sizeof full, "rope_multi.%d.%s", i, name);
    const uint8_t *bytes = tensor_file_find(f, full, n_bytes);
    assert_non_null(bytes);
    return memcpy(mem_guarded(m, *n_bytes), bytes, *n_bytes);
}

static void test_entries(void **state)
{
    (void)state;
    static const int64_t shapes[2][3] = {{2, 7, 256}, {2, 4, 128}}; /* [heads, tokens, head_dim] */
    const char *path = shared_path("references/ops.safetensors");
    struct tensor_file f;
    struct devices d;
    tensor_file_open(path ? path : "tests/data/attention_goldens.safetensors", &f);
    devices_open_for(&d, 2, QRN_OP_rope_multi);
    for (int i = path ? 0 : 1; i < 2; i++) {
        struct mem m = {0};
        const int64_t n_tokens = shapes[i][1], width = shapes[i][2], n = 2 * n_tokens * width;
        size_t n_bytes;
        float *x = entry(&m, &f, i, "x", &n_bytes), *want = entry(&m, &f, i, "out", &n_bytes);
        assert_int_equal(n_bytes, n * 4);
        int32_t *positions = entry(&m, &f, i, "positions", &n_bytes);
        const int32_t *sections = entry(&m, &f, i, "sections", &n_bytes);
        float *out = mem_guarded(&m, (size_t)n * 4), *plain = mem_guarded(&m, (size_t)n * 4);
        struct qrn_rope_multi_args a = {
            .x = qrn_tensor_3d(QRN_F32, x, n_tokens, 2, width),
            .out = qrn_tensor_3d(QRN_F32, out, n_tokens, 2, width),
            .positions = qrn_tensor_2d(QRN_I32, positions, 3, n_tokens),
            .n_rot = width / 4,
            .theta = 1e7,
            .mode = QRN_ROPE_IMROPE,
            .sections = {sections[0], sections[1], sections[2], 0},
        };
        a.x.stride[0] = a.out.stride[0] = width;
        a.x.stride[1] = a.out.stride[1] = n_tokens * width;
        for (int64_t r = 0; r < 2 * n_tokens; r++)
            plain_rope(x + r * width, plain + r * width, positions, sections, n_tokens, a.n_rot,
                       width, r % n_tokens);
        const double plain_error = worst_error(plain, want, n);
        for (size_t j = 0; j < d.n; j++) {
            const struct qrn_kernel *kernel;
            for (size_t c = 0; (kernel = qrn_kernel_at(d.dev[j], QRN_OP_rope_multi, c)) != NULL;
                 c++) {
                struct qrn_error err = {0};
                if (qrn_kernel_run(d.dev[j], kernel, &a, &err) != QRN_OK) fail_msg("%s", err.text);
                const double error = worst_error(out, want, n);
                if (j == 0)
                    print_message("rope_multi.%d %-24s error %.3g, plain f32 %.3g\n", i,
                                  kernel->name, error, plain_error);
                assert_true(error <= 4 * plain_error);
            }
        }
        mem_free_all(&m);
    }
    devices_close(&d);
    tensor_file_close(&f);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_rope_multi_args good = make(&m, &r, 1);
    struct qrn_rope_multi_args a;
#define FAILS(change, status, text)                                                                \
    a = good;                                                                                      \
    change;                                                                                        \
    op_test_fails(dev, QRN_OP_rope_multi, &a, status, text)
    FAILS(a.positions = (struct qrn_tensor){0}, QRN_ERR_ARGUMENT,
          "rope_multi: positions is missing");
    FAILS(a.x.dtype = QRN_BF16, QRN_ERR_DTYPE, "x is bf16, wants f32");
    FAILS(a.out.shape[0] = 6, QRN_ERR_SHAPE, "out.shape[0] is 6, wants 7 (that of x)");
    FAILS(a.positions.shape[1] = 6, QRN_ERR_SHAPE, "positions.shape[1] is 6, wants 7");
    FAILS(a.positions.shape[0] = 2, QRN_ERR_SHAPE, "positions.shape[0] is 2, wants 3 or 4");
    FAILS(a.n_rot = 63, QRN_ERR_ARGUMENT, "n_rot is 63, wants an even number up to 256");
    FAILS(a.n_rot = 258, QRN_ERR_ARGUMENT, "n_rot is 258, wants an even number up to 256");
    FAILS(a.theta = -1, QRN_ERR_ARGUMENT, "theta is -1, wants above 0");
    FAILS(a.mode = (enum qrn_rope_multi_mode)8, QRN_ERR_ARGUMENT, "mode is 8, wants 0 to 2");
    FAILS(a.sections[1] = -1, QRN_ERR_ARGUMENT, "sections[1] is -1, wants 0 or more");
    FAILS(memset(a.sections, 0, sizeof a.sections), QRN_ERR_ARGUMENT, "sections sum up to 0");
    FAILS(a.sections[3] = 4, QRN_ERR_ARGUMENT,
          "sections[3] is 4 where positions has 3 axes, wants 0");
    FAILS(a.mode = QRN_ROPE_VISION, QRN_ERR_ARGUMENT, "n_rot is 64 for an image, wants all 256");
    FAILS((a.mode = QRN_ROPE_VISION, a.n_rot = 0), QRN_ERR_ARGUMENT,
          "sections[0] + sections[1] is 22, wants half of the 256 dimensions");
    FAILS(((int32_t *)a.positions.data)[9] = -2, QRN_ERR_ARGUMENT,
          "positions[1][2] is -2, wants 0 to 16777216");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_equal_axes),
        cmocka_unit_test(test_axes),      cmocka_unit_test(test_entries),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
