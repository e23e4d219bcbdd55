/* SPDX-License-Identifier: MIT
 * gated_delta_net in portable C: sums over d_k in four interleaved parts. */
#include <math.h>

#include "backends/cpu/gated_delta_net_walk.h"

static inline void one_token(float *S, int64_t d_k, const float *q, const float *k, float v,
                             float decay, float beta, float scale, float *out)
{
    float m[4] = {0}, o[4] = {0};
    for (int64_t i = 0; i < d_k; i++) m[i & 3] += (S[i] *= decay) * k[i];
    const float d = beta * (v - ((m[0] + m[1]) + (m[2] + m[3])));
    for (int64_t i = 0; i < d_k; i++) o[i & 3] += (S[i] += d * k[i]) * q[i];
    *out = scale * ((o[0] + o[1]) + (o[2] + o[3]));
}

static void rows(const struct gdn_recurrence *p)
{
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const float decay = expf(p->sign * p->g[t * p->g_stride]);
        for (int r = 0; r < p->n_rows; r++)
            one_token(p->state + r * p->state_stride, p->d_k, p->q + t * p->q_stride,
                      p->k + t * p->k_stride, p->v[t * p->v_stride + r], decay,
                      p->beta[t * p->beta_stride], p->scale, p->out + t * p->out_stride + r);
    }
}

static void run(void *lane, const void *args)
{
    gated_delta_net_walk(lane, args, rows);
}

const struct qrn_kernel qrn_cpu_gated_delta_net_generic = {
    .op = QRN_OP_gated_delta_net, .name = "cpu.gated_delta_net.generic", .run = run,
};
