/* SPDX-License-Identifier: MIT
 * Any value of any block type, by itself and exactly as formats/decode_*.c has it: for rows that
 * are copied or looked up.  Layouts are told there. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_BLOCKS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_BLOCKS_CUH

#include <quern/dtype.h>
#include "backends/cuda/device/numbers.cuh"

/* The host's tables, once more for the device: there they are global, here each file has its
 * own. */
#define const static __device__ const
#include "formats/block_tables.inc"
#undef const

static __device__ __forceinline__ uint32_t block_u16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static __device__ __forceinline__ uint32_t block_u32(const uint8_t *p)
{
    return block_u16(p) | block_u16(p + 2) << 16;
}

static __device__ __forceinline__ float block_half(const uint8_t *p)
{
    return qrn_float_of_f16((uint16_t)block_u16(p));
}

static __device__ __forceinline__ float block_i8(const uint8_t *p)
{
    return (float)(int8_t)*p;
}

/* Code j of low nibbles first, then high ones, n of each. */
static __device__ __forceinline__ int nibble(const uint8_t *q, int j, int n)
{
    return j < n ? q[j] & 15 : q[j - n] >> 4;
}

/* --- one scale --- */

static __device__ __forceinline__ float q5_value(const uint8_t *q, const uint8_t *high, int j)
{
    return (float)(nibble(q, j, 16) | (int)(block_u32(high) >> j & 1u) << 4);
}

static __device__ __forceinline__ float tq1_value(const uint8_t *b, int j)
{
    const uint32_t powers = 0x1b090301u; /* 1, 3, 9, 27; the fifth is 81 */
    const int first = j < 160 ? 0 : j < 240 ? 160 : 240, n = j < 160 ? 32 : j < 240 ? 16 : 4;
    const int digit = (j - first) / n, byte = (j - first) % n + (j < 160 ? 0 : j < 240 ? 32 : 48);
    const uint32_t power = digit == 4 ? 81u : powers >> 8 * digit & 255u;
    const uint32_t rest = b[byte] * power & 255u;
    return (float)((int)(rest * 3 >> 8) - 1) * block_half(b + 52);
}

/* --- super-blocks --- */

static __device__ __forceinline__ float q2_k_value(const uint8_t *b, int j)
{
    const int s = j / 16;
    const float scale = block_half(b + 80) * (float)(b[s] & 15),
                min = block_half(b + 82) * (float)(b[s] >> 4);
    const uint8_t q = b[16 + 32 * (s / 8) + 16 * (s % 2) + j % 16];
    return scale * (float)(q >> 2 * (s % 8 / 2) & 3) - min;
}

static __device__ __forceinline__ float q3_k_value(const uint8_t *b, int j)
{
    const int s = j / 16, l = j % 16;
    const uint8_t *packed = b + 96;
    const int low = nibble(packed, s, 8), high = packed[8 + s % 4] >> 2 * (s / 4) & 3;
    const float scale = block_half(b + 108) * (float)((low | high << 4) - 32);
    const int q = b[32 + 32 * (s / 8) + 16 * (s % 2) + l] >> 2 * (s % 8 / 2) & 3;
    return scale * (float)(q - (b[16 * (s % 2) + l] >> s / 2 & 1 ? 0 : 4));
}

/* 6-bit scale and minimum of sub-block s of Q4_K and Q5_K. */
static __device__ __forceinline__ float k_scale(const uint8_t *q, int s)
{
    return (float)(s < 4 ? q[s] & 63 : (q[s + 4] & 15) | q[s - 4] >> 6 << 4);
}

static __device__ __forceinline__ float k_min(const uint8_t *q, int s)
{
    return (float)(s < 4 ? q[s + 4] & 63 : q[s + 4] >> 4 | q[s] >> 6 << 4);
}

static __device__ __forceinline__ float q45_k_value(const uint8_t *b, const uint8_t *qs, int fifth,
                                                    int j)
{
    const int s = j / 32, l = j % 32;
    const float scale = block_half(b) * k_scale(b + 4, s),
                min = block_half(b + 2) * k_min(b + 4, s);
    const int q = (qs[32 * (s / 2) + l] >> 4 * (s % 2) & 15) | fifth << 4;
    return scale * (float)q - min;
}

static __device__ __forceinline__ float q6_k_value(const uint8_t *b, int j)
{
    const int s = j / 16, l = j % 16, half = s / 8, run = s % 8 / 2, part = s % 2;
    const int low = b[64 * half + 32 * (run % 2) + 16 * part + l] >> 4 * (run / 2) & 15;
    const int high = b[128 + 32 * half + 16 * part + l] >> 2 * run & 3;
    return block_half(b + 208) * block_i8(b + 192 + s) * (float)((low | high << 4) - 32);
}

/* --- grids: value j is value j % 8 of run j / 8 --- */

static __device__ __forceinline__ float with_sign(float x, uint32_t signs, int j)
{
    return __uint_as_float(__float_as_uint(x) ^ (signs >> j & 1u) << 31);
}

