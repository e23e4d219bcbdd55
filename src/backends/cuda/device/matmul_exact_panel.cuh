/* SPDX-License-Identifier: MIT
 * Panels of packed weights in shared memory made f16 in registers, as wgmma takes them from there, so that with codes of x,
 * f16 as well, it makes the integer sums of products.cuh: products of integers are exact, and so is each sum of them that
 * stays below 2^24, in any order.
 *
 * What is multiplied is a level, where there are no small integers, or a level times its small integer and 2^-16: a byte as
 * f16 is a subnormal number, 2^-24 times its value, and one fused multiply-add makes it what is wanted, exactly.  f16 has 11
 * bits; Q6_K and IQ4_XS, whose products have 13, are split in two, the level's lower bits and the higher ones.  Sums of 128 k
 * of Q5_K reach 2^25, those of 64 k do not, nor do any other's. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_PANEL_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_PANEL_CUH

#include "backends/cuda/device/matmul_registers_panel.cuh"

static __device__ __forceinline__ constexpr bool qrn_exact_has_subs(const qrn_form &f)
{
    return f.sub != QRN_SUB_NONE;
}
static __device__ __forceinline__ constexpr bool qrn_exact_splits(const qrn_form &f)
{
    return f.sub == QRN_SUB_SCALE || (f.sub == QRN_SUB_HALVES && f.bits == 6);
}
/* Of a level that is split. */
static __device__ __forceinline__ constexpr int qrn_exact_low_bits(const qrn_form &f)
{
    return f.bits == 6 ? 3 : 4;
}
static __device__ __forceinline__ constexpr bool qrn_exact_sums_halves(const qrn_form &f)
{
    return f.sub == QRN_SUB_SCALE_MIN && f.bits == 5;
}
/* Minima whose small integers differ from block to block. */
static __device__ __forceinline__ constexpr bool qrn_exact_has_min_subs(const qrn_form &f)
{
    return f.sub == QRN_SUB_SCALE_MIN || f.sub == QRN_SUB_HALVES_MIN;
}

/* --- scales --- */

/* d and m of the run that block j of a row is of; d 2^16 times as large where weights are 2^-16 times. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_head(const qrn_panel_form &form, const uint8_t *panel, int row, int j, float &d,
                                                      float &m)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    const uint8_t *heads = panel + 512 * f.bits + 32 * qrn_form_sub_bytes(f.sub);
    qrn_block b;
    qrn_panel_head<true>(form, heads + row * form.head_bytes, j, b);
    d = qrn_exact_has_subs(f) ? 65536.0f * b.d : b.d;
    m = b.m;
}

/* Of both rows of a lane small integers of both halves of block lane % 4, as f16: s times 2^8, t. */
struct qrn_exact_subs {
    uint32_t s[2], t[2];
};

template <int dtype>
static __device__ __forceinline__ void qrn_exact_load_subs(const uint8_t *panel, int row, qrn_exact_subs &to)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    if (!qrn_exact_has_subs(f)) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int s[2], t[2];
#pragma unroll
        for (int h = 0; h < 2; h++)
            qrn_small_integers(f, panel + 512 * f.bits, row + 8 * r, qrn_lane() % 4, h, s[h], t[h]);
        to.s[r] = qrn_f16_pair(256.0f * (float)s[0], 256.0f * (float)s[1]);
        to.t[r] = qrn_f16_pair((float)t[0], (float)t[1]);
    }
}

/* s of half h of block j, twice. */
static __device__ __forceinline__ uint32_t qrn_exact_s_of(uint32_t s, int j, int h)
{
    return __byte_perm(__shfl_sync(QRN_ALL_OF_WARP, s, j, 4), 0, h ? 0x3232 : 0x1010);
}

/* --- weights --- */

