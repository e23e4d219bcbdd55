/* SPDX-License-Identifier: MIT
 * The walk over tokens that the variants of moe_route share: each gives the exponentials. */
#ifndef QUERN_BACKENDS_CPU_MOE_ROUTE_WALK_H
#define QUERN_BACKENDS_CPU_MOE_ROUTE_WALK_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/ranking.h"
#include "backends/cpu/rows.h"

struct moe_route_steps {
    float (*largest)(const float *x, int64_t n); /* -inf if all is NaN */
    /* p = exp(x - largest); the sum of p, in an order that n alone decides. */
    float (*exps)(const float *x, float largest, float *p, int64_t n);
    ranking_above above; /* may be NULL */
};

static inline size_t moe_route_lane_floats(const struct qrn_moe_route_args *a)
{
    return ((size_t)a->logits.shape[1] + 15) / 16 * 16; /* lanes do not share a cache line */
}

static inline size_t moe_route_scratch(const void *args, int n_threads)
{
    return moe_route_lane_floats(args) * sizeof(float) * (size_t)n_threads;
}

static inline void moe_route_row(const float *x, int64_t n, int64_t k, bool normalise, float *p,
                                 int32_t *ids, float *weights, struct moe_route_steps steps)
{
    float chosen = 0.0f;
    const float sum = steps.exps(x, steps.largest(x, n), p, n);
    first_in_rank_by(x, n, k, ids, steps.above);
    for (int64_t i = 0; i < k; i++) {
        weights[i] = p[ids[i]] / sum;
        chosen += weights[i];
    }
    for (int64_t i = 0; normalise && i < k; i++) weights[i] /= chosen;
}

static inline void moe_route_walk(const struct qrn_cpu_lane *lane,
                                  const struct qrn_moe_route_args *a, struct moe_route_steps steps)
{
    float *p = (float *)lane->scratch + moe_route_lane_floats(a) * (size_t)lane->i;
    int64_t begin, end;
    qrn_cpu_share(lane, a->logits.shape[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        moe_route_row(qrn_row_f32(&a->logits, t), a->logits.shape[1], a->ids.shape[1], a->normalise,
                      p, (int32_t *)a->ids.data + qrn_row_at(&a->ids, t),
                      qrn_row_f32(&a->weights, t), steps);
}

#endif