static __device__ __forceinline__ float iq2_value(uint32_t point, float d, uint32_t code,
                                                  uint32_t signs, int j)
{
    const float scale = d * (0.5f + (float)code) * 0.25f;
    return with_sign(scale * (float)qrn_iq2_levels[point >> 2 * j & 3], signs, j);
}

static __device__ __forceinline__ float iq2_xxs_value(const uint8_t *b, int j)
{
    const uint8_t *q = b + 2 + 8 * (j / 32);
    const uint32_t packed = block_u32(q + 4);
    const int r = j / 8 % 4;
    return iq2_value(qrn_iq2_xxs_grid[q[r]], block_half(b), packed >> 28,
                     qrn_iq_signs[packed >> 7 * r & 127], j % 8);
}

static __device__ __forceinline__ float iq2_xs_value(const uint8_t *b, int j)
{
    const int r = j / 8;
    const uint32_t q = block_u16(b + 2 + 2 * r);
    return iq2_value(qrn_iq2_xs_grid[q & 511], block_half(b),
                     b[66 + r / 4] >> 4 * (r / 2 % 2) & 15u, qrn_iq_signs[q >> 9], j % 8);
}

static __device__ __forceinline__ float iq2_s_value(const uint8_t *b, int j)
{
    const int r = j / 8;
    const uint32_t high = b[66 + r / 4] >> 2 * (r % 4) & 3u;
    return iq2_value(qrn_iq2_s_grid[b[2 + r] | high << 8], block_half(b),
                     b[74 + r / 4] >> 4 * (r / 2 % 2) & 15u, b[34 + r], j % 8);
}

static __device__ __forceinline__ float iq3_xxs_value(const uint8_t *b, int j)
{
    const int r = j / 8, i = j % 8;
    const uint32_t packed = block_u32(b + 66 + 4 * (r / 4));
    const float scale = block_half(b) * (0.5f + (float)(packed >> 28)) * 0.5f;
    const uint32_t point = qrn_iq3_xxs_grid[b[2 + 2 * r + i / 4]];
    return with_sign(scale * (float)qrn_iq3_xxs_levels[point >> 4 * (i % 4) & 7],
                     qrn_iq_signs[packed >> 7 * (r % 4) & 127], i);
}

static __device__ __forceinline__ float iq3_s_value(const uint8_t *b, int j)
{
    const int r = j / 8, i = j % 8;
    const uint32_t high = (uint32_t)b[66 + r / 4] >> (2 * (r % 4) + i / 4) & 1u;
    const int code = b[106 + r / 8] >> 4 * (r / 4 % 2) & 15;
    const uint32_t point = qrn_iq3_s_grid[b[2 + 2 * r + i / 4] | high << 8];
    const float scale = block_half(b) * (float)(1 + 2 * code);
    return with_sign(scale * (float)qrn_iq3_s_levels[point >> 4 * (i % 4) & 7], b[74 + r], i);
}

static __device__ __forceinline__ float iq1_value(uint32_t point, float scale, bool down, int j)
{
    return scale * ((float)qrn_iq1_levels[point >> 2 * j & 3] + (down ? -0.125f : 0.125f));
}

static __device__ __forceinline__ float iq1_s_value(const uint8_t *b, int j)
{
    const int r = j / 8;
    const uint32_t packed = block_u16(b + 34 + 2 * (r / 4));
    const uint32_t point = b[2 + r] | (packed >> 3 * (r % 4) & 7) << 8;
    return iq1_value(qrn_iq1_grid[point], block_half(b) * (float)(2 * (packed >> 12 & 7) + 1),
                     packed & 0x8000u, j % 8);
}

static __device__ __forceinline__ float iq1_m_value(const uint8_t *b, int j)
{
    const int r = j / 8;
    uint32_t d_bits = 0;
    for (int i = 0; i < 4; i++) d_bits |= (block_u16(b + 48 + 2 * i) >> 12) << 4 * i;
    const uint32_t packed = block_u16(b + 48 + 2 * (r / 8)),
                   low = b[32 + r / 2] >> 4 * (r % 2) & 15u;
    const float scale =
        qrn_float_of_f16((uint16_t)d_bits) * (float)(2 * (packed >> 3 * (r % 8 / 2) & 7) + 1);
    return iq1_value(qrn_iq1_grid[b[r] | (low & 7) << 8], scale, low & 8, j % 8);
}

/* --- levels --- */

static __device__ __forceinline__ float iq4_xs_value(const uint8_t *b, int j)
{
    const int s = j / 32;
    const int low = b[4 + s / 2] >> 4 * (s % 2) & 15, high = (int)(block_u16(b + 2) >> 2 * s & 3);
    return block_half(b) * (float)((low | high << 4) - 32) *
           (float)qrn_iq4_levels[nibble(b + 8 + 16 * s, j % 32, 16)];
}

