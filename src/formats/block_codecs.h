/* SPDX-License-Identifier: MIT
 * The decoders and encoders by name, and how their files read and write the fields of a block. */
#ifndef QUERN_FORMATS_BLOCK_CODECS_H
#define QUERN_FORMATS_BLOCK_CODECS_H

#include "base/half.h"
#include "formats/blocks.h"

/* X(NAME, name): qrn_decode_name() decodes QRN_NAME. */
#define QRN_DECODE_LIST(X) \
    X(F32, f32)            \
    X(F16, f16)            \
    X(BF16, bf16)          \
    X(F64, f64)            \
    X(F8_E4M3, f8_e4m3)    \
    X(F8_E5M2, f8_e5m2)    \
    X(F8_E8M0, f8_e8m0)    \
    X(Q4_0, q4_0)          \
    X(Q4_1, q4_1)          \
    X(Q5_0, q5_0)          \
    X(Q5_1, q5_1)          \
    X(Q8_0, q8_0)          \
    X(Q8_1, q8_1)          \
    X(Q2_K, q2_k)          \
    X(Q3_K, q3_k)          \
    X(Q4_K, q4_k)          \
    X(Q5_K, q5_k)          \
    X(Q6_K, q6_k)          \
    X(Q8_K, q8_k)          \
    X(TQ1_0, tq1_0)        \
    X(TQ2_0, tq2_0)        \
    X(Q1_0, q1_0)          \
    X(Q2_0, q2_0)          \
    X(IQ2_XXS, iq2_xxs)    \
    X(IQ2_XS, iq2_xs)      \
    X(IQ2_S, iq2_s)        \
    X(IQ3_XXS, iq3_xxs)    \
    X(IQ3_S, iq3_s)        \
    X(IQ1_S, iq1_s)        \
    X(IQ1_M, iq1_m)        \
    X(IQ4_NL, iq4_nl)      \
    X(IQ4_XS, iq4_xs)      \
    X(MXFP4, mxfp4)        \
    X(NVFP4, nvfp4)        \
    X(Q8_ACT, q8_act)

#define X(NAME, name) void qrn_decode_##name(const void *src, float *restrict dst, size_t n);
QRN_DECODE_LIST(X)
#undef X

/* X(NAME, name): qrn_encode_name() encodes QRN_NAME. */
#define QRN_ENCODE_LIST(X) \
    X(F32, f32)            \
    X(F16, f16)            \
    X(BF16, bf16)          \
    X(Q4_0, q4_0)          \
    X(Q4_1, q4_1)          \
    X(Q5_0, q5_0)          \
    X(Q5_1, q5_1)          \
    X(Q8_0, q8_0)          \
    X(Q2_K, q2_k)          \
    X(Q3_K, q3_k)          \
    X(Q4_K, q4_k)          \
    X(Q5_K, q5_k)          \
    X(Q6_K, q6_k)          \
    X(Q8_K, q8_k)          \
    X(TQ1_0, tq1_0)        \
    X(TQ2_0, tq2_0)        \
    X(Q1_0, q1_0)          \
    X(Q2_0, q2_0)          \
    X(IQ4_NL, iq4_nl)      \
    X(IQ4_XS, iq4_xs)      \
    X(MXFP4, mxfp4)        \
    X(NVFP4, nvfp4)

#define X(NAME, name) void qrn_encode_##name(const float *restrict src, void *dst, size_t n);
QRN_ENCODE_LIST(X)
#undef X

/* Fields are little-endian and unaligned. */
static inline uint16_t qrn_block_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t qrn_block_u32(const uint8_t *p)
{
    return (uint32_t)qrn_block_u16(p) | (uint32_t)qrn_block_u16(p + 2) << 16;
}

static inline float qrn_block_half(const uint8_t *p)
{
    return qrn_f16_to_float(qrn_block_u16(p));
}

static inline int qrn_block_i8(const uint8_t *p)
{
    return *p < 128 ? *p : *p - 256;
}

/* The scale of an MXFP4 block, 2^(e - 128): half of E8M0's 2^(e - 127), because the FP4 table holds
 * doubled values.  Subnormal for e = 0 and 1. */
static inline float qrn_block_e8m0_half(uint8_t e)
{
    return qrn_bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* The unsigned E4M3 scale of an NVFP4 sub-block, halved for the same reason; 0x7f and the sign bit
 * mean nothing: 0x7f is 0, 0xff is 240. */
static inline float qrn_block_ue4m3_half(uint8_t x)
{
    const unsigned exponent = (x >> 3) & 15, mantissa = x & 7;
    if (x == 0x7f) return 0;
    if (!exponent) return (float)mantissa * 0x1p-10f;
    return qrn_bits_float((exponent + 119) << 23 | mantissa << 20);
}

/* 6-bit scale and minimum of sub-block j (0..7) of Q4_K and Q5_K, from their 12 packed bytes. */
static inline unsigned qrn_block_k_scale(const uint8_t *q, int j)
{
    return j < 4 ? q[j] & 63u : (q[j + 4] & 15u) | (unsigned)(q[j - 4] >> 6) << 4;
}

static inline unsigned qrn_block_k_min(const uint8_t *q, int j)
{
    return j < 4 ? q[j + 4] & 63u : (unsigned)(q[j + 4] >> 4) | (unsigned)(q[j] >> 6) << 4;
}

static inline void qrn_block_put_u16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static inline void qrn_block_put_u32(uint8_t *p, uint32_t x)
{
    qrn_block_put_u16(p, (uint16_t)x);
    qrn_block_put_u16(p + 2, (uint16_t)(x >> 16));
}

static inline void qrn_block_put_half(uint8_t *p, float x)
{
    qrn_block_put_u16(p, qrn_float_to_f16(x));
}

static inline int qrn_block_clamp(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

/* Round to nearest even by the rounding of one addition, for |x| < 2^22.  Other values, NaN too,
 * give some integer in -2^22..2^22 - 1. */
static inline int qrn_block_nearest(float x)
{
    return (int)(qrn_float_bits(x + 0x1.8p23f) & 0x7fffffu) - 0x400000;
}

/* Toward zero; 0 where an int cannot hold it. */
static inline int qrn_block_truncate(float x)
{
    return x > -0x1p31f && x < 0x1p31f ? (int)x : 0;
}

#endif
