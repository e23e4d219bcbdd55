/* SPDX-License-Identifier: MIT
 * gdn_gates in portable C. */
#include <math.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"

static void run(void *arg, const void *args)
{
    const struct qrn_cpu_lane *lane = arg;
    const struct qrn_gdn_gates_args *p = args;
    const int64_t n_heads = p->a.shape[1];
    const float *a_scale = p->a_scale.data, *dt_bias = p->dt_bias.data;
    int64_t begin, end;
    qrn_cpu_share(lane, p->a.shape[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *a = qrn_row_f32(&p->a, t), *b = qrn_row_f32(&p->b, t);
        float *g = qrn_row_f32(&p->g, t), *beta = qrn_row_f32(&p->beta, t);
        for (int64_t h = 0; h < n_heads; h++) {
            const float x = a[h] + dt_bias[h];
            g[h] = a_scale[h] * (x > 20.0f ? x : log1pf(expf(x)));
            beta[h] = 1.0f / (1.0f + expf(-b[h]));
        }
    }
}

const struct qrn_kernel qrn_cpu_gdn_gates_generic = {
    .op = QRN_OP_gdn_gates, .name = "cpu.gdn_gates.generic", .run = run,
};
