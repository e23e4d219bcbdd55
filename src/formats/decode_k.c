/* SPDX-License-Identifier: MIT
 * Decoders of super-blocks of 256 values whose sub-blocks have small integer scales: Q2_K to Q8_K.
 * A sub-block's scale is rounded to float32 before it meets the code. */
#include "formats/block_codecs.h"

/* {u8 scales[16], qs[64]; f16 d, dmin}.  In each half of 128 values, bit pair j of bytes 16 p to
 * 16 p + 15 makes sub-block 2 j + p; its scale is a low nibble, its minimum the high one. */
void qrn_decode_q2_k(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 84) {
        const float d = qrn_block_half(b + 80), dmin = qrn_block_half(b + 82);
        for (int s = 0; s < 16; s++) {
            const uint8_t *q = b + 16 + 32 * (s / 8) + 16 * (s % 2);
            const float scale = d * (float)(b[s] & 15), min = dmin * (float)(b[s] >> 4);
            const int shift = 2 * (s % 8 / 2);
            for (int l = 0; l < 16; l++) *dst++ = scale * (float)(q[l] >> shift & 3) - min;
        }
    }
}

/* {u8 hmask[32], qs[64], scales[12]; f16 d}.  Codes as in Q2_K, in -4..3: a clear bit in hmask
 * subtracts 4.  Sixteen 6-bit scales, biased by 32: low nibbles in 8 bytes, then bit pairs in 4. */
void qrn_decode_q3_k(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 110) {
        const uint8_t *packed = b + 96;
        const float d = qrn_block_half(b + 108);
        for (int s = 0; s < 16; s++) {
            const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
            const int high = packed[8 + s % 4] >> 2 * (s / 4) & 3;
            const float scale = d * (float)((low | high << 4) - 32);
            const uint8_t *q = b + 32 + 32 * (s / 8) + 16 * (s % 2), *mask = b + 16 * (s % 2);
            const int shift = 2 * (s % 8 / 2), bit = s / 2;
            for (int l = 0; l < 16; l++)
                *dst++ = scale * (float)((q[l] >> shift & 3) - (mask[l] >> bit & 1 ? 0 : 4));
        }
    }
}

/* {f16 d, dmin; u8 scales[12], qs[128]}: low nibbles of 32 bytes are sub-block 2 c, high ones
 * 2 c + 1. */
void qrn_decode_q4_k(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 144) {
        const float d = qrn_block_half(b), dmin = qrn_block_half(b + 2);
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + 16 + 32 * (s / 2);
            const float scale = d * (float)qrn_block_k_scale(b + 4, s);
            const float min = dmin * (float)qrn_block_k_min(b + 4, s);
            const int shift = 4 * (s % 2);
            for (int l = 0; l < 32; l++) *dst++ = scale * (float)(q[l] >> shift & 15) - min;
        }
    }
}

/* {f16 d, dmin; u8 scales[12], qh[32], qs[128]}: as Q4_K, bit s of qh[l] is the fifth bit. */
void qrn_decode_q5_k(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 176) {
        const float d = qrn_block_half(b), dmin = qrn_block_half(b + 2);
        for (int s = 0; s < 8; s++) {
            const uint8_t *q = b + 48 + 32 * (s / 2), *high = b + 16;
            const float scale = d * (float)qrn_block_k_scale(b + 4, s);
            const float min = dmin * (float)qrn_block_k_min(b + 4, s);
            const int shift = 4 * (s % 2);
            for (int l = 0; l < 32; l++)
                *dst++ = scale * (float)((q[l] >> shift & 15) | (high[l] >> s & 1) << 4) - min;
        }
    }
}

/* {u8 ql[128], qh[64]; i8 scales[16]; f16 d}.  Each half of 128 values is four runs of 32: run r
 * takes nibble r / 2 of 32 bytes of ql (the odd runs the second 32) and bit pair r of qh. */
void qrn_decode_q6_k(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 210) {
        const float d = qrn_block_half(b + 208);
        for (int s = 0; s < 16; s++) {
            const int half = s / 8, run = s % 8 / 2, part = s % 2;
            const uint8_t *low = b + 64 * half + 32 * (run % 2) + 16 * part;
            const uint8_t *high = b + 128 + 32 * half + 16 * part;
            const float scale = d * (float)qrn_block_i8(b + 192 + s);
            for (int l = 0; l < 16; l++) {
                const int q = (low[l] >> 4 * (run / 2) & 15) | (high[l] >> 2 * run & 3) << 4;
                *dst++ = scale * (float)(q - 32);
            }
        }
    }
}

/* {f32 d; i8 qs[256]; i16 sums[16]}: the sums take no part. */
void qrn_decode_q8_k(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 292, dst += 256) {
        const float d = qrn_bits_float(qrn_block_u32(b));
        for (int j = 0; j < 256; j++) dst[j] = d * (float)qrn_block_i8(b + 4 + j);
    }
}
