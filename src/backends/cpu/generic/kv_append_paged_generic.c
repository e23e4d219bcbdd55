/* SPDX-License-Identifier: MIT
 * kv_append_paged in portable C. */
#include "backends/cpu/kv_append_paged_walk.h"
#include "base/half.h"

static void round_to_half(const float *x, uint16_t *half, int64_t n)
{
    for (int64_t i = 0; i < n; i++) half[i] = qrn_float_to_f16(x[i]);
}

static void run(void *lane, const void *args)
{
    kv_append_paged_walk(lane, args, round_to_half);
}

const struct qrn_kernel qrn_cpu_kv_append_paged_generic = {
    .op = QRN_OP_kv_append_paged,
    .name = "cpu.kv_append_paged.generic",
    .run = run,
};
