/* SPDX-License-Identifier: MIT
 * Rounding activations to 8 bits with NEON: qrn_q8_act_block to the bit. */
#ifndef QUERN_Q8_ACT_NEON_H
#define QUERN_Q8_ACT_NEON_H

#include <arm_neon.h>
#include "formats/q8_act.h"

/* Four times four values times inverse, to the nearest. */
static inline int8x16_t q8_act_codes_neon(const float *x, float inverse)
{
    int16x4_t q[4];
    for (int i = 0; i < 4; i++)
        q[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse)));
    return vcombine_s8(vmovn_s16(vcombine_s16(q[0], q[1])), vmovn_s16(vcombine_s16(q[2], q[3])));
}

/* 128 values. */
static inline void q8_act_neon(const float *x, struct qrn_q8_act *out)
{
    float32x4_t max = vdupq_n_f32(0.0f);
    uint32x4_t good = vdupq_n_u32(UINT32_MAX);
    for (int i = 0; i < 32; i++) {
        const float32x4_t a = vabsq_f32(vld1q_f32(x + 4 * i));
        good = vandq_u32(good, vcleq_f32(a, vdupq_n_f32(FLT_MAX)));
        max = vmaxq_f32(max, a);
    }
    if (vminvq_u32(good) == 0) {
        *out = (struct qrn_q8_act){.d = NAN};
        return;
    }
    out->d = qrn_q8_scale(vmaxvq_f32(max));
    const float inverse = out->d > 0.0f ? 1.0f / out->d : 0.0f;
    for (int i = 0; i < 8; i++) {
        const int8x16_t q = q8_act_codes_neon(x + 16 * i, inverse);
        vst1q_s8(out->q + 16 * i, q);
        out->sum[i] = vaddlvq_s8(q);
    }
}

#endif
