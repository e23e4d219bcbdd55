/* SPDX-License-Identifier: MIT
 * Codes and scales of an image of interleaved rows in NEON registers, for a quarter of a group
 * (4 rows) and 32 k.  The form is a constant where these are called, so that its branches vanish. */
#ifndef QUERN_MATMUL_CODES_NEON_H
#define QUERN_MATMUL_CODES_NEON_H

#include <arm_neon.h>
#include <string.h>
#include "backends/cpu/matmul_image.h"
#include "backends/cpu/unroll.h"

#define INLINE static inline __attribute__((always_inline))

/* (a >> right) & mask, a << -right where right is negative; with operators, since the intrinsics
 * want literals. */
INLINE uint8x16_t field_neon(uint8x16_t a, int right, int mask)
{
    const uint8x16_t s = right > 0   ? a >> vdupq_n_u8((uint8_t)right)
                         : right < 0 ? a << vdupq_n_u8((uint8_t)-right)
                                     : a;
    return right + __builtin_popcount((unsigned)mask) == 8 ? s : s & vdupq_n_u8((uint8_t)mask);
}

/* v[q]: codes of k = 4 q .. 4 q + 3 of rows 4 quarter .. 4 quarter + 3; p: the block's codes. */
INLINE void load_codes_neon(const struct matmul_form f, const char *p, int quarter, uint8x16_t v[8])
{
    const uint8_t *in = (const uint8_t *)p + 16 * quarter;
    if (f.bits == 8) {
        UNROLL for (int q = 0; q < 8; q++) v[q] = vld1q_u8(in + 64 * q);
        return;
    }
    int done = 0;
    if (f.bits >= 4) {
        UNROLL for (int i = 0; i < 4; i++, in += 64)
        {
            const uint8x16_t a = vld1q_u8(in);
            v[i] = field_neon(a, 0, 15);
            v[i + 4] = field_neon(a, 4, 15);
        }
        done = 4;
    }
    if (f.bits - done >= 2) {
        UNROLL for (int i = 0; i < 2; i++, in += 64)
        {
            const uint8x16_t a = vld1q_u8(in);
            UNROLL for (int s = 0; s < 4; s++)
            {
                const uint8x16_t two = field_neon(a, 2 * s - done, 3 << done);
                v[2 * s + i] = done ? v[2 * s + i] | two : two;
            }
        }
        done += 2;
    }
    if (f.bits - done == 1) {
        const uint8x16_t a = vld1q_u8(in);
        UNROLL for (int q = 0; q < 8; q++) v[q] |= field_neon(a, q - done, 1 << done);
    }
}

/* Sixteen levels, for table look-ups. */
INLINE int8x16_t levels_neon(const struct matmul_form f)
{
    return vld1q_s8(f.levels == LEVELS_IQ4 ? qrn_iq4_levels : qrn_fp4_levels);
}

/* Four bytes. */
INLINE uint32x4_t load_bytes_neon(const char *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
}

INLINE int32x4_t load_signed_bytes_neon(const char *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
}

INLINE float32x4_t load_halves_neon(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

/* The head's d (i = 0) or m (i = 1). */
INLINE float32x4_t load_head_neon(const struct matmul_form f, const char *p, int quarter, int i)
{
    if (f.head == HEAD_F32_F32)
        return vld1q_f32((const float *)(const void *)(p + 64 * i + 16 * quarter));
    if (f.head == HEAD_E8M0) { /* 2^(e - 128); what is below 2^-126 is 0 */
        const uint32x4_t e = load_bytes_neon(p + 4 * quarter);
        return vreinterpretq_f32_u32(vshlq_n_u32(vqsubq_u32(e, vdupq_n_u32(1)), 23));
    }
    return load_halves_neon(p + 32 * i + 8 * quarter);
}

/* Small integers of one block: s[0] (all), or s[0] and s[1] of its halves, which multiply d; the
 * same for t and m. */
struct subs_neon {
    int32x4_t s[2], t[2];
};

INLINE struct subs_neon load_subs_neon(const struct matmul_form f, const char *p, int quarter)
{
    const int32x4_t zero = vdupq_n_s32(0);
    struct subs_neon r = {{zero, zero}, {zero, zero}};
    p += 4 * quarter;
    if (f.sub == SUB_SCALE || f.sub == SUB_HALVES) r.s[0] = load_signed_bytes_neon(p);
    if (f.sub == SUB_HALVES) r.s[1] = load_signed_bytes_neon(p + 16);
    if (f.sub == SUB_SCALE_MIN) {
        r.s[0] = vreinterpretq_s32_u32(load_bytes_neon(p));
        r.t[0] = vreinterpretq_s32_u32(load_bytes_neon(p + 16));
    }
    if (f.sub == SUB_HALVES_MIN)
        for (int h = 0; h < 2; h++) {
            const uint32x4_t both = load_bytes_neon(p + 16 * h);
            r.s[h] = vreinterpretq_s32_u32(vandq_u32(both, vdupq_n_u32(15)));
            r.t[h] = vreinterpretq_s32_u32(vshrq_n_u32(both, 4));
        }
    return r;
}

/* The same as floats. */
struct scales_neon {
    float32x4_t s[2], t[2];
};

INLINE struct scales_neon load_scales_neon(const struct matmul_form f, const char *p, int quarter)
{
    const struct subs_neon i = load_subs_neon(f, p, quarter);
    struct scales_neon r;
    for (int h = 0; h < 2; h++) {
        r.s[h] = vcvtq_f32_s32(i.s[h]);
        r.t[h] = vcvtq_f32_s32(i.t[h]);
    }
    return r;
}

/* Four outputs from index first on, of n in all; what is past the end is 0, and stays unwritten. */
INLINE float32x4_t load_outputs_neon(const float *out, int64_t first, int64_t n)
{
    float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (n - first >= 4) return vld1q_f32(out + first);
    for (int64_t i = first; i < n; i++) four[i - first] = out[i];
    return vld1q_f32(four);
}

INLINE void store_outputs_neon(float *out, int64_t first, int64_t n, float32x4_t v)
{
    float four[4];
    if (n - first >= 4) {
        vst1q_f32(out + first, v);
        return;
    }
    vst1q_f32(four, v);
    for (int64_t i = first; i < n; i++) out[i] = four[i - first];
}

#endif
