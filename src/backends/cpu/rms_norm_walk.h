/* SPDX-License-Identifier: MIT
 * The walk over rows that the variants of rms_norm share: each gives the work on one row. */
#ifndef QUERN_BACKENDS_CPU_RMS_NORM_WALK_H
#define QUERN_BACKENDS_CPU_RMS_NORM_WALK_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/round_out.h"

/* Pointers that are NULL are absent; sum may be x or residual. */
struct rms_norm_row {
    const float *x, *weight, *residual, *gate;
    float *sum;
    int64_t d;
    float scale;
};

struct rms_norm_steps {
    /* The sum of squares of x + residual. */
    double (*squares)(const struct rms_norm_row *r);
    /* Elements i .. i + n - 1 to out[0 .. n - 1], which may lie in x or gate. */
    void (*part)(const struct rms_norm_row *r, int64_t i, int64_t n, float *out);
    const struct rounding *rounding;
};

/* Row r, its scale known. */
static inline void rms_norm_write(const struct qrn_rms_norm_args *a, const struct rms_norm_row *one,
                                  int64_t r, struct rms_norm_steps steps)
{
    float piece[ROUND_PIECE], *out = qrn_row_f32(&a->out, r);
    const int64_t step = a->rounded.n_dims ? ROUND_PIECE : one->d;
    for (int64_t i = 0; i < one->d; i += step) {
        const int64_t n = one->d - i < step ? one->d - i : step;
        float *to = out ? out + i : piece;
        steps.part(one, i, n, to);
        if (a->rounded.n_dims) round_out(steps.rounding, to, &a->rounded, r, i, n);
    }
}

static inline void rms_norm_walk(const struct qrn_cpu_lane *lane, const struct qrn_rms_norm_args *a,
                                 struct rms_norm_steps steps)
{
    int64_t begin, end;
    qrn_cpu_share(lane, qrn_n_rows(&a->x), 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        struct rms_norm_row one = {
            .x = qrn_row_f32(&a->x, r),
            .weight = a->weight.n_dims ? a->weight.data : NULL,
            .residual = qrn_row_f32(&a->residual, r),
            .gate = qrn_row_f32(&a->gate, r),
            .sum = qrn_row_f32(&a->sum, r),
            .d = a->x.shape[a->x.n_dims - 1],
        };
        one.scale = 1.0f / sqrtf((float)(steps.squares(&one) / (double)one.d) + a->eps);
        rms_norm_write(a, &one, r, steps);
    }
}

#endif
