/* SPDX-License-Identifier: MIT
 * The walk over tokens and parts of rows that the variants of moe_combine share. */
#ifndef QUERN_BACKENDS_CPU_MOE_COMBINE_WALK_H
#define QUERN_BACKENDS_CPU_MOE_COMBINE_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"

/* n elements of one token: out = sum_k weights[k] * experts[k * stride] + factor * shared. */
struct moe_combine_part {
    const float *experts, *weights;
    const float *shared; /* NULL: none; may be out */
    const float *gate;   /* one logit; NULL: factor is 1 */
    float *out;
    int64_t stride, top_k, n;
};

/* Lanes share elements, not tokens: one token is work for all of them. */
static inline void moe_combine_walk(const struct qrn_cpu_lane *lane,
                                    const struct qrn_moe_combine_args *a,
                                    void (*part)(const struct moe_combine_part *))
{
    const int64_t d = a->out.shape[1];
    int64_t at, end;
    qrn_cpu_share(lane, qrn_tensor_n_elements(&a->out), 64, &at, &end);
    while (at < end) {
        const int64_t t = at / d, i = at % d, n = d - i < end - at ? d - i : end - at;
        const struct moe_combine_part one = {
            .experts = (const float *)a->experts.data + t * a->experts.stride[0] + i,
            .weights = qrn_row_f32(&a->weights, t),
            .shared = a->shared.n_dims ? qrn_row_f32(&a->shared, t) + i : NULL,
            .gate = a->shared_gate.n_dims
                        ? (const float *)a->shared_gate.data + t * a->shared_gate.stride[0] : NULL,
            .out = qrn_row_f32(&a->out, t) + i,
            .stride = a->experts.stride[1], .top_k = a->experts.shape[1], .n = n,
        };
        part(&one);
        at += n;
    }
}

#endif
