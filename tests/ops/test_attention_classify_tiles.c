/* SPDX-License-Identifier: MIT
 * attention_classify_tiles: skipped, mixed, whole; edges; masks of every type and none. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

static const struct {
    int64_t n_tokens, n_kv, tile_q, tile_k;
    bool causal;
    int64_t q_offset, window;
    enum qrn_dtype mask; /* QRN_DTYPE_COUNT: none */
    const char *why;
} cases[] = {
    {1, 1, 32, 64, true, 0, 0, QRN_DTYPE_COUNT, "smallest: an edge"},
    {64, 128, 32, 64, false, 0, 0, QRN_DTYPE_COUNT, "all attended"},
    {100, 300, 32, 64, true, 200, 0, QRN_DTYPE_COUNT, "causal with edges"},
    {100, 300, 32, 64, true, 200, 70, QRN_DTYPE_COUNT, "and a window"},
    {40, 64, 8, 16, true, 24, 0, QRN_F32, "mask and causal"},
    {50, 66, 8, 16, false, 0, 0, QRN_F16, "f16 mask"},
    {50, 66, 8, 16, false, 0, 0, QRN_BF16, "bf16 mask"},
    {17, 9, 4, 4, true, -4, 0, QRN_DTYPE_COUNT, "queries without keys"},
    {3, 0, 4, 4, true, 0, 0, QRN_DTYPE_COUNT, "no keys"},
};

/* Tiles that are whole, masked and mixed, in runs. */
static void fill_mask(struct rng *r, const struct qrn_tensor *mask, int64_t tile_q, int64_t tile_k)
{
    for (int64_t i = 0; i < mask->shape[0]; i++)
        for (int64_t j = 0; j < mask->shape[1]; j++) {
            const int64_t kind = (i / tile_q * 7 + j / tile_k * 3) % 5;
            double x = 0.0;
            if (kind == 1)
                x = rng_below(r, 2) ? -INFINITY : mask->dtype == QRN_F16 ? -INFINITY : -2e30;
            if (kind == 2) x = rng_below(r, 9) ? 0.0 : -INFINITY;
            if (kind == 3) x = rng_below(r, 99) ? 0.0 : -65504.0;
            qrn_ref_set(mask, i, j, 0, 0, x);
        }
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention_classify_tiles);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        const int64_t tq = cases[i].tile_q, tk = cases[i].tile_k;
        const int64_t shape[] = {cases[i].n_tokens, cases[i].n_kv};
        const int64_t tiles[] = {(shape[0] + tq - 1) / tq, (shape[1] + tk - 1) / tk};
        struct qrn_attention_classify_tiles_args a = {
            .classes = mem_tensor(&m, QRN_U8, 2, tiles),
            .n_tokens = shape[0],
            .n_kv = shape[1],
            .causal = cases[i].causal,
            .q_offset = cases[i].q_offset,
            .window = cases[i].window,
            .tile_q = tq,
            .tile_k = tk,
        };
        if (cases[i].mask != QRN_DTYPE_COUNT) {
            a.mask = mem_tensor(&m, cases[i].mask, 2, shape);
            fill_mask(&r, &a.mask, tq, tk);
        }
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_attention_classify_tiles, &a, 0.0,
                                      cases[i].why);
        op_test_same_bits(QRN_OP_attention_classify_tiles, &a, cases[i].why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* By hand: 4 x 8 cells in tiles of 2 x 3, the right edge cut. */
static void test_by_hand(void **state)
{
    (void)state;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    float mask[4][8] = {{0}};
    uint8_t classes[2][3];
    mask[0][1] = -0.5f;
    for (int i = 2; i < 4; i++)
        for (int j = 0; j < 3; j++) mask[i][j] = j ? -1e30f : -INFINITY;
    struct qrn_attention_classify_tiles_args a = {
        .mask = qrn_tensor_2d(QRN_F32, mask, 4, 8),
        .classes = qrn_tensor_2d(QRN_U8, classes, 2, 3),
        .n_tokens = 4,
        .n_kv = 8,
        .tile_q = 2,
        .tile_k = 3,
    };
    assert_int_equal(qrn_attention_classify_tiles(dev, &a, NULL), QRN_OK);
    assert_memory_equal(classes, ((const uint8_t[]){1, 2, 1, 0, 2, 1}), 6);
    a.causal = true;
    a.q_offset = 2; /* rows stand at 2, 3, 4, 5 */
    assert_int_equal(qrn_attention_classify_tiles(dev, &a, NULL), QRN_OK);
    assert_memory_equal(classes, ((const uint8_t[]){1, 1, 0, 0, 1, 0}), 6);
    qrn_device_close(dev);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_attention_classify_tiles_args good = {
        .mask = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){40, 70}),
        .classes = mem_tensor(&m, QRN_U8, 2, (const int64_t[]){2, 2}),
        .n_tokens = 40,
        .n_kv = 70,
        .tile_q = 32,
        .tile_k = 64,
    };
    struct qrn_attention_classify_tiles_args a;
#define FAILS(change, status, text)                                                                \
    a = good;                                                                                      \
    change;                                                                                        \
    op_test_fails(dev, QRN_OP_attention_classify_tiles, &a, status, text)
    FAILS(a.classes = (struct qrn_tensor){0}, QRN_ERR_ARGUMENT, "classes is missing");
    FAILS(a.classes.dtype = QRN_I8, QRN_ERR_DTYPE, "classes is i8, wants u8");
    FAILS(a.classes.shape[1] = 1, QRN_ERR_SHAPE, "classes.shape[1] is 1, wants 2");
    FAILS(a.n_kv = 69, QRN_ERR_SHAPE, "mask.shape[1] is 70, wants 69");
    FAILS(a.n_tokens = -1, QRN_ERR_ARGUMENT, "n_tokens is -1, n_kv is 70, want 0 or more");
    FAILS(a.tile_k = 0, QRN_ERR_ARGUMENT, "tile_q is 32, tile_k is 0, want 1 or more");
    FAILS(a.window = -3, QRN_ERR_ARGUMENT, "window is -3, wants 0 or more");
    FAILS(a.q_offset = INT64_MIN, QRN_ERR_ARGUMENT, "wants -2^40 to 2^40");
    FAILS(a.mask.dtype = QRN_I32, QRN_ERR_DTYPE, "mask is i32, wants f32 or f16 or bf16");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
