/* SPDX-License-Identifier: MIT
 * Blocks of 32 weights out of rows as files have them: codes and their scales for types that have a
 * form as integers.  Layouts: docs/block_formats.md.  Rows may begin at any byte. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_WEIGHTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_WEIGHTS_CUH

#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/matmul_forms_cuda.h"

/* One row of a weight matrix. */
struct qrn_weight_row {
    const uint8_t *blocks;
    const uint8_t *scales, *biases; /* MLX codes only */
    int dtype, scales_dtype, biases_dtype, group;
};

/* weight[k] = d * s * (base + level) + m, the level of k in byte k % 4 of q[k / 4].  m is 0 where the
 * type has none, -m t where it has t.  s and t are of each 16 k. */
struct qrn_block {
    uint32_t q[8]; /* codes until qrn_find_levels */
    float d, m;
    int s[2], t[2];
};

static __device__ __forceinline__ uint32_t qrn_u16_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static __device__ __forceinline__ uint32_t qrn_u32_at(const uint8_t *p)
{
    return qrn_u16_at(p) | qrn_u16_at(p + 2) << 16;
}

static __device__ __forceinline__ float qrn_half_at(const uint8_t *p)
{
    return qrn_float_of_f16((uint16_t)qrn_u16_at(p));
}

/* 2^(e - 128); what a float32 has as a subnormal is 0 in sums. */
static __device__ __forceinline__ float qrn_e8m0_half(uint32_t e)
{
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Element i of plain floats, 16-bit or 32-bit. */
static __device__ __forceinline__ float qrn_plain_at(int dtype, const uint8_t *data, int64_t i)
{
    if (dtype == QRN_F32) return ((const float *)data)[i];
    const uint16_t h = ((const uint16_t *)data)[i];
    return dtype == QRN_BF16 ? qrn_float_of_bf16(h) : qrn_float_of_f16(h);
}

static __device__ __forceinline__ uint32_t qrn_k_scale(const uint8_t *q, int j)
{
    return j < 4 ? q[j] & 63u : (q[j + 4] & 15u) | (uint32_t)(q[j - 4] >> 6) << 4;
}

static __device__ __forceinline__ uint32_t qrn_k_min(const uint8_t *q, int j)
{
    return j < 4 ? q[j + 4] & 63u : (uint32_t)(q[j + 4] >> 4) | (uint32_t)(q[j] >> 6) << 4;
}

/* 16 bytes of nibbles: low ones first. */
static __device__ __forceinline__ void qrn_take_nibbles(const uint8_t *p, qrn_block &b)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint32_t x = qrn_u32_at(p + 4 * w);
        b.q[w] = x & 0x0f0f0f0fu;
        b.q[4 + w] = x >> 4 & 0x0f0f0f0fu;
    }
}

/* Bit j of high is above the `at` bits of code j. */
static __device__ __forceinline__ void qrn_add_bits(uint32_t high, int at, qrn_block &b)
{
#pragma unroll
    for (int w = 0; w < 8; w++) {
        const uint32_t four = high >> 4 * w & 15u;
        b.q[w] |= ((four & 1u) | (four & 2u) << 7 | (four & 4u) << 14 | (four & 8u) << 21) << at;
    }
}

/* 32 bytes, of each those bits. */
static __device__ __forceinline__ void qrn_take_bits(const uint8_t *p, int shift, uint32_t mask, qrn_block &b)
{
#pragma unroll
    for (int w = 0; w < 8; w++) b.q[w] = qrn_u32_at(p + 4 * w) >> shift & mask;
}

static __device__ __forceinline__ void qrn_or_bits(const uint8_t *p, int shift, uint32_t mask, int at,
                                                   qrn_block &b)
{
#pragma unroll
    for (int w = 0; w < 8; w++) b.q[w] |= (qrn_u32_at(p + 4 * w) >> shift & mask) << at;
}

static __device__ __forceinline__ void qrn_take_q2_k(const uint8_t *p, int i, qrn_block &b)
{
    b.d = qrn_half_at(p + 80);
    b.m = -qrn_half_at(p + 82);
    for (int h = 0; h < 2; h++) b.s[h] = p[2 * i + h] & 15, b.t[h] = p[2 * i + h] >> 4;
    qrn_take_bits(p + 16 + 32 * (i / 4), 2 * (i % 4), 0x03030303u, b);
}

