/* SPDX-License-Identifier: MIT
 * argmax and top_k in portable C. */
#include "backends/cpu/cpu.h"
#include "backends/cpu/ranking.h"
#include "backends/cpu/rows.h"

static void argmax_run(void *lane, const void *args)
{
    const struct qrn_argmax_args *a = args;
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0], 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        const int64_t at = largest_at(x, a->x.shape[1]);
        ((int32_t *)a->ids.data)[r] = (int32_t)at;
        if (a->values.n_dims) ((float *)a->values.data)[r] = x[at];
    }
}

const struct qrn_kernel qrn_cpu_argmax_generic = {
    .op = QRN_OP_argmax, .name = "cpu.argmax.generic", .run = argmax_run,
};

static void top_k_run(void *lane, const void *args)
{
    const struct qrn_top_k_args *a = args;
    const int64_t k = a->ids.shape[1];
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0], 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        int32_t *ids = (int32_t *)a->ids.data + qrn_row_at(&a->ids, r);
        float *values = qrn_row_f32(&a->values, r);
        first_in_rank(x, a->x.shape[1], k, ids);
        for (int64_t i = 0; values && i < k; i++) values[i] = x[ids[i]];
    }
}

const struct qrn_kernel qrn_cpu_top_k_generic = {
    .op = QRN_OP_top_k, .name = "cpu.top_k.generic", .run = top_k_run,
};
