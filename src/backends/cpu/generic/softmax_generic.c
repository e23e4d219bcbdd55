/* SPDX-License-Identifier: MIT
 * softmax in portable C. */
#include <math.h>

#include "backends/cpu/softmax_walk.h"
#include "base/half.h"

static float score(const struct softmax_row *r, int64_t i)
{
    const float s = r->x[i] * r->scale;
    if (!r->mask) return s;
    if (r->mask_type == QRN_F32) return s + ((const float *)r->mask)[i];
    const uint16_t half = ((const uint16_t *)r->mask)[i];
    return s + (r->mask_type == QRN_F16 ? qrn_f16_to_float(half) : qrn_bf16_to_float(half));
}

static void row(const struct softmax_row *r)
{
    float m = -INFINITY;
    double sum = 0.0;
    for (int64_t i = 0; i < r->n; i++) {
        const float s = score(r, i);
        m = s > m || s != s ? s : m;
    }
    for (int64_t i = 0; i < r->n; i++) {
        const float p = m == -INFINITY ? 0.0f : expf(score(r, i) - m);
        r->out[i] = p;
        sum += (double)p;
    }
    const float total = (float)sum;
    for (int64_t i = 0; i < r->n && total != 0.0f; i++) r->out[i] /= total;
}

static void run(void *lane, const void *args)
{
    softmax_walk(lane, args, row);
}

const struct qrn_kernel qrn_cpu_softmax_generic = {
    .op = QRN_OP_softmax,
    .name = "cpu.softmax.generic",
    .run = run,
};
