/* SPDX-License-Identifier: MIT
 * Scalar conversions between float and its 16-bit forms, bit by bit, round to nearest even. */
#ifndef QUERN_BASE_HALF_H
#define QUERN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t qrn_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float qrn_bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float qrn_bf16_to_float(uint16_t h)
{
    return qrn_bits_float((uint32_t)h << 16);
}

static inline uint16_t qrn_float_to_bf16(float f)
{
    const uint32_t bits = qrn_float_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Subnormal halves are scaled integers, so that flush-to-zero modes do not change the result. */
static inline float qrn_f16_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
                   mantissa = h & 0x3ffu;
    if (exponent == 31) return qrn_bits_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return qrn_bits_float(sign | (exponent + 112u) << 23 | mantissa << 13);
    const float magnitude = (float)mantissa * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static inline uint16_t qrn_float_to_f16(float f)
{
    const uint32_t bits = qrn_float_bits(f), sign = (bits >> 16) & 0x8000u, a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more */
    if (a >= 0x38800000u) {                                  /* normal: 2^-14 and up */
        const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
    }
    if (a < 0x33000000u) return (uint16_t)sign; /* below half of the least subnormal */
    const uint32_t shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u; /* 14..24 */
    const uint32_t half = 1u << (shift - 1), rest = m & ((1u << shift) - 1);
    uint32_t q = m >> shift;
    if (rest > half || (rest == half && (q & 1u))) q++;
    return (uint16_t)(sign | q);
}

#endif