/* Levels of block j: first[2 right + down] of its first 16 k, second of the others.  A byte is put into 1024's mantissa. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_levels(const qrn_halfwords &load, int j, uint32_t (&first)[4],
                                                        uint32_t (&second)[4])
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr uint32_t one = 0x3c003c00u, magic = 0x64006400u;
    constexpr int base = f.base - (qrn_levels_wrap(f) ? 128 : 0);
    const uint32_t less = qrn_f16_pair((float)(base - 1024), (float)(base - 1024)),
                   less_high = qrn_f16_pair((float)(base - 64), (float)(base - 64));
    uint32_t q[4];
    if (f.bits == 4 && f.levels == QRN_LEVELS_LINEAR) { /* the upper nibble is sixteen times its code */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t both = qrn_pair_of_bytes(load.at(j, i % 2, i / 2), 0);
            first[i] = qrn_f16_pair_fma((both & 0x000f000fu) | magic, one, less);
            second[i] = qrn_f16_pair_fma((both & 0x00f000f0u) | magic, qrn_f16_pairs::SIXTEENTH, less_high);
        }
        return;
    }
    qrn_stream_levels<dtype, 2, false>(load, j, 0, q);
#pragma unroll
    for (int i = 0; qrn_levels_wrap(f) && i < 4; i++) q[i] ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first[i] = qrn_f16_pair_fma(qrn_pair_of_bytes(q[i % 2], i / 2) | magic, one, less);
        second[i] = qrn_f16_pair_fma(qrn_pair_of_bytes(q[2 + i % 2], i / 2) | magic, one, less);
    }
}

/* The same of weights of block j. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_fragments(const qrn_halfwords &load, int j, const qrn_exact_subs &own,
                                                         uint32_t (&first)[4], uint32_t (&second)[4])
{
    constexpr qrn_form f = qrn_form_of(dtype);
    if constexpr (!qrn_exact_has_subs(f)) {
        qrn_exact_levels<dtype>(load, j, first, second);
    } else {
        qrn_pairs_of_block b[2];
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                b[r].d[h] = qrn_halves_differ(f) || h == 0 ? qrn_exact_s_of(own.s[r], j, h) : b[r].d[0];
                b[r].m[h] = f.base ? qrn_f16_pair_multiply(b[r].d[h], (0x8000u | (uint32_t)-f.base) * 0x10001u) : 0u;
            }
        qrn_weights_of_block<dtype, qrn_f16_pairs>(load, j, b, first, second);
    }
}

/* Both parts of weights that are split, of 16 k: half h of block j. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_split(const qrn_halfwords &load, int j, int h, const qrn_exact_subs &own,
                                                       uint32_t (&low)[4], uint32_t (&high)[4])
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int low_bits = qrn_exact_low_bits(f);
    constexpr uint32_t low_mask = ((1u << low_bits) - 1) * 0x10001u, all = qrn_levels_wrap(f) ? 0xffu : (1u << f.bits) - 1,
                       high_mask = all * 0x10001u & ~low_mask;
    /* 2^-low_bits; what is taken from the higher part, as a subnormal number. */
    constexpr uint32_t scale = (uint32_t)(15 - low_bits) * 0x04000400u,
                       base = (0x8000u | (uint32_t)(-f.base + (qrn_levels_wrap(f) ? 128 : 0)) >> low_bits) * 0x10001u;
    uint32_t q[4];
    qrn_stream_levels<dtype, 2, false>(load, j, 0, q);
#pragma unroll
    for (int i = 0; qrn_levels_wrap(f) && i < 4; i++) q[i] ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t s = qrn_exact_s_of(own.s[i % 2], j, h), pair = qrn_pair_of_bytes(q[2 * h + i % 2], i / 2);
        low[i] = qrn_f16_pair_multiply(pair & low_mask, s);
        high[i] = qrn_f16_pair_fma(pair & high_mask, qrn_f16_pair_multiply(s, scale), qrn_f16_pair_multiply(s, base));
    }
}

#endif
