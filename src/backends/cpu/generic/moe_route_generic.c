/* SPDX-License-Identifier: MIT
 * moe_route in portable C. */
#include "backends/cpu/moe_route_walk.h"

static float largest(const float *x, int64_t n)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float exps(const float *x, float most, float *p, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        p[i] = expf(x[i] - most);
        sum += p[i];
    }
    return sum;
}

static void run(void *lane, const void *args)
{
    moe_route_walk(lane, args, (struct moe_route_steps){largest, exps, NULL});
}

const struct qrn_kernel qrn_cpu_moe_route_generic = {
    .op = QRN_OP_moe_route, .name = "cpu.moe_route.generic",
    .scratch_bytes = moe_route_scratch, .run = run,
};
