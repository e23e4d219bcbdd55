/* SPDX-License-Identifier: MIT
 * What a panel of packed weights in shared memory adds to outputs, to the bit of products.cuh: what several rows of x
 * share (matmul_stream_columns.cuh), and one row, by dp4a, a lane a row of weights.
 *
 * Where minima's small integers are made bytes (Q4_K, Q5_K) sums of one row of x are cut in two bytes, too: dp4a then takes
 * those of a whole panel; those of several are made pairs of two blocks', for dp2a.
 *
 * Bases that are half of the codes' range (Q4_0, Q5_0, Q6_K, Q3_K) cost nothing: codes are shifted up to
 * the top of their byte, whose highest bit is flipped, and so are signed levels times a power of 2, which
 * d is divided by: both exact. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_PANEL_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_PANEL_CUH

#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/panels.cuh"
#include "backends/cuda/device/products.cuh"
#include "backends/cuda/matmul_stream_cuda.h"

/* How far codes are shifted up; 0: the base, if any, is added apart. */
static __device__ __forceinline__ constexpr int qrn_stream_shift(const qrn_form &f)
{
    return f.bits < 8 && f.base && f.base == -(1 << (f.bits - 1)) ? 8 - f.bits : 0;
}
static __device__ __forceinline__ constexpr int qrn_stream_base(const qrn_form &f)
{
    return qrn_stream_shift(f) ? 0 : f.base;
}
static __device__ __forceinline__ constexpr bool qrn_stream_halves(const qrn_form &f)
{
    return f.sub == QRN_SUB_HALVES || f.sub == QRN_SUB_HALVES_MIN;
}

/* Whether small integers of a panel's minima are a word's bytes. */
static __device__ __forceinline__ constexpr bool qrn_stream_has_min_bytes(const qrn_form &f)
{
    return f.sub == QRN_SUB_SCALE_MIN;
}
/* Whether sums of 32 k lie beside one row of x as low bytes, -64 .. 63, of four blocks, then high ones. */
static __device__ __forceinline__ constexpr bool qrn_stream_splits_sums(const qrn_form &f)
{
    return qrn_stream_has_min_bytes(f);
}

static __device__ __forceinline__ uint32_t qrn_shift_up(uint32_t x, int n)
{
    return n >= 0 ? x << n : x >> -n;
}

/* Whether codes are taken as they lie, as unsigned bytes: of a word's first 16 k, and sixteen times those of the others.
 * What is added to each code is added in the end. */
static __device__ __forceinline__ constexpr bool qrn_stream_takes_nibbles(const qrn_form &f)
{
    return f.bits == 4 && f.levels == QRN_LEVELS_LINEAR && !qrn_stream_halves(f);
}

/* c plus the products of four unsigned bytes with four signed ones. */
static __device__ __forceinline__ int qrn_dp4a_unsigned(uint32_t a, uint32_t b, int c)
{
#ifdef QRN_EMULATED
    for (int i = 0; i < 4; i++) c += (int)(a >> 8 * i & 255u) * (int8_t)(b >> 8 * i);
#else
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
#endif
    return c;
}

/* Words of vector i of a panel's codes, four of the lane's row. */
struct qrn_words_by_row {
    const uint8_t *codes; /* of the lane */
    __device__ __forceinline__ void operator()(int i, uint32_t (&v)[4]) const
    {
        qrn_words_of(*(const uint4 *)(codes + 512 * i), v);
    }
};

/* Word lane % 4 of rows 8 m + lane / 4, m = 0 .. 3 or 0 .. 1. */
struct qrn_words_by_fragment {
    const uint8_t *codes; /* of the lane */
    __device__ __forceinline__ void operator()(int i, uint32_t (&v)[4]) const
    {
        qrn_ldmatrix4(v, codes + 512 * i);
    }
    __device__ __forceinline__ void operator()(int i, uint32_t (&v)[2]) const
    {
        qrn_ldmatrix2(v, codes + 512 * i);
    }
};

/* Levels of N words of block j: q[i] of word i's first 16 k, q[N + i] of the other 16; codes as they are if not
 * shifted.  flip is 0x80808080, not known when this is compiled: so it stays in a register, and mask and flip are one
 * instruction. */
