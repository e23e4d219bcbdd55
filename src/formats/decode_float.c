/* SPDX-License-Identifier: MIT
 * Decoders of plain floating-point types. */
#include "formats/block_codecs.h"

void qrn_decode_f32(const void *src, float *restrict dst, size_t n)
{
    if (n) memcpy(dst, src, n * sizeof *dst);
}

void qrn_decode_f16(const void *src, float *restrict dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = qrn_block_half(p + 2 * i);
}

void qrn_decode_bf16(const void *src, float *restrict dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = qrn_bf16_to_float(qrn_block_u16(p + 2 * i));
}

/* Rounded to nearest even, infinity beyond the range. */
void qrn_decode_f64(const void *src, float *restrict dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        double d;
        memcpy(&d, p + 8 * i, sizeof d);
        dst[i] = (float)d;
    }
}

/* 1-4-3 bits, bias 7, no infinities; all ones below the sign is NaN. */
static float f8_e4m3(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80) << 24, exponent = (x >> 3) & 15, mantissa = x & 7;
    if ((x & 0x7f) == 0x7f) return qrn_bits_float(sign | 0x7fc00000u);
    if (exponent) return qrn_bits_float(sign | (exponent + 120) << 23 | mantissa << 20);
    const float magnitude = (float)mantissa * 0x1p-9f;
    return sign ? -magnitude : magnitude;
}

void qrn_decode_f8_e4m3(const void *src, float *restrict dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = f8_e4m3(p[i]);
}

/* 1-5-2 bits: the upper half of an f16. */
void qrn_decode_f8_e5m2(const void *src, float *restrict dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) dst[i] = qrn_f16_to_float((uint16_t)(p[i] << 8));
}

/* 2^(x - 127); 0 is a subnormal float, 255 is NaN. */
void qrn_decode_f8_e8m0(const void *src, float *restrict dst, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = qrn_bits_float(p[i] == 0     ? 0x00400000u
                                : p[i] == 255 ? 0x7fc00000u
                                              : (uint32_t)p[i] << 23);
}
