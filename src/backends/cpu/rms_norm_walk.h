/* SPDX-License-Identifier: MIT
 * The walk over rows that the variants of rms_norm share: each gives the work on one row. */
#ifndef QUERN_BACKENDS_CPU_RMS_NORM_WALK_H
#define QUERN_BACKENDS_CPU_RMS_NORM_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"

/* Pointers that are NULL are absent; out may be x or gate, sum may be x or residual. */
struct rms_norm_row {
    const float *x, *weight, *residual, *gate;
    float *sum, *out;
    int64_t d;
    float eps;
};

static inline void rms_norm_walk(const struct qrn_cpu_lane *lane, const struct qrn_rms_norm_args *a,
                                 void (*row)(const struct rms_norm_row *))
{
    int64_t begin, end;
    qrn_cpu_share(lane, qrn_n_rows(&a->x), 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const struct rms_norm_row one = {
            .x = qrn_row_f32(&a->x, r), .weight = a->weight.n_dims ? a->weight.data : NULL,
            .residual = qrn_row_f32(&a->residual, r), .gate = qrn_row_f32(&a->gate, r),
            .sum = qrn_row_f32(&a->sum, r), .out = qrn_row_f32(&a->out, r),
            .d = a->x.shape[a->x.n_dims - 1], .eps = a->eps,
        };
        row(&one);
    }
}

#endif
