/* SPDX-License-Identifier: MIT
 * Single weights of any type out of rows, exactly as formats/decode_*.c decode them. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_WEIGHTS_FLOAT_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_WEIGHTS_FLOAT_CUH

#include "backends/cuda/device/weights.cuh"

/* The tables of the formats, for the device. */
#define const static __device__ const
#include "formats/block_tables.inc"
#undef const

/* 1-4-3 bits, bias 7, no infinities; all ones below the sign is NaN. */
static __device__ __forceinline__ float qrn_float_of_e4m3(uint32_t x)
{
    const uint32_t sign = (x & 0x80u) << 24, exponent = x >> 3 & 15u, mantissa = x & 7u;
    if ((x & 0x7fu) == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
    if (exponent) return __uint_as_float(sign | (exponent + 120) << 23 | mantissa << 20);
    const float magnitude = (float)mantissa * 0x1p-9f;
    return sign ? -magnitude : magnitude;
}

/* The unsigned scale of NVFP4, halved; 0x7f is 0. */
static __device__ __forceinline__ float qrn_ue4m3_half(uint32_t x)
{
    const uint32_t exponent = x >> 3 & 15u, mantissa = x & 7u;
    if (x == 0x7fu) return 0.0f;
    if (!exponent) return (float)mantissa * 0x1p-10f;
    return __uint_as_float((exponent + 119) << 23 | mantissa << 20);
}

static __device__ __forceinline__ float qrn_with_sign(float x, uint32_t signs, int j)
{
    return __uint_as_float(__float_as_uint(x) ^ (signs >> j & 1u) << 31);
}

static __device__ __forceinline__ float qrn_iq2_value(uint32_t point, float d, uint32_t code,
                                                      uint32_t signs, int j)
{
    const float scale = d * (0.5f + (float)code) * 0.25f;
    return qrn_with_sign(scale * (float)qrn_iq2_levels[point >> 2 * j & 3u], signs, j);
}

static __device__ __forceinline__ float qrn_iq1_value(uint32_t point, float scale, float shift, int j)
{
    return scale * ((float)qrn_iq1_levels[point >> 2 * j & 3u] + shift);
}

/* Element j of run r (8 elements) of a block of 256. */
static __device__ __forceinline__ float qrn_iq2_at(int dtype, const uint8_t *b, int r, int j)
{
    const float d = qrn_half_at(b);
    if (dtype == QRN_IQ2_XXS) {
        const uint8_t *q = b + 2 + 8 * (r / 4);
        const uint32_t packed = qrn_u32_at(q + 4);
        return qrn_iq2_value(qrn_iq2_xxs_grid[q[r % 4]], d, packed >> 28,
                             qrn_iq_signs[packed >> 7 * (r % 4) & 127u], j);
    }
    const uint8_t *scales = b + (dtype == QRN_IQ2_XS ? 66 : 74);
    const uint32_t code = (uint32_t)scales[r / 4] >> 4 * (r / 2 % 2) & 15u;
    if (dtype == QRN_IQ2_XS) {
        const uint32_t q = qrn_u16_at(b + 2 + 2 * r);
        return qrn_iq2_value(qrn_iq2_xs_grid[q & 511u], d, code, qrn_iq_signs[q >> 9], j);
    }
    const uint32_t high = (uint32_t)b[66 + r / 4] >> 2 * (r % 4) & 3u;
    return qrn_iq2_value(qrn_iq2_s_grid[b[2 + r] | high << 8], d, code, b[34 + r], j);
}

static __device__ __forceinline__ float qrn_iq3_at(int dtype, const uint8_t *b, int r, int j)
{
    const float d = qrn_half_at(b);
    const uint8_t *q = b + 2 + 2 * r;
    if (dtype == QRN_IQ3_XXS) {
        const uint32_t packed = qrn_u32_at(b + 66 + 4 * (r / 4));
        const uint32_t point = qrn_iq3_xxs_grid[q[j / 4]] >> 4 * (j % 4) & 7u;
        return qrn_with_sign(d * (0.5f + (float)(packed >> 28)) * 0.5f * (float)qrn_iq3_xxs_levels[point],
                             qrn_iq_signs[packed >> 7 * (r % 4) & 127u], j);
    }
    const uint32_t high = (uint32_t)b[66 + r / 4] >> (2 * (r % 4) + j / 4) & 1u;
    const uint32_t point = qrn_iq3_s_grid[q[j / 4] | high << 8] >> 4 * (j % 4) & 7u;
    const uint32_t code = (uint32_t)b[106 + r / 8] >> 4 * (r / 4 % 2) & 15u;
    return qrn_with_sign(d * (float)(1 + 2 * code) * (float)qrn_iq3_s_levels[point], b[74 + r], j);
}

static __device__ __forceinline__ float qrn_iq1_at(int dtype, const uint8_t *b, int r, int j)
{
    if (dtype == QRN_IQ1_S) {
        const uint32_t packed = qrn_u16_at(b + 34 + 2 * (r / 4));
        const uint32_t point = b[2 + r] | (packed >> 3 * (r % 4) & 7u) << 8;
        return qrn_iq1_value(qrn_iq1_grid[point], qrn_half_at(b) * (float)(2 * (packed >> 12 & 7u) + 1),
                             packed & 0x8000u ? -0.125f : 0.125f, j);
    }
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) d |= (qrn_u16_at(b + 48 + 2 * i) >> 12) << 4 * i;
    const uint32_t packed = qrn_u16_at(b + 48 + 2 * (r / 8));
    const uint32_t nibble = (uint32_t)b[32 + r / 2] >> 4 * (r % 2) & 15u;
    const float scale = qrn_float_of_f16((uint16_t)d) * (float)(2 * (packed >> 3 * (r % 8 / 2) & 7u) + 1);
    return qrn_iq1_value(qrn_iq1_grid[b[r] | (nibble & 7u) << 8], scale,
                         nibble & 8u ? -0.125f : 0.125f, j);
}

