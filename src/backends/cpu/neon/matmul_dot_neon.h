/* SPDX-License-Identifier: MIT
 * What products of rounded activations share on Arm: weights as they enter integer sums, scales of a
 * block, and what becomes of the sums. */
#ifndef QUERN_MATMUL_DOT_NEON_H
#define QUERN_MATMUL_DOT_NEON_H

#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/neon/matmul_codes_neon.h"

INLINE bool has_halves(const struct matmul_form f)
{
    return f.sub == SUB_HALVES || f.sub == SUB_HALVES_MIN;
}

/* Codes as signed bytes are levels + bias; those of 8 bits after their highest bit is turned. */
INLINE int bias_of(const struct matmul_form f)
{
    if (f.levels != LEVELS_LINEAR) return 0;
    return f.bits == 8 ? f.offset - 128 : f.offset;
}

/* Whether levels fit into signed bytes. */
INLINE bool levels_fit(const struct matmul_form f)
{
    return f.bits < 8 || bias_of(f) == 0;
}

/* 4 rows, 32 k: codes as signed bytes (by_sum: who uses them takes bias * sum off), or levels. */
INLINE void load_weights(const struct matmul_form f, const char *w, int quarter, const bool by_sum,
                         int8x16_t v[8])
{
    uint8x16_t codes[8];
    load_codes_neon(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, quarter, codes);
    UNROLL for (int q = 0; q < 8; q++)
    {
        if (f.bits == 8) codes[q] ^= vdupq_n_u8(128);
        v[q] = f.levels == LEVELS_LINEAR ? vreinterpretq_s8_u8(codes[q])
                                         : vqtbl1q_s8(levels_neon(f), codes[q]);
        if (!by_sum && bias_of(f)) v[q] = vsubq_s8(v[q], vdupq_n_s8((int8_t)bias_of(f)));
    }
}

/* d and m of a block, or of its halves. */
struct block_scales {
    float32x4_t d[2], m[2];
};

INLINE struct block_scales block_scales(const struct matmul_form f, const char *w, int quarter,
                                        float32x4_t d, float32x4_t m)
{
    struct block_scales s = {{d, d}, {m, m}};
    const struct scales_neon sub = load_scales_neon(f, w, quarter);
    for (int h = 0; h < 2 && f.sub != SUB_NONE; h++) {
        s.d[h] = vmulq_f32(d, sub.s[h]);
        s.m[h] = vmulq_f32(m, sub.t[h]);
    }
    return s;
}

/* Integer sums of 32 k (lo: all, or those of the first half) to floats. */
INLINE float32x4_t add_sums(const struct matmul_form f, float32x4_t acc, int32x4_t lo, int32x4_t hi,
                            const struct block_scales *w, const struct qrn_q8_act *a)
{
    if (has_halves(f)) {
        const float32x4_t sum =
            vfmaq_f32(vmulq_f32(vcvtq_f32_s32(lo), w->d[0]), vcvtq_f32_s32(hi), w->d[1]);
        acc = vfmaq_n_f32(acc, sum, a->d);
    } else {
        acc = vfmaq_f32(acc, vcvtq_f32_s32(lo), vmulq_n_f32(w->d[0], a->d));
    }
    if (!matmul_has_min(&f)) return acc;
    if (f.sub == SUB_NONE) return vfmaq_n_f32(acc, w->m[0], a->d_sum);
    if (f.sub == SUB_SCALE_MIN) return vfmsq_n_f32(acc, w->m[0], a->d_sum);
    for (int h = 0; h < 2; h++) acc = vfmsq_n_f32(acc, w->m[h], a->d * (float)a->sum[h]);
    return acc;
}

INLINE void prefetch_block(const struct matmul_form f, const char *w)
{
    for (size_t at = 0; at < image_block_bytes(&f); at += 64)
        __builtin_prefetch(w + AHEAD_BYTES + at);
}

#endif
