/* SPDX-License-Identifier: MIT
 * attention_mask in portable C. */
#include <math.h>

#include "backends/cpu/cpu.h"
#include "base/half.h"
#include "ops/attention_row.h"

static void run(void *lane, const void *args)
{
    const struct qrn_attention_mask_args *a = args;
    const int64_t n_kv = a->out.shape[1];
    int64_t first, last;
    qrn_cpu_share(lane, a->out.shape[0], 1, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t begin, end;
        qrn_attention_range(a->q_offset + i, a->causal, a->window, n_kv, &begin, &end);
        for (int64_t j = 0; j < n_kv; j++) {
            const float value = j >= begin && j < end ? 0.0f : -INFINITY;
            if (a->out.dtype == QRN_F32)
                ((float *)a->out.data)[i * a->out.stride[0] + j] = value;
            else
                ((uint16_t *)a->out.data)[i * a->out.stride[0] + j] = qrn_float_to_bf16(value);
        }
    }
}

const struct qrn_kernel qrn_cpu_attention_mask_generic = {
    .op = QRN_OP_attention_mask,
    .name = "cpu.attention_mask.generic",
    .run = run,
};
