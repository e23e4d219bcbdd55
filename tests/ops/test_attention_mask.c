/* SPDX-License-Identifier: MIT
 * attention_mask: every cell, both types, and every error. */
#include <math.h>

#include "support/op_test.h"

static const struct {
    int64_t n_tokens, n_kv;
    bool causal;
    int64_t q_offset, window;
    const char *why;
} cases[] = {
    {1, 1, true, 0, 0, "smallest"},
    {33, 33, true, 0, 0, "square"},
    {5, 70, true, 65, 16, "window after an offset"},
    {17, 9, true, -4, 0, "queries before all keys"},
    {4, 20, false, 10, 3, "window alone"},
    {4, 20, true, 10, 1, "only itself"},
    {3, 5, false, 0, 0, "nothing masked"},
    {3, 5, true, (int64_t)1 << 40, 2, "far away"},
    {0, 5, true, 0, 0, "no queries"},
};

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention_mask);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        const size_t c = i / 2;
        const struct qrn_attention_mask_args a = {
            .out = mem_tensor(&m, i % 2 ? QRN_BF16 : QRN_F32, 2,
                              (const int64_t[]){cases[c].n_tokens, cases[c].n_kv}),
            .causal = cases[c].causal,
            .q_offset = cases[c].q_offset,
            .window = cases[c].window,
        };
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_attention_mask, &a, 0.0, cases[c].why);
        op_test_same_bits(QRN_OP_attention_mask, &a, cases[c].why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* The bit patterns that the reference library documents. */
static void test_bits(void **state)
{
    (void)state;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    uint16_t out[2][4];
    const struct qrn_attention_mask_args a = {
        .out = qrn_tensor_2d(QRN_BF16, out, 2, 4), .causal = true, .q_offset = 1, .window = 2};
    assert_int_equal(qrn_attention_mask(dev, &a, NULL), QRN_OK);
    const uint16_t want[2][4] = {{0, 0, 0xff80, 0xff80}, {0xff80, 0, 0, 0xff80}};
    assert_memory_equal(out, want, sizeof want);
    qrn_device_close(dev);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_attention_mask_args good = {
        .out = mem_tensor(&m, QRN_F32, 2, (const int64_t[]){3, 4}), .causal = true};
    struct qrn_attention_mask_args a = good;
    a.out = (struct qrn_tensor){0};
    op_test_fails(dev, QRN_OP_attention_mask, &a, QRN_ERR_ARGUMENT,
                  "attention_mask: out is missing");
    a = good;
    a.out.dtype = QRN_F16;
    op_test_fails(dev, QRN_OP_attention_mask, &a, QRN_ERR_DTYPE, "out is f16, wants f32 or bf16");
    a = good;
    a.out = mem_tensor(&m, QRN_F32, 1, (const int64_t[]){3});
    op_test_fails(dev, QRN_OP_attention_mask, &a, QRN_ERR_SHAPE, "out has 1 dimensions, wants 2");
    a = good;
    a.window = -2;
    op_test_fails(dev, QRN_OP_attention_mask, &a, QRN_ERR_ARGUMENT,
                  "window is -2, wants 0 or more");
    a = good;
    a.q_offset = INT64_MIN;
    op_test_fails(dev, QRN_OP_attention_mask, &a, QRN_ERR_ARGUMENT, "wants -2^40 to 2^40");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_bits), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
