/* SPDX-License-Identifier: MIT
 * rms_norm in portable C. */
#include "backends/cpu/generic/round_generic.h"
#include "backends/cpu/rms_norm_walk.h"

static float value(const struct rms_norm_row *r, int64_t i)
{
    return r->residual ? r->x[i] + r->residual[i] : r->x[i];
}

static double squares(const struct rms_norm_row *r)
{
    double sum = 0.0;
    for (int64_t i = 0; i < r->d; i++) {
        const float s = value(r, i);
        sum += (double)s * (double)s;
    }
    return sum;
}

static void part(const struct rms_norm_row *r, int64_t i, int64_t n, float *out)
{
    for (const int64_t end = i + n; i < end; i++, out++) {
        const float s = value(r, i), z = r->gate ? r->gate[i] : 0.0f;
        float y = s * r->scale;
        if (r->weight) y *= r->weight[i];
        if (r->gate) y *= z / (1.0f + expf(-z));
        if (r->sum) r->sum[i] = s;
        *out = y;
    }
}

static void run(void *lane, const void *args)
{
    rms_norm_walk(lane, args, (struct rms_norm_steps){squares, part, &rounding_generic});
}

const struct qrn_kernel qrn_cpu_rms_norm_generic = {
    .op = QRN_OP_rms_norm, .name = "cpu.rms_norm.generic", .run = run,
};