static __device__ __forceinline__ void qrn_take_q3_k(const uint8_t *p, int i, qrn_block &b)
{
    const uint8_t *packed = p + 96;
    b.d = qrn_half_at(p + 108);
    for (int h = 0; h < 2; h++) {
        const int s = 2 * i + h, low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
        b.s[h] = (low | (packed[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32;
    }
    qrn_take_bits(p + 32 + 32 * (i / 4), 2 * (i % 4), 0x03030303u, b);
    qrn_or_bits(p, i, 0x01010101u, 2, b);
}

/* Q4_K and Q5_K. */
static __device__ __forceinline__ void qrn_take_q45_k(const uint8_t *p, int i, bool fifth, qrn_block &b)
{
    b.d = qrn_half_at(p);
    b.m = -qrn_half_at(p + 2);
    b.s[0] = b.s[1] = (int)qrn_k_scale(p + 4, i);
    b.t[0] = b.t[1] = (int)qrn_k_min(p + 4, i);
    qrn_take_bits(p + (fifth ? 48 : 16) + 32 * (i / 2), 4 * (i % 2), 0x0f0f0f0fu, b);
    if (fifth) qrn_or_bits(p + 16, i, 0x01010101u, 4, b);
}

static __device__ __forceinline__ void qrn_take_q6_k(const uint8_t *p, int i, qrn_block &b)
{
    const int half = i / 4, run = i % 4;
    b.d = qrn_half_at(p + 208);
    for (int h = 0; h < 2; h++) b.s[h] = (int8_t)p[192 + 2 * i + h];
    qrn_take_bits(p + 64 * half + 32 * (run % 2), 4 * (run / 2), 0x0f0f0f0fu, b);
    qrn_or_bits(p + 128 + 32 * half, 2 * run, 0x03030303u, 4, b);
}

static __device__ __forceinline__ void qrn_take_iq4_xs(const uint8_t *p, int i, qrn_block &b)
{
    const int low = p[4 + i / 2] >> 4 * (i % 2) & 15, high = (int)(qrn_u16_at(p + 2) >> 2 * i & 3u);
    b.d = qrn_half_at(p);
    b.s[0] = b.s[1] = (low | high << 4) - 32;
    qrn_take_nibbles(p + 8 + 16 * i, b);
}

/* Digit n of a byte that holds up to five base-3 digits as a fraction of 256, rounded up. */
static __device__ __forceinline__ uint32_t qrn_ternary_digit(uint32_t byte, int n)
{
    const uint32_t power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
    return (byte * power & 255u) * 3u >> 8;
}

static __device__ __forceinline__ void qrn_take_tq1_0(const uint8_t *p, int i, qrn_block &b)
{
    b.d = qrn_half_at(p + 52);
#pragma unroll
    for (int w = 0; w < 8; w++) {
        b.q[w] = 0;
        for (int j = 0; j < 4; j++) {
            const int k = 32 * i + 4 * w + j; /* 5 x 32 digits of 32 bytes, 5 x 16 of 16, 4 x 4 of 4 */
            const uint32_t digit = k < 160   ? qrn_ternary_digit(p[k % 32], k / 32)
                                   : k < 240 ? qrn_ternary_digit(p[32 + k % 16], (k - 160) / 16)
                                             : qrn_ternary_digit(p[48 + k % 4], (k - 240) / 4);
            b.q[w] |= digit << 8 * j;
        }
    }
}

static __device__ __forceinline__ void qrn_take_mlx(const qrn_weight_row &row, int bits, int64_t i,
                                                    qrn_block &b)
{
    const uint8_t *p = row.blocks + i * 4 * bits;
    const int64_t group = 32 * i / row.group;
    b.d = qrn_plain_at(row.scales_dtype, row.scales, group);
    b.m = qrn_plain_at(row.biases_dtype, row.biases, group);
#pragma unroll
    for (int w = 0; w < 8; w++) {
        uint32_t four = 0;
        for (int j = 0; j < 4; j++) {
            const int at = (4 * w + j) * bits, byte = at / 8;
            uint32_t x = p[byte];
            if (at % 8 + bits > 8) x |= (uint32_t)p[byte + 1] << 8;
            four |= (x >> at % 8 & ((1u << bits) - 1)) << 8 * j;
        }
        b.q[w] = bits == 8 ? four ^ 0x80808080u : four;
    }
}

/* Block i of a row of a type that has a form. */
static __device__ __forceinline__ void qrn_take_block(const qrn_weight_row &row, int64_t i, qrn_block &b)
{
    const uint8_t *p = row.blocks;
    const int64_t super = i / 8;
    const int sub = (int)(i - 8 * super);
    b.m = 0.0f;
    b.s[0] = b.s[1] = b.t[0] = b.t[1] = 1;
    switch (row.dtype) {
    case QRN_Q4_0:
    case QRN_IQ4_NL:
        b.d = qrn_half_at(p += 18 * i);
        qrn_take_nibbles(p + 2, b);
        break;
    case QRN_Q4_1:
        b.d = qrn_half_at(p += 20 * i);
        b.m = qrn_half_at(p + 2);
        qrn_take_nibbles(p + 4, b);
        break;
    case QRN_Q5_0:
        b.d = qrn_half_at(p += 22 * i);
        qrn_take_nibbles(p + 6, b);
        qrn_add_bits(qrn_u32_at(p + 2), 4, b);
        break;
    case QRN_Q5_1:
        b.d = qrn_half_at(p += 24 * i);
        b.m = qrn_half_at(p + 2);
        qrn_take_nibbles(p + 8, b);
        qrn_add_bits(qrn_u32_at(p + 4), 4, b);
        break;
    case QRN_Q8_0:
        b.d = qrn_half_at(p += 34 * i);
        qrn_take_bits(p + 2, 0, ~0u, b);
        break;
    case QRN_Q2_K: qrn_take_q2_k(p + 84 * super, sub, b); break;
    case QRN_Q3_K: qrn_take_q3_k(p + 110 * super, sub, b); break;
    case QRN_Q4_K: qrn_take_q45_k(p + 144 * super, sub, false, b); break;
    case QRN_Q5_K: qrn_take_q45_k(p + 176 * super, sub, true, b); break;
    case QRN_Q6_K: qrn_take_q6_k(p + 210 * super, sub, b); break;
    case QRN_IQ4_XS: qrn_take_iq4_xs(p + 136 * super, sub, b); break;
    case QRN_MXFP4:
        b.d = qrn_e8m0_half((p += 17 * i)[0]);
        qrn_take_nibbles(p + 1, b);
        break;
    case QRN_TQ1_0: qrn_take_tq1_0(p + 54 * super, sub, b); break;
    case QRN_TQ2_0:
        b.d = qrn_half_at((p += 66 * super) + 64);
        qrn_take_bits(p + 32 * (sub / 4), 2 * (sub % 4), 0x03030303u, b);
        break;
    default: qrn_take_mlx(row, qrn_form_of(row.dtype).bits, i, b);
    }
}

/* Levels of eight codes, nibbles of x: low ones of the four bytes, and high ones.  The table's sixteen
 * bytes are four words. */
static __device__ __forceinline__ void qrn_look_up(uint32_t x, uint32_t t0, uint32_t t1, uint32_t t2,
                                                   uint32_t t3, uint32_t &low, uint32_t &high)
{
    const uint32_t which = 0x32103210u | (x & 0x88888888u) >> 1;
    const uint32_t first = __byte_perm(__byte_perm(t0, t1, x), __byte_perm(t2, t3, x), which);
    const uint32_t second = __byte_perm(__byte_perm(t0, t1, x >> 16), __byte_perm(t2, t3, x >> 16),
                                        which >> 16);
    low = __byte_perm(first, second, 0x6420);
    high = __byte_perm(first, second, 0x7531);
}

static __device__ __forceinline__ void qrn_level_nibbles(int levels, uint32_t x, uint32_t &low,
                                                         uint32_t &high)
{
    if (levels == QRN_LEVELS_IQ4) {
        qrn_look_up(x, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u, low, high);
    } else if (levels == QRN_LEVELS_FP4) {
        qrn_look_up(x, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu, low, high);
    } else {
        low = x & 0x0f0f0f0fu;
        high = x >> 4 & 0x0f0f0f0fu;
    }
}

/* Codes to signed levels, less the base. */
static __device__ __forceinline__ void qrn_find_levels(int levels, qrn_block &b)
{
    if (levels == QRN_LEVELS_LINEAR) return;
#pragma unroll
    for (int w = 0; w < 4; w++)
        qrn_level_nibbles(levels, b.q[w] | b.q[4 + w] << 4, b.q[w], b.q[4 + w]);
}

/* Element k (0 .. 31) of a block, exactly as the type decodes. */
static __device__ __forceinline__ float qrn_block_value(const qrn_form &f, const qrn_block &b, int k)
{
    const int level = (int8_t)(b.q[k / 4] >> 8 * (k % 4)) + f.base, h = k / 16;
    const float scale = f.sub == QRN_SUB_NONE ? b.d : b.d * (float)b.s[h];
    const float x = scale * (float)level;
    if (f.head == QRN_HEAD_F16 || f.head == QRN_HEAD_E8M0) return x;
    return x + (f.sub == QRN_SUB_NONE ? b.m : b.m * (float)b.t[h]);
}

#endif
