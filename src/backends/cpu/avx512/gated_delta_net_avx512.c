/* SPDX-License-Identifier: MIT
 * gated_delta_net with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"
#include "backends/cpu/gated_delta_net_rows.inc"

static void run(void *lane, const void *args)
{
    gated_delta_net_walk(lane, args, rows);
}

const struct qrn_kernel qrn_cpu_gated_delta_net_avx512 = {
    .op = QRN_OP_gated_delta_net, .name = "cpu.gated_delta_net.avx512",
    .needs = QRN_CPU_AVX512, .run = run,
};
