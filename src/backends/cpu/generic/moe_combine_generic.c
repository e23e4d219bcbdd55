/* SPDX-License-Identifier: MIT
 * moe_combine in portable C. */
#include <math.h>

#include "backends/cpu/moe_combine_walk.h"

static void part(const struct moe_combine_part *p)
{
    const float factor = p->gate ? 1.0f / (1.0f + expf(-*p->gate)) : 1.0f;
    for (int64_t i = 0; i < p->n; i++) {
        float y = 0.0f;
        for (int64_t k = 0; k < p->top_k; k++) y += p->weights[k] * p->experts[k * p->stride + i];
        if (p->shared) y += factor * p->shared[i];
        p->out[i] = y;
    }
}

static void run(void *lane, const void *args)
{
    moe_combine_walk(lane, args, part);
}

const struct qrn_kernel qrn_cpu_moe_combine_generic = {
    .op = QRN_OP_moe_combine, .name = "cpu.moe_combine.generic", .run = run,
};
