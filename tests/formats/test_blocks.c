/* SPDX-License-Identifier: MIT
 * Decoders: against blocks decoded elsewhere, by hand, and on any bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "formats/blocks.h"
#include "support/shared.h"
#include "support/tensor_file.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill_random(uint8_t *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)next_random(&seed);
}

/* The types that have a decoder, in order: X is called for each. */
static bool decodes(int dtype)
{
    return qrn_decoder((enum qrn_dtype)dtype) != NULL;
}

/* Every NAME.raw of the file decodes to NAME.values, bit for bit. */
static int compare_file(const char *path)
{
    struct tensor_file file;
    tensor_file_open(path, &file);
    int n_types = 0;
    const char *key;
    json_t *info;
    json_object_foreach(file.header, key, info) {
        const char *dot = strstr(key, ".raw");
        if (!dot) continue;
        char name[32], values_name[48];
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
        snprintf(values_name, sizeof values_name, "%s.values", name);
        size_t n_raw, n_values;
        const uint8_t *raw = tensor_file_find(&file, key, &n_raw);
        const uint8_t *values = tensor_file_find(&file, values_name, &n_values);
        assert_non_null(values);
        const enum qrn_dtype dtype = qrn_dtype_from_name(name);
        const qrn_decode_fn decode = qrn_decoder(dtype);
        if (!decode) fail_msg("%s has no decoder", name);
        size_t expected;
        assert_true(qrn_row_bytes(dtype, (int64_t)(n_values / 4), &expected));
        assert_int_equal(expected, n_raw);
        float *got = malloc(n_values);
        assert_non_null(got);
        memset(got, 0xff, n_values);
        decode(raw, got, n_values / 4);
        for (size_t i = 0; i < n_values / 4; i++)
            if (memcmp(values + 4 * i, got + i, 4) != 0) {
                float want;
                memcpy(&want, values + 4 * i, 4);
                fail_msg("%s: value %zu is %a, should be %a", name, i, (double)got[i],
                         (double)want);
            }
        free(got);
        n_types++;
    }
    tensor_file_close(&file);
    return n_types;
}

static void test_golden_blocks(void **state)
{
    (void)state;
    assert_int_equal(compare_file("tests/data/block_goldens.safetensors"), 23);
}

static void test_shared_blocks(void **state)
{
    (void)state;
    const char *path = shared_path("references/ggml_blocks.safetensors");
    if (!path) skip();
    assert_int_equal(compare_file(path), 23);
}

