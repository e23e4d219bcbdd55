/* SPDX-License-Identifier: MIT
 * l2_norm in portable C. */
#include "backends/cpu/l2_norm_walk.h"

static double squares(const float *x, int64_t d)
{
    double sum = 0.0;
    for (int64_t i = 0; i < d; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void multiply(const float *x, float factor, float *out, int64_t d)
{
    for (int64_t i = 0; i < d; i++) out[i] = x[i] * factor;
}

static void run(void *lane, const void *args)
{
    l2_norm_walk(lane, args, (struct l2_norm_steps){squares, multiply});
}

const struct qrn_kernel qrn_cpu_l2_norm_generic = {
    .op = QRN_OP_l2_norm, .name = "cpu.l2_norm.generic", .run = run,
};
