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

enum { QRN_Q8_ACT_BLOCK = 128 };

/* One block; activations from n on are zeros, and so are subnormal ones, whatever the mode of the
 * processor is: kernels run in one that flushes them. */
static inline void qrn_q8_act_block(const float *x, int n, struct qrn_q8_act *out)
{
    float max = 0.0f;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        finite = finite && a <= FLT_MAX;
        if (a > max) max = a;
    }
    const float d = finite ? qrn_q8_scale(max) : NAN, inverse = d > 0.0f ? 1.0f / d : 0.0f;
    *out = (struct qrn_q8_act){.d = d};
    for (int i = 0; i < n && finite; i++) {
        const bool normal = fabsf(x[i]) >= FLT_MIN;
        out->q[i] = (int8_t)lrintf(normal ? x[i] * inverse : 0.0f);
        out->sum[i / 16] = (int16_t)(out->sum[i / 16] + out->q[i]);
    }
}

#endif