/* A block whose bytes are zero but for those given, and what some of its values must be. */
static const struct {
    enum qrn_dtype dtype;
    struct {
        int at;
        uint8_t byte;
    } bytes[6];
    struct {
        int at;
        float value;
    } values[3];
    const char *why;
} by_hand[] = {
    {QRN_F16, {{0, 0x01}}, {{0, 0x1p-24f}}, "least subnormal"},
    {QRN_F16, {{0, 0xff}, {1, 0x83}}, {{0, -0x3ffp-24f}}, "greatest subnormal, negative"},
    {QRN_F16, {{0, 0xff}, {1, 0x7b}}, {{0, 65504}}, "greatest"},
    {QRN_F16, {{1, 0xfc}}, {{0, -INFINITY}}, "infinity"},
    {QRN_BF16, {{0, 0x80}, {1, 0x3f}}, {{0, 1}}, "one"},
    {QRN_F64, {{0, 1}, {6, 0xf0}, {7, 0x3f}}, {{0, 1}}, "just above one"},
    {QRN_F64, {{6, 0xf0}, {7, 0x7e}}, {{0, INFINITY}}, "beyond the range of float"},
    {QRN_F8_E4M3, {{0, 0x01}}, {{0, 0x1p-9f}}, "least subnormal"},
    {QRN_F8_E4M3, {{0, 0x87}}, {{0, -0x7p-9f}}, "greatest subnormal, negative"},
    {QRN_F8_E4M3, {{0, 0x08}}, {{0, 0x1p-6f}}, "least normal"},
    {QRN_F8_E4M3, {{0, 0x7e}}, {{0, 448}}, "greatest"},
    {QRN_F8_E4M3, {{0, 0xff}}, {{0, NAN}}, "not a number"},
    {QRN_F8_E5M2, {{0, 0x01}}, {{0, 0x1p-16f}}, "least subnormal"},
    {QRN_F8_E5M2, {{0, 0xfb}}, {{0, -57344}}, "greatest, negative"},
    {QRN_F8_E5M2, {{0, 0x7c}}, {{0, INFINITY}}, "infinity"},
    {QRN_F8_E8M0, {{0, 0x00}}, {{0, 0x1p-127f}}, "a subnormal float"},
    {QRN_F8_E8M0, {{0, 0x7f}}, {{0, 1}}, "one"},
    {QRN_F8_E8M0, {{0, 0xfe}}, {{0, 0x1p127f}}, "greatest"},
    {QRN_F8_E8M0, {{0, 0xff}}, {{0, NAN}}, "not a number"},
    {QRN_Q4_0, {{0, 1}, {2, 0xf0}}, {{0, -0x1p-21f}, {16, 0x7p-24f}}, "subnormal scale"},
    {QRN_Q4_0, {{1, 0xbc}, {2, 0x0f}}, {{0, -7}, {16, 8}}, "scale -1"},
    {QRN_Q4_1, {{1, 0xbc}, {3, 0x40}, {4, 0x3f}}, {{0, -13}, {16, -1}, {1, 2}}, "scale -1, min 2"},
    {QRN_Q5_0, {{1, 0x3c}, {4, 0x01}, {6, 0xf0}}, {{0, -16}, {16, 15}, {1, -16}}, "fifth bits"},
    {QRN_Q5_1, {{1, 0x3c}, {7, 0x80}, {23, 0x0f}}, {{31, 16}, {15, 15}}, "fifth bits"},
    {QRN_Q8_0, {{0, 1}, {1, 0x80}, {2, 0x80}}, {{0, 0x1p-17f}}, "-2^-24 times -128"},
    {QRN_Q8_1, {{1, 0x3c}, {3, 0x7e}, {35, 0xff}}, {{31, -1}, {0, 0}}, "the sum takes no part"},
    {QRN_Q8_K, {{2, 0x80}, {3, 0xbf}, {4, 5}, {259, 0x80}}, {{0, -5}, {255, 128}}, "f32 scale -1"},
    {QRN_Q1_0, {{1, 0x3c}, {2, 0x02}}, {{0, -1}, {1, 1}, {127, -1}}, "signs"},
    {QRN_Q2_0, {{1, 0x3c}, {2, 0xe4}, {17, 0x80}}, {{3, 2}, {2, 1}, {63, 1}}, "bit pairs"},
    {QRN_TQ2_0, {{65, 0x3c}, {0, 0x06}}, {{0, 1}, {32, 0}, {64, -1}}, "bit pairs 32 apart"},
    {QRN_TQ1_0, {{53, 0x3c}, {0, 0xff}, {48, 0x56}}, {{0, 1}, {128, 1}, {240, 0}}, "ternary"},
    {QRN_MXFP4, {{0, 0}, {1, 0x1f}}, {{0, -0x3p-126f}, {16, 0x1p-128f}}, "2^-127: subnormal"},
    {QRN_MXFP4, {{0, 254}, {1, 0x02}}, {{0, 0x1p127f}}, "largest scale but one"},
    {QRN_NVFP4, {{0, 0x7f}, {4, 0x07}}, {{0, 0}}, "0x7f is zero"},
    {QRN_NVFP4, {{1, 0x01}, {12, 0x27}}, {{16, 0x3p-8f}, {24, 0x1p-9f}}, "subnormal scale"},
    {QRN_NVFP4, {{3, 0x7e}, {35, 0x7f}}, {{55, -2688}, {63, 2688}}, "greatest scale"},
    {QRN_IQ4_NL, {{1, 0xbc}, {2, 0xf0}}, {{0, 127}, {16, -113}}, "scale -1"},
    {QRN_Q6_K, {{209, 0x3c}, {192, 0xff}}, {{0, 32}, {16, 0}}, "sub-block scale -1"},
};

static void test_by_hand(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof by_hand / sizeof *by_hand; c++) {
        const struct qrn_dtype_info *info = qrn_dtype_info(by_hand[c].dtype);
        uint8_t block[512] = {0};
        float got[256];
        for (size_t i = 0; i < 6; i++)
            if (by_hand[c].bytes[i].byte) block[by_hand[c].bytes[i].at] = by_hand[c].bytes[i].byte;
        qrn_decoder(by_hand[c].dtype)(block, got, (size_t)info->block_elements);
        for (size_t i = 0; i < 3; i++) {
            const int at = by_hand[c].values[i].at;
            const float want = by_hand[c].values[i].value;
            if (i > 0 && at == 0 && want == 0) continue; /* not given */
            if (isnan(want) ? !isnan(got[at]) : got[at] != want)
                fail_msg("%s, %s: value %d is %a, should be %a", info->name, by_hand[c].why, at,
                         (double)got[at], (double)want);
        }
    }
}