template <int dtype, int N, bool shifted = true, typename Load>
static __device__ __forceinline__ void qrn_stream_levels(const Load &load, int j, uint32_t flip, uint32_t (&q)[2 * N])
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int up = shifted ? qrn_stream_shift(f) : 0, n_low = f.bits >= 4 ? 4 : 2, n_high = f.bits - n_low;
    constexpr uint32_t low_mask = ((1u << n_low) - 1) * 0x01010101u << up,
                       high_mask = n_high > 0 ? ((1u << n_high) - 1) * 0x01010101u << (n_low + up) : 0;
    uint32_t v[N], h[N] = {};
    if (f.bits == 8) {
        uint32_t second[N];
        load(2 * j, v);
        load(2 * j + 1, second);
#pragma unroll
        for (int i = 0; i < N; i++) q[i] = v[i], q[N + i] = second[i];
        return;
    }
    load(f.bits >= 4 ? j : j / 2, v);
    if (n_high) load(f.bits == 3 ? 2 : f.bits == 5 ? 4 : 4 + j / 2, h);
    const int low_at = f.bits >= 4 ? 0 : 4 * (j % 2);
    const int high_at = n_high == 1 ? 2 * j : 4 * (j % 2);
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (f.levels != QRN_LEVELS_LINEAR) {
            qrn_level_nibbles(f.levels, v[i], q[i], q[N + i]);
            continue;
        }
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const uint32_t high = qrn_shift_up(h[i], n_low + up - high_at - part * n_high) & high_mask;
            const uint32_t low = qrn_shift_up(v[i], up - low_at - part * n_low);
            q[N * part + i] = n_high ? (low & low_mask) | high : low & low_mask;
            if (up) q[N * part + i] ^= flip;
        }
    }
}

/* The scales of a row in a panel, loaded; of MLX codes they are met where they lie. */
struct qrn_stream_scales {
    uint32_t head[4];
    uint2 subs;
    const uint8_t *heads;
};

template <int dtype>
static __device__ __forceinline__ void qrn_stream_load_scales(const qrn_panel_form &p, const uint8_t *panel,
                                                              int row, qrn_stream_scales &s)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int sub_bytes = qrn_form_sub_bytes(f.sub);
    const uint8_t *subs = panel + 512 * f.bits;
    s.heads = subs + 32 * sub_bytes + row * p.head_bytes;
    s.subs = make_uint2(0, 0);
    s.head[0] = s.head[1] = s.head[2] = s.head[3] = 0;
    if (f.sub == QRN_SUB_SCALE_MIN) s.subs = qrn_panel_mins<true>(subs, row);
    else if (sub_bytes == 4) s.subs.x = ((const uint32_t *)subs)[row];
    else if (sub_bytes == 8) s.subs = ((const uint2 *)subs)[row];
    if (f.head == QRN_HEAD_E8M0 || (f.head == QRN_HEAD_PAIR && f.run == 4)) {
        s.head[0] = *(const uint32_t *)s.heads;
    } else if (f.head == QRN_HEAD_PAIR) {
        qrn_words_of(*(const uint4 *)s.heads, s.head);
    } else if (f.head == QRN_HEAD_F16 && f.run == 4) {
        s.head[0] = *(const uint16_t *)s.heads;
    } else if (f.head == QRN_HEAD_F16) {
        const uint2 two = *(const uint2 *)s.heads;
        s.head[0] = two.x, s.head[1] = two.y;
    }
}

/* d and m of block j, d divided as levels are multiplied, if they are. */
template <int dtype, bool shifted = true>
static __device__ __forceinline__ void qrn_stream_head(const qrn_panel_form &p, const qrn_stream_scales &s,
                                                       int j, float &d, float &m)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr float part = shifted ? 1.0f / (1 << qrn_stream_shift(f)) : 1.0f;
    m = 0.0f;
    if (f.head == QRN_HEAD_F16) {
        const uint32_t bits = f.run == 4 ? s.head[0] : s.head[j / 2] >> 16 * (j % 2);
        d = qrn_panel_f16<true>(bits & 0xffffu);
        if (part != 1.0f) d *= part;
    } else if (f.head == QRN_HEAD_E8M0) {
        d = qrn_e8m0_half(s.head[0] >> 8 * j & 255u);
    } else if (f.head == QRN_HEAD_PAIR) {
        const uint32_t both = f.run == 4 ? s.head[0] : s.head[j];
        d = qrn_panel_f16<true>(both & 0xffffu);
        m = qrn_panel_f16<true>(both >> 16);
        if (f.sub != QRN_SUB_NONE) m = -m;
    } else {
        qrn_block b;
        qrn_panel_head<true>(p, s.heads, j, b);
        d = b.d, m = b.m;
    }
}

/* The small integers of block j. */
static __device__ __forceinline__ void qrn_stream_subs(const qrn_form &f, const uint2 &subs, int j, int (&s)[2],
                                                       int (&t)[2])
{
    const uint32_t two = (j < 2 ? subs.x : subs.y) >> 16 * (j % 2);
    s[0] = s[1] = t[0] = t[1] = 1;
    if (f.sub == QRN_SUB_SCALE) {
        s[0] = s[1] = (int8_t)(subs.x >> 8 * j);
    } else if (f.sub == QRN_SUB_SCALE_MIN) {
        s[0] = s[1] = (int)(subs.x >> 8 * j & 255u);
        t[0] = t[1] = (int)(subs.y >> 8 * j & 255u);
    } else if (f.sub == QRN_SUB_HALVES) {
        s[0] = (int8_t)two, s[1] = (int8_t)(two >> 8);
    } else if (f.sub == QRN_SUB_HALVES_MIN) {
        s[0] = (int)(two & 15u), t[0] = (int)(two >> 4 & 15u);
        s[1] = (int)(two >> 8 & 15u), t[1] = (int)(two >> 12 & 15u);
    }
}

