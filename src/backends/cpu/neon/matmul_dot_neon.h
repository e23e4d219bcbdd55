/* SPDX-License-Identifier: MIT
 * What products of rounded activations share on Arm: weights as they enter integer sums, and what
 * becomes of the sums. */
#ifndef QUERN_MATMUL_DOT_NEON_H
#define QUERN_MATMUL_DOT_NEON_H

#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/neon/matmul_codes_neon.h"

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

/* The sum of n blocks of 32, from block i of x's 128 k on. */
INLINE int32_t run_sum(const struct qrn_q8_act *x, int64_t i, const int64_t n)
{
    int32_t sum = 0;
    for (int64_t h = 2 * i; h < 2 * (i + n); h++) sum += x->sum[h];
    return sum;
}

/* t times the two sums of a block of x. */
INLINE int32x4_t add_mins(const struct matmul_form f, int32x4_t tsum, const struct subs_neon *w,
                          const int16_t *x)
{
    if (f.sub == SUB_SCALE_MIN) return vmlaq_n_s32(tsum, w->t[0], x[0] + x[1]);
    if (f.sub == SUB_HALVES_MIN)
        return vmlaq_n_s32(vmlaq_n_s32(tsum, w->t[0], x[0]), w->t[1], x[1]);
    return tsum;
}

/* Integer sums of what stands under a head, to floats. */
INLINE float32x4_t add_sums(const struct matmul_form f, float32x4_t p, int32x4_t isum,
                            int32x4_t tsum, const char *head, int quarter)
{
    p = vfmaq_f32(p, vcvtq_f32_s32(isum), load_head_neon(f, head, quarter, 0));
    if (!matmul_has_min(&f)) return p;
    const float32x4_t t = vcvtq_f32_s32(tsum), m = load_head_neon(f, head, quarter, 1);
    return f.sub == SUB_NONE ? vfmaq_f32(p, t, m) : vfmsq_f32(p, t, m);
}

INLINE void prefetch_block(const struct matmul_form f, const char *w)
{
    for (size_t at = 0; at < image_block_bytes(&f); at += 64)
        __builtin_prefetch(w + AHEAD_BYTES + at);
}

#endif