/* All 256 codes of the 8-bit floats, from their definition. */
static void test_all_8_bit_floats(void **state)
{
    (void)state;
    for (int x = 0; x < 256; x++) {
        const uint8_t byte = (uint8_t)x;
        float e4m3, e5m2, e8m0;
        qrn_decoder(QRN_F8_E4M3)(&byte, &e4m3, 1);
        qrn_decoder(QRN_F8_E5M2)(&byte, &e5m2, 1);
        qrn_decoder(QRN_F8_E8M0)(&byte, &e8m0, 1);
        const double sign = x & 0x80 ? -1 : 1;
        const int e4 = x >> 3 & 15, m3 = x & 7, e5 = x >> 2 & 31, m2 = x & 3;
        if (e4 == 15 && m3 == 7) assert_true(isnan(e4m3));
        else assert_true(e4m3 == sign * (e4 ? ldexp(8 + m3, e4 - 10) : ldexp(m3, -9)));
        if (e5 == 31) assert_true(m2 ? isnan(e5m2) : e5m2 == sign * INFINITY);
        else assert_true(e5m2 == sign * (e5 ? ldexp(4 + m2, e5 - 17) : ldexp(m2, -16)));
        if (x == 255) assert_true(isnan(e8m0));
        else assert_true(e8m0 == ldexp(1, x - 127));
    }
}

/* Any bytes, from any address, in memory of exactly that size; nothing is written past the end, and
 * what is no whole block is left alone. */
static void test_any_bytes(void **state)
{
    (void)state;
    for (int t = 0; t < QRN_DTYPE_COUNT; t++) {
        if (!decodes(t)) continue;
        const struct qrn_dtype_info *info = qrn_dtype_info((enum qrn_dtype)t);
        const qrn_decode_fn decode = qrn_decoder((enum qrn_dtype)t);
        const size_t n = (size_t)info->block_elements * 7, n_bytes = (size_t)info->block_bytes * 7;
        uint8_t *exact = malloc(n_bytes), *odd = malloc(n_bytes + 1);
        float *a = malloc((n + 1) * sizeof *a), *b = malloc(n * sizeof *b);
        assert_true(exact && odd && a && b);
        for (uint32_t round = 0; round < 40; round++) {
            if (round < 2) memset(exact, round ? 0xff : 0, n_bytes);
            else fill_random(exact, n_bytes, round);
            memcpy(odd + 1, exact, n_bytes);
            a[n] = 12345;
            decode(exact, a, n);
            decode(odd + 1, b, n);
            assert_true(a[n] == 12345);
            assert_memory_equal(a, b, n * sizeof *b);
            decode(exact, a, 0);
            if (info->block_elements > 1) {
                a[0] = 54321;
                decode(exact, a, (size_t)info->block_elements - 1);
                assert_true(a[0] == 54321);
            }
        }
        free(exact);
        free(odd);
        free(a);
        free(b);
    }
}

/* Several blocks at once are the same as one after another. */
static void test_blocks_are_independent(void **state)
{
    (void)state;
    for (int t = 0; t < QRN_DTYPE_COUNT; t++) {
        if (!decodes(t)) continue;
        const struct qrn_dtype_info *info = qrn_dtype_info((enum qrn_dtype)t);
        const qrn_decode_fn decode = qrn_decoder((enum qrn_dtype)t);
        const size_t elements = (size_t)info->block_elements, size = (size_t)info->block_bytes;
        uint8_t raw[5 * 292];
        float all[5 * 256], one[256];
        fill_random(raw, 5 * size, 99);
        decode(raw, all, 5 * elements);
        for (size_t i = 0; i < 5; i++) {
            decode(raw + i * size, one, elements);
            assert_memory_equal(one, all + i * elements, elements * sizeof *one);
        }
    }
}

static unsigned code_at(const uint8_t *codes, unsigned bits, size_t i)
{
    unsigned code = 0;
    for (unsigned k = 0; k < bits; k++) {
        const size_t bit = i * bits + k;
        code |= (unsigned)(codes[bit / 8] >> bit % 8 & 1) << k;
    }
    return code;
}

