/* SPDX-License-Identifier: MIT
 * Decoders of blocks with one scale: Q4_0 to Q8_1, one and two bits, ternary. */
#include "formats/block_codecs.h"

#include <string.h>

/* {f16 d; u8 qs[16]}: values j and j + 16 share byte j. */
void qrn_decode_q4_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 18, dst += 32) {
        const float d = qrn_block_half(b);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((b[2 + j] & 15) - 8);
            dst[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
        }
    }
}

/* {f16 d, m; u8 qs[16]} */
void qrn_decode_q4_1(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 20, dst += 32) {
        const float d = qrn_block_half(b), m = qrn_block_half(b + 2);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(b[4 + j] & 15) + m;
            dst[j + 16] = d * (float)(b[4 + j] >> 4) + m;
        }
    }
}

/* {f16 d; u32 qh; u8 qs[16]}: bit j of qh is the fifth bit of value j. */
void qrn_decode_q5_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 22, dst += 32) {
        const float d = qrn_block_half(b);
        const uint32_t high = qrn_block_u32(b + 2);
        for (int j = 0; j < 16; j++) {
            const int lo = (int)((b[6 + j] & 15u) | (high >> j & 1) << 4);
            const int hi = (int)((uint32_t)(b[6 + j] >> 4) | (high >> (j + 16) & 1) << 4);
            dst[j] = d * (float)(lo - 16);
            dst[j + 16] = d * (float)(hi - 16);
        }
    }
}

/* {f16 d, m; u32 qh; u8 qs[16]} */
void qrn_decode_q5_1(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 24, dst += 32) {
        const float d = qrn_block_half(b), m = qrn_block_half(b + 2);
        const uint32_t high = qrn_block_u32(b + 4);
        for (int j = 0; j < 16; j++) {
            const int lo = (int)((b[8 + j] & 15u) | (high >> j & 1) << 4);
            const int hi = (int)((uint32_t)(b[8 + j] >> 4) | (high >> (j + 16) & 1) << 4);
            dst[j] = d * (float)lo + m;
            dst[j + 16] = d * (float)hi + m;
        }
    }
}

/* {f16 d; i8 qs[32]} */
void qrn_decode_q8_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 34, dst += 32) {
        const float d = qrn_block_half(b);
        for (int j = 0; j < 32; j++) dst[j] = d * (float)qrn_block_i8(b + 2 + j);
    }
}

/* {f16 d, s; i8 qs[32]}: s = d * sum of qs takes no part. */
void qrn_decode_q8_act(const void *src, float *restrict dst, size_t n)
{
    struct qrn_q8_act block;
    for (const char *b = src; n >= 128; n -= 128, b += sizeof block, dst += 128) {
        memcpy(&block, b, sizeof block);
        for (int j = 0; j < 128; j++) dst[j] = block.d * (float)block.q[j];
    }
}

void qrn_decode_q8_1(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 36, dst += 32) {
        const float d = qrn_block_half(b);
        for (int j = 0; j < 32; j++) dst[j] = d * (float)qrn_block_i8(b + 4 + j);
    }
}

/* {f16 d; u8 qs[16]}: 128 signs, lowest bit first; 1 is +d. */
void qrn_decode_q1_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 128; n -= 128, b += 18, dst += 128) {
        const uint32_t minus_d = qrn_float_bits(-qrn_block_half(b));
        for (int j = 0; j < 128; j++)
            dst[j] = qrn_bits_float(minus_d ^ (uint32_t)(b[2 + j / 8] >> j % 8 & 1) << 31);
    }
}

/* {f16 d; u8 qs[16]}: 64 values of two bits, lowest first, in -1..2. */
void qrn_decode_q2_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 64; n -= 64, b += 18, dst += 64) {
        const float d = qrn_block_half(b);
        for (int j = 0; j < 64; j++) dst[j] = d * (float)((b[2 + j / 4] >> 2 * (j % 4) & 3) - 1);
    }
}

/* n_bytes bytes of up to five base-3 digits to n_digits rows of n_bytes values.  A byte holds its
 * number as a fraction of 256, rounded up: times 3, the carry is the first digit. */
static float *ternary_digits(const uint8_t *q, int n_bytes, int n_digits, float d,
                             float *restrict dst)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < n_digits; i++)
        for (int j = 0; j < n_bytes; j++) {
            const uint8_t rest = (uint8_t)(q[j] * power[i]);
            *dst++ = (float)((rest * 3 >> 8) - 1) * d;
        }
    return dst;
}

/* {u8 qs[48], qh[4]; f16 d}: digits of 32 bytes, of 16, then four digits each of qh. */
void qrn_decode_tq1_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 54) {
        const float d = qrn_block_half(b + 52);
        dst = ternary_digits(b, 32, 5, d, dst);
        dst = ternary_digits(b + 32, 16, 5, d, dst);
        dst = ternary_digits(b + 48, 4, 4, d, dst);
    }
}

/* {u8 qs[64]; f16 d}: in each half, value 32 m + l is bit pair m of byte l. */
void qrn_decode_tq2_0(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 66) {
        const float d = qrn_block_half(b + 64);
        for (int half = 0; half < 2; half++)
            for (int m = 0; m < 4; m++)
                for (int l = 0; l < 32; l++)
                    *dst++ = (float)((b[32 * half + l] >> 2 * m & 3) - 1) * d;
    }
}
