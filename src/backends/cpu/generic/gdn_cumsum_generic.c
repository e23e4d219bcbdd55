/* SPDX-License-Identifier: MIT
 * gdn_cumsum in portable C. */
#include "backends/cpu/gdn_stage.h"

static void work(const void *args, int64_t i_chunk, struct gdn_chunk c, int64_t h, float *scratch)
{
    const struct qrn_gdn_cumsum_args *a = args;
    double sum = 0.0;
    (void)i_chunk, (void)scratch;
    for (int64_t t = c.begin; t < c.begin + c.n; t++) {
        const int64_t at = t * a->G.stride[0] + h;
        sum += (double)stage_f32(&a->g, t, h);
        if (a->G.dtype == QRN_F64)
            ((double *)a->G.data)[at] = sum;
        else
            ((float *)a->G.data)[at] = (float)sum;
    }
}

static void run(void *lane, const void *args)
{
    const struct qrn_gdn_cumsum_args *a = args;
    stage_walk(lane, a, &a->seq_begin, a->g.shape[0], a->g.shape[1], 0, work);
}

const struct qrn_kernel qrn_cpu_gdn_cumsum_generic = {
    .op = QRN_OP_gdn_cumsum, .name = "cpu.gdn_cumsum.generic", .run = run,
};
