/* SPDX-License-Identifier: MIT
 * argmax and top_k, compiled for each instruction set. */
#ifndef QUERN_BACKENDS_CPU_RANKING_WALK_H
#define QUERN_BACKENDS_CPU_RANKING_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/ranking.h"
#include "backends/cpu/rows.h"

static inline void argmax_walk(const struct qrn_cpu_lane *lane, const struct qrn_argmax_args *a)
{
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0], 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        const int64_t at = largest_at(x, a->x.shape[1]);
        ((int32_t *)a->ids.data)[r] = (int32_t)at;
        if (a->values.n_dims) ((float *)a->values.data)[r] = x[at];
    }
}

static inline void top_k_walk(const struct qrn_cpu_lane *lane, const struct qrn_top_k_args *a,
                              ranking_above above)
{
    const int64_t k = a->ids.shape[1];
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0], 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        int32_t *ids = (int32_t *)a->ids.data + qrn_row_at(&a->ids, r);
        float *values = qrn_row_f32(&a->values, r);
        first_in_rank_by(x, a->x.shape[1], k, ids, above);
        for (int64_t i = 0; values && i < k; i++) values[i] = x[ids[i]];
    }
}

#endif