static void test_mlx(void **state)
{
    (void)state;
    static const struct {
        enum qrn_dtype dtype;
        unsigned bits;
    } types[] = {{QRN_MLX_Q2, 2}, {QRN_MLX_Q3, 3}, {QRN_MLX_Q4, 4},
                 {QRN_MLX_Q5, 5}, {QRN_MLX_Q6, 6}, {QRN_MLX_Q8, 8}};
    static const int64_t groups[] = {16, 32, 64, 128};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            const size_t n = 3 * 128, n_bytes = n * types[t].bits / 8;
            const size_t n_groups = n / (size_t)groups[g];
            uint8_t *codes = malloc(n_bytes);
            float *scales = malloc(n_groups * sizeof *scales);
            float *biases = malloc(n_groups * sizeof *biases);
            float *got = malloc((n + 1) * sizeof *got);
            assert_true(codes && scales && biases && got);
            fill_random(codes, n_bytes, 7 * (uint32_t)t + (uint32_t)g);
            uint32_t seed = 5;
            for (size_t i = 0; i < n_groups; i++) { /* negative scales too */
                scales[i] = (float)((int)next_random(&seed) - (1 << 23)) * 0x1p-27f;
                biases[i] = (float)((int)next_random(&seed) - (1 << 23)) * 0x1p-23f;
            }
            got[n] = 12345;
            qrn_decode_mlx(types[t].dtype, codes, scales, biases, groups[g], got, n);
            assert_true(got[n] == 12345);
            for (size_t i = 0; i < n; i++) {
                const size_t at = i / (size_t)groups[g];
                const float product =
                    (float)((double)scales[at] * code_at(codes, types[t].bits, i));
                const float want = (float)((double)product + (double)biases[at]);
                if (got[i] != want)
                    fail_msg("%u bits, groups of %d: value %zu is %a, should be %a", types[t].bits,
                             (int)groups[g], i, (double)got[i], (double)want);
            }
            free(codes);
            free(scales);
            free(biases);
            free(got);
        }
}

/* The bytes of the codes 0, 1, 2 ... written out, so that the order is pinned. */
static void test_mlx_order(void **state)
{
    (void)state;
    const float one = 1, zero = 0;
    static const uint8_t three_bits[12] = {0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa,
                                           0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa};
    static const uint8_t four_bits[16] = {0x10, 0x32, 0x54, 0x76, 0x10, 0x32, 0x54, 0x76,
                                          0x10, 0x32, 0x54, 0x76, 0x10, 0x32, 0x54, 0x76};
    float got[32];
    qrn_decode_mlx(QRN_MLX_Q3, three_bits, &one, &zero, 32, got, 32);
    for (int i = 0; i < 32; i++) assert_true(got[i] == (float)(i % 8));
    qrn_decode_mlx(QRN_MLX_Q4, four_bits, &one, &zero, 32, got, 32);
    for (int i = 0; i < 32; i++) assert_true(got[i] == (float)(i % 8));
}

static void test_which_types(void **state)
{
    (void)state;
    static const enum qrn_dtype without[] = {
        QRN_I8,     QRN_I16,    QRN_I32,    QRN_I64,    QRN_U8,     QRN_U16,    QRN_U32,   QRN_U64,
        QRN_BOOL,   QRN_MLX_Q2, QRN_MLX_Q3, QRN_MLX_Q4, QRN_MLX_Q5, QRN_MLX_Q6, QRN_MLX_Q8,
        QRN_ADDRESS};
    int n = 0;
    for (int t = 0; t < QRN_DTYPE_COUNT; t++) n += decodes(t);
    assert_int_equal(n, QRN_DTYPE_COUNT - (int)(sizeof without / sizeof *without));
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_null(qrn_decoder(without[i]));
    assert_null(qrn_decoder(QRN_DTYPE_COUNT));
    assert_null(qrn_decoder((enum qrn_dtype)-1));
    assert_null(qrn_encoder(QRN_DTYPE_COUNT));
    assert_null(qrn_encoder(QRN_IQ1_S));
    assert_null(qrn_encoder(QRN_I32));
}

static void test_row_bytes(void **state)
{
    (void)state;
    size_t n = 77;
    assert_true(qrn_row_bytes(QRN_Q4_K, 512, &n));
    assert_int_equal(n, 288);
    assert_true(qrn_row_bytes(QRN_F64, 3, &n));
    assert_int_equal(n, 24);
    assert_true(qrn_row_bytes(QRN_MLX_Q3, 64, &n));
    assert_int_equal(n, 24);
    assert_true(qrn_row_bytes(QRN_Q8_0, 0, &n));
    assert_int_equal(n, 0);
    n = 77;
    assert_false(qrn_row_bytes(QRN_Q4_K, 128, &n));
    assert_false(qrn_row_bytes(QRN_Q4_0, -32, &n));
    assert_false(qrn_row_bytes(QRN_F64, INT64_MAX, &n));
    assert_false(qrn_row_bytes(QRN_Q8_K, INT64_MAX / 256 * 256, &n));
    assert_false(qrn_row_bytes(QRN_DTYPE_COUNT, 32, &n));
    assert_int_equal(n, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_blocks),
        cmocka_unit_test(test_shared_blocks),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_all_8_bit_floats),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_blocks_are_independent),
        cmocka_unit_test(test_mlx),
        cmocka_unit_test(test_mlx_order),
        cmocka_unit_test(test_which_types),
        cmocka_unit_test(test_row_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
