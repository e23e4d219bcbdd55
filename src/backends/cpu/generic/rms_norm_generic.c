/* SPDX-License-Identifier: MIT
 * rms_norm in portable C. */
#include <math.h>

#include "backends/cpu/rms_norm_walk.h"

static float value(const struct rms_norm_row *r, int64_t i)
{
    return r->residual ? r->x[i] + r->residual[i] : r->x[i];
}

static void row(const struct rms_norm_row *r)
{
    double squares = 0.0;
    for (int64_t i = 0; i < r->d; i++) {
        const float s = value(r, i);
        squares += (double)s * (double)s;
    }
    const float scale = 1.0f / sqrtf((float)(squares / (double)r->d) + r->eps);
    for (int64_t i = 0; i < r->d; i++) {
        const float s = value(r, i), z = r->gate ? r->gate[i] : 0.0f;
        float y = s * scale;
        if (r->weight) y *= r->weight[i];
        if (r->gate) y *= z / (1.0f + expf(-z));
        if (r->sum) r->sum[i] = s;
        r->out[i] = y;
    }
}

static void run(void *lane, const void *args)
{
    rms_norm_walk(lane, args, row);
}

const struct qrn_kernel qrn_cpu_rms_norm_generic = {
    .op = QRN_OP_rms_norm, .name = "cpu.rms_norm.generic", .run = run,
};