/* What block j of a row adds beside the product of levels: sums of x, of the first 16 and of the rest. */
static __device__ __forceinline__ int qrn_stream_t(const qrn_form &f, const int (&t)[2], int sum0, int sum1)
{
    if (f.sub == QRN_SUB_NONE) return sum0 + sum1;
    return f.sub == QRN_SUB_HALVES_MIN ? t[0] * sum0 + t[1] * sum1 : t[0] * (sum0 + sum1);
}

/* Those of a whole panel, where sums of x are split. */
static __device__ __forceinline__ int qrn_stream_t_of_panel(const qrn_stream_scales &scales,
                                                            const uint32_t (&sums)[4])
{
    return 128 * __dp4a((int)scales.subs.y, (int)sums[1], 0) + __dp4a((int)scales.subs.y, (int)sums[0], 0);
}
/* Where they are pairs of two blocks', made of words of halves'. */
static __device__ __forceinline__ int qrn_stream_t_of_pairs(const qrn_stream_scales &scales, const uint32_t (&pairs)[2])
{
    return __dp2a_hi((int)pairs[1], (int)scales.subs.y, __dp2a_lo((int)pairs[0], (int)scales.subs.y, 0));
}
static __device__ __forceinline__ uint32_t qrn_stream_pair_of(uint32_t first, uint32_t second)
{
    return __byte_perm((uint32_t)__dp2a_lo((int)first, 0x0101, 0), (uint32_t)__dp2a_lo((int)second, 0x0101, 0), 0x5410);
}

/* Codes of block j of the lane's row times 32 k of x: of a word's first 16 k, of the others. */
template <int dtype>
static __device__ __forceinline__ void qrn_stream_dots(const qrn_words_by_row &load, int j, uint32_t flip, const uint8_t *x,
                                                       int base0, int base1, int &low, int &high)
{
    constexpr bool nibbles = qrn_stream_takes_nibbles(qrn_form_of(dtype));
    uint32_t q[8], v[8];
    qrn_words_of(((const uint4 *)x)[2 * j], *(uint32_t(*)[4])v);
    qrn_words_of(((const uint4 *)x)[2 * j + 1], *(uint32_t(*)[4])(v + 4));
    low = nibbles ? base0 + base1 : base0, high = nibbles ? 0 : base1;
    if (nibbles) {
        load(j, *(uint32_t(*)[4])q);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low = qrn_dp4a_unsigned(q[i] & 0x0f0f0f0fu, v[i], low);
            high = qrn_dp4a_unsigned(q[i] & 0xf0f0f0f0u, v[4 + i], high);
        }
        high >>= 4;
        return;
    }
    qrn_stream_levels<dtype, 4>(load, j, flip, q);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        low = __dp4a((int)q[i], (int)v[i], low);
        high = __dp4a((int)q[4 + i], (int)v[4 + i], high);
    }
}

/* Of one row of x, whose 128 k are at x, and the row of weights that is lane's. */
template <int dtype>
static __device__ __forceinline__ float qrn_stream_panel_of_one(const qrn_panel_form &form, uint32_t flip,
                                                                const uint8_t *panel, const uint8_t *x)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int base = qrn_stream_takes_nibbles(f) ? f.base : qrn_stream_base(f);
    constexpr bool needs_sums = qrn_has_min(f) || base, splits = qrn_stream_splits_sums(f);
    const qrn_words_by_row load = {panel + 16 * qrn_lane()};
    qrn_stream_scales scales;
    qrn_stream_load_scales<dtype>(form, panel, qrn_lane(), scales);
    uint32_t sums[4] = {0, 0, 0, 0};
    if (needs_sums) qrn_words_of(*(const uint4 *)(x + QRN_PANEL_K), sums);
    qrn_run_sums run = {0, 0};
    float p = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int sum0 = (int16_t)sums[j], sum1 = (int)sums[j] >> 16;
        int s[2], t[2], low, high;
        qrn_stream_subs(f, scales.subs, j, s, t);
        qrn_stream_dots<dtype>(load, j, flip, x, base * sum0, base * sum1, low, high);
        if (f.sub == QRN_SUB_NONE) run.isum += low + high;
        else run.isum += qrn_stream_halves(f) ? s[0] * low + s[1] * high : s[0] * (low + high);
        if (splits) run.tsum = qrn_stream_t_of_panel(scales, sums);
        else if (qrn_has_min(f)) run.tsum += qrn_stream_t(f, t, sum0, sum1);
        if ((j + 1) % form.run == 0) {
            float d, m;
            qrn_stream_head<dtype, !qrn_stream_takes_nibbles(f)>(form, scales, j, d, m);
            qrn_end_run(f, d, m, run, p);
        }
    }
    return p;
}

#endif