static __device__ __forceinline__ float qrn_fp4_at(uint32_t scale, uint32_t code)
{
    return qrn_ue4m3_half(scale) * (float)qrn_fp4_levels[code];
}

static __device__ __forceinline__ bool qrn_is_plain(int dtype)
{
    return dtype <= QRN_F64 || (dtype >= QRN_F8_E4M3 && dtype <= QRN_F8_E8M0);
}

/* Types without blocks, on addresses that files align: of one element each. */
static __device__ __forceinline__ float qrn_float_at(int dtype, const uint8_t *p, int64_t k)
{
    switch (dtype) {
    case QRN_F32:
    case QRN_F16:
    case QRN_BF16: return qrn_plain_at(dtype, p, k);
    case QRN_F64: return (float)((const double *)p)[k];
    case QRN_F8_E4M3: return qrn_float_of_e4m3(p[k]);
    case QRN_F8_E5M2: return qrn_float_of_f16((uint16_t)(p[k] << 8));
    default: /* F8_E8M0 */
        return __uint_as_float(p[k] == 0     ? 0x00400000u
                               : p[k] == 255 ? 0x7fc00000u
                                             : (uint32_t)p[k] << 23);
    }
}

/* Element k of a row of blocks without a form as integers. */
static __device__ __forceinline__ float qrn_grid_at(int dtype, const uint8_t *p, int64_t k)
{
    const int64_t super = k / 256;
    const int r = (int)(k % 256) / 8, j = (int)(k % 8);
    switch (dtype) {
    case QRN_Q8_1: p += k / 32 * 36; return qrn_half_at(p) * (float)(int8_t)p[4 + k % 32];
    case QRN_Q8_K: p += super * 292; return __uint_as_float(qrn_u32_at(p)) * (float)(int8_t)p[4 + k % 256];
    case QRN_Q8_ACT: p += k / 128 * 148; return __uint_as_float(qrn_u32_at(p)) * (float)(int8_t)p[20 + k % 128];
    case QRN_Q1_0: p += k / 128 * 18; return qrn_with_sign(-qrn_half_at(p), p[2 + k % 128 / 8], j);
    case QRN_Q2_0:
        p += k / 64 * 18;
        return qrn_half_at(p) * (float)((p[2 + k % 64 / 4] >> 2 * (k % 4) & 3) - 1);
    case QRN_NVFP4:
        p += k / 64 * 36;
        return qrn_fp4_at(p[k % 64 / 16], (uint32_t)p[4 + k % 64 / 16 * 8 + k % 8] >> 4 * (k % 16 / 8) & 15u);
    case QRN_IQ2_XXS: return qrn_iq2_at(dtype, p + super * 66, r, j);
    case QRN_IQ2_XS: return qrn_iq2_at(dtype, p + super * 74, r, j);
    case QRN_IQ2_S: return qrn_iq2_at(dtype, p + super * 82, r, j);
    case QRN_IQ3_XXS: return qrn_iq3_at(dtype, p + super * 98, r, j);
    case QRN_IQ3_S: return qrn_iq3_at(dtype, p + super * 110, r, j);
    case QRN_IQ1_S: return qrn_iq1_at(dtype, p + super * 50, r, j);
    default: return qrn_iq1_at(QRN_IQ1_M, p + super * 56, r, j);
    }
}

/* 32 weights from k = 32 i on of a row of any type of blocks. */
static __device__ __noinline__ void qrn_decode_block(const qrn_weight_row &row, int64_t i, float (&out)[32])
{
    const qrn_form f = qrn_form_of(row.dtype);
    if (f.bits) {
        qrn_block b;
        qrn_take_block(row, i, b);
        qrn_find_levels(f.levels, b);
#pragma unroll
        for (int k = 0; k < 32; k++) out[k] = qrn_block_value(f, b, k);
    } else {
        for (int k = 0; k < 32; k++) out[k] = qrn_grid_at(row.dtype, row.blocks, 32 * i + k);
    }
}

#endif
