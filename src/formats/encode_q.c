/* SPDX-License-Identifier: MIT
 * Encoders of blocks with one scale: Q4_0 to Q8_0, one and two bits, ternary.
 *
 * The scale comes from the extreme values alone and is stored rounded to f16; codes are made with
 * the unrounded one. */
#include "formats/block_codecs.h"

#include <float.h>
#include <math.h>

/* The first value of largest magnitude, with its sign. */
static float extreme(const float *x, int n)
{
    float most = 0, value = 0;
    for (int i = 0; i < n; i++)
        if (most < fabsf(x[i])) {
            most = fabsf(x[i]);
            value = x[i];
        }
    return value;
}

static float reciprocal(float d)
{
    return d != 0 ? 1.0f / d : 0.0f;
}

/* Half away from zero. */
static int rounded(float x)
{
    return qrn_block_truncate(roundf(x));
}

/* Least and greatest value. */
static void range(const float *x, int n, float *min, float *max)
{
    *min = FLT_MAX;
    *max = -FLT_MAX;
    for (int i = 0; i < n; i++) {
        if (x[i] < *min) *min = x[i];
        if (x[i] > *max) *max = x[i];
    }
}

void qrn_encode_q4_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 18) {
        const float d = extreme(src, 32) / -8, inverse = reciprocal(d);
        qrn_block_put_half(b, d);
        for (int j = 0; j < 16; j++) {
            const int lo = qrn_block_truncate(src[j] * inverse + 8.5f);
            const int hi = qrn_block_truncate(src[j + 16] * inverse + 8.5f);
            b[2 + j] = (uint8_t)(qrn_block_clamp(lo, 0, 15) | qrn_block_clamp(hi, 0, 15) << 4);
        }
    }
}

void qrn_encode_q4_1(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 20) {
        float min, max;
        range(src, 32, &min, &max);
        const float d = (max - min) / 15, inverse = reciprocal(d);
        qrn_block_put_half(b, d);
        qrn_block_put_half(b + 2, min);
        for (int j = 0; j < 16; j++) {
            const int lo = qrn_block_truncate((src[j] - min) * inverse + 0.5f);
            const int hi = qrn_block_truncate((src[j + 16] - min) * inverse + 0.5f);
            b[4 + j] = (uint8_t)(qrn_block_clamp(lo, 0, 15) | qrn_block_clamp(hi, 0, 15) << 4);
        }
    }
}

/* 32 codes of five bits: low nibbles as in Q4_0 behind the word of fifth bits. */
static void put_5_bits(uint8_t *p, const uint8_t codes[32])
{
    uint32_t high = 0;
    for (int j = 0; j < 32; j++) high |= (uint32_t)(codes[j] >> 4) << j;
    qrn_block_put_u32(p, high);
    for (int j = 0; j < 16; j++) p[4 + j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

void qrn_encode_q5_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 22) {
        const float d = extreme(src, 32) / -16, inverse = reciprocal(d);
        uint8_t codes[32];
        for (int j = 0; j < 32; j++) {
            const int q = qrn_block_truncate(src[j] * inverse + 16.5f);
            codes[j] = (uint8_t)qrn_block_clamp(q, 0, 31);
        }
        qrn_block_put_half(b, d);
        put_5_bits(b + 2, codes);
    }
}

void qrn_encode_q5_1(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 24) {
        float min, max;
        range(src, 32, &min, &max);
        const float d = (max - min) / 31, inverse = reciprocal(d);
        uint8_t codes[32];
        for (int j = 0; j < 32; j++) {
            const int q = qrn_block_truncate((src[j] - min) * inverse + 0.5f);
            codes[j] = (uint8_t)qrn_block_clamp(q, 0, 31);
        }
        qrn_block_put_half(b, d);
        qrn_block_put_half(b + 2, min);
        put_5_bits(b + 4, codes);
    }
}

void qrn_encode_q8_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 34) {
        const float d = fabsf(extreme(src, 32)) / 127, inverse = reciprocal(d);
        qrn_block_put_half(b, d);
        for (int j = 0; j < 32; j++) b[2 + j] = (uint8_t)rounded(src[j] * inverse);
    }
}

/* The mean magnitude and the signs. */
void qrn_encode_q1_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 128; n -= 128, src += 128, b += 18) {
        float sum = 0;
        memset(b + 2, 0, 16);
        for (int j = 0; j < 128; j++) {
            sum += fabsf(src[j]);
            if (src[j] >= 0) b[2 + j / 8] |= (uint8_t)(1 << j % 8);
        }
        qrn_block_put_half(b, sum / 128);
    }
}

void qrn_encode_q2_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 64; n -= 64, src += 64, b += 18) {
        const float d = fabsf(extreme(src, 64)), inverse = reciprocal(d);
        qrn_block_put_half(b, d);
        memset(b + 2, 0, 16);
        for (int j = 0; j < 64; j++) {
            const int q = qrn_block_clamp(rounded(src[j] * inverse), -1, 2) + 1;
            b[2 + j / 4] |= (uint8_t)(q << 2 * (j % 4));
        }
    }
}

static int ternary(float x)
{
    return qrn_block_clamp(rounded(x), -1, 1) + 1;
}

/* n_bytes bytes, each of n_digits values n_bytes apart, the first value the highest digit. */
static const float *put_ternary_digits(const float *x, float inverse, int n_bytes, int n_digits,
                                       uint8_t *q)
{
    for (int j = 0; j < n_bytes; j++) {
        int number = 0;
        for (int i = 0; i < 5; i++)
            number = 3 * number + (i < n_digits ? ternary(x[i * n_bytes + j] * inverse) : 0);
        q[j] = (uint8_t)((number * 256 + 242) / 243); /* as a fraction of 256, rounded up */
    }
    return x + n_digits * n_bytes;
}

void qrn_encode_tq1_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, b += 54) {
        const float d = fabsf(extreme(src, 256)), inverse = reciprocal(d);
        src = put_ternary_digits(src, inverse, 32, 5, b);
        src = put_ternary_digits(src, inverse, 16, 5, b + 32);
        src = put_ternary_digits(src, inverse, 4, 4, b + 48);
        qrn_block_put_half(b + 52, d);
    }
}

void qrn_encode_tq2_0(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 66) {
        const float d = fabsf(extreme(src, 256)), inverse = reciprocal(d);
        memset(b, 0, 64);
        for (int j = 0; j < 256; j++)
            b[32 * (j / 128) + j % 32] |=
                (uint8_t)(ternary(src[j] * inverse) << 2 * (j % 128 / 32));
        qrn_block_put_half(b + 64, d);
    }
}
