/* SPDX-License-Identifier: MIT
 * The walk over rows that the variants of l2_norm share. */
#ifndef QUERN_BACKENDS_CPU_L2_NORM_WALK_H
#define QUERN_BACKENDS_CPU_L2_NORM_WALK_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"

struct l2_norm_steps {
    double (*squares)(const float *x, int64_t d);
    void (*multiply)(const float *x, float factor, float *out, int64_t d); /* out may be x */
};

static inline void l2_norm_walk(const struct qrn_cpu_lane *lane, const struct qrn_l2_norm_args *a,
                                struct l2_norm_steps steps)
{
    const int64_t d = a->x.shape[a->x.n_dims - 1];
    const double scale = a->scale != 0.0f ? (double)a->scale : 1.0;
    int64_t begin, end;
    qrn_cpu_share(lane, qrn_n_rows(&a->x), 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        const double factor = scale / sqrt(steps.squares(x, d) + (double)a->eps);
        steps.multiply(x, (float)factor, qrn_row_f32(&a->out, r), d);
    }
}

#endif
