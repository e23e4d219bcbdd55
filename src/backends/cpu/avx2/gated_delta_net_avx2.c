/* SPDX-License-Identifier: MIT
 * gated_delta_net with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"
#include "backends/cpu/gated_delta_net_rows.inc"

static void run(void *lane, const void *args)
{
    gated_delta_net_walk(lane, args, rows);
}

const struct qrn_kernel qrn_cpu_gated_delta_net_avx2 = {
    .op = QRN_OP_gated_delta_net, .name = "cpu.gated_delta_net.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C, .run = run,
};