static __device__ __forceinline__ float mxfp4_value(const uint8_t *b, int j)
{
    const float d = __uint_as_float(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
    return d * (float)qrn_fp4_levels[nibble(b + 1, j, 16)];
}

static __device__ __forceinline__ float nvfp4_value(const uint8_t *b, int j)
{
    const uint32_t x = b[j / 16], exponent = x >> 3 & 15, mantissa = x & 7;
    const float d = x == 0x7f    ? 0.0f
                    : exponent == 0 ? (float)mantissa * 0x1p-10f
                                  : __uint_as_float((exponent + 119) << 23 | mantissa << 20);
    return d * (float)qrn_fp4_levels[nibble(b + 4 + 8 * (j / 16), j % 16, 8)];
}

/* Value j of the block at b. */
static __device__ __forceinline__ float qrn_block_value(int dtype, const uint8_t *b, int j)
{
    switch (dtype) {
    case QRN_Q4_0: return block_half(b) * (float)(nibble(b + 2, j, 16) - 8);
    case QRN_Q4_1: return block_half(b) * (float)nibble(b + 4, j, 16) + block_half(b + 2);
    case QRN_Q5_0: return block_half(b) * (q5_value(b + 6, b + 2, j) - 16.0f);
    case QRN_Q5_1: return block_half(b) * q5_value(b + 8, b + 4, j) + block_half(b + 2);
    case QRN_Q8_0: return block_half(b) * block_i8(b + 2 + j);
    case QRN_Q8_1: return block_half(b) * block_i8(b + 4 + j);
    case QRN_Q8_K: return __uint_as_float(block_u32(b)) * block_i8(b + 4 + j);
    case QRN_Q8_ACT: return __uint_as_float(block_u32(b)) * block_i8(b + 20 + j);
    case QRN_Q1_0: return with_sign(-block_half(b), b[2 + j / 8], j % 8);
    case QRN_Q2_0: return block_half(b) * (float)((b[2 + j / 4] >> 2 * (j % 4) & 3) - 1);
    case QRN_TQ1_0: return tq1_value(b, j);
    case QRN_TQ2_0:
        return (float)((b[32 * (j / 128) + j % 32] >> 2 * (j % 128 / 32) & 3) - 1) *
               block_half(b + 64);
    case QRN_Q2_K: return q2_k_value(b, j);
    case QRN_Q3_K: return q3_k_value(b, j);
    case QRN_Q4_K: return q45_k_value(b, b + 16, 0, j);
    case QRN_Q5_K: return q45_k_value(b, b + 48, b[16 + j % 32] >> j / 32 & 1, j);
    case QRN_Q6_K: return q6_k_value(b, j);
    case QRN_IQ2_XXS: return iq2_xxs_value(b, j);
    case QRN_IQ2_XS: return iq2_xs_value(b, j);
    case QRN_IQ2_S: return iq2_s_value(b, j);
    case QRN_IQ3_XXS: return iq3_xxs_value(b, j);
    case QRN_IQ3_S: return iq3_s_value(b, j);
    case QRN_IQ1_S: return iq1_s_value(b, j);
    case QRN_IQ1_M: return iq1_m_value(b, j);
    case QRN_IQ4_NL: return block_half(b) * (float)qrn_iq4_levels[nibble(b + 2, j, 16)];
    case QRN_IQ4_XS: return iq4_xs_value(b, j);
    case QRN_MXFP4: return mxfp4_value(b, j);
    default: return nvfp4_value(b, j);
    }
}

/* --- types without blocks that rows.cuh does not load --- */

/* 1-4-3 bits, bias 7, no infinities; all ones below the sign is NaN. */
static __device__ __forceinline__ float float_of_e4m3(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80) << 24, exponent = (x >> 3) & 15, mantissa = x & 7;
    if ((x & 0x7f) == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
    if (exponent) return __uint_as_float(sign | (exponent + 120) << 23 | mantissa << 20);
    const float magnitude = (float)mantissa * 0x1p-9f;
    return sign ? -magnitude : magnitude;
}

/* 2^(x - 127): 0 is a subnormal, which is kept. */
static __device__ __forceinline__ float float_of_e8m0(uint8_t x)
{
    if (x == 255) return __uint_as_float(0x7fc00000u);
    return __uint_as_float(x ? (uint32_t)x << 23 : 0x400000u);
}

/* Value i of a row of any type that has values of its own. */
static __device__ __forceinline__ float qrn_any_value(int dtype, int block_shift, int block_bytes,
                                                      const char *row, int64_t i)
{
    const uint8_t *bytes = (const uint8_t *)row;
    switch (dtype) {
    case QRN_F64: return (float)((const double *)row)[i];
    case QRN_F8_E4M3: return float_of_e4m3(bytes[i]);
    case QRN_F8_E5M2: return qrn_float_of_f16((uint16_t)(bytes[i] << 8));
    case QRN_F8_E8M0: return float_of_e8m0(bytes[i]);
    default:
        return qrn_block_value(dtype, bytes + (i >> block_shift) * block_bytes,
                               (int)(i & ((1 << block_shift) - 1)));
    }
}

#endif
