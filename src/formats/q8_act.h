/* SPDX-License-Identifier: MIT
 * Rounding activations to 8 bits: the definition that every kernel follows to the bit. */
#ifndef QUERN_FORMATS_Q8_ACT_H
#define QUERN_FORMATS_Q8_ACT_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <quern/dtype.h>

/* The largest |x| of a block to its scale, 0 for what is too small to have one. */
static inline float qrn_q8_scale(float max)
{
    const float d = max / 127.0f;
    return d >= FLT_MIN ? d : 0.0f;
}

/* Rounds n <= 32 activations to q; returns d (struct qrn_q8_act). */
static inline float qrn_quantise_q8(const float *x, int n, int8_t *q)
{
    float max = 0.0f;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        finite = finite && a <= FLT_MAX;
        if (a > max) max = a;
    }
    const float d = finite ? qrn_q8_scale(max) : NAN, inverse = d > 0.0f ? 1.0f / d : 0.0f;
    for (int i = 0; i < n; i++) q[i] = finite ? (int8_t)lrintf(x[i] * inverse) : 0;
    return d;
}

/* d and the sums of a block whose q is there. */
static inline void qrn_q8_act_finish(struct qrn_q8_act *block, float d, int32_t sum0, int32_t sum1)
{
    block->d = d;
    block->d_sum = d * (float)(sum0 + sum1);
    block->sum[0] = sum0;
    block->sum[1] = sum1;
}

/* One block of 32. */
static inline void qrn_q8_act_block(const float *x, struct qrn_q8_act *out)
{
    int32_t sum[2] = {0, 0};
    const float d = qrn_quantise_q8(x, 32, out->q);
    for (int i = 0; i < 32; i++) sum[i / 16] += out->q[i];
    qrn_q8_act_finish(out, d, sum[0], sum[1]);
}

#endif
