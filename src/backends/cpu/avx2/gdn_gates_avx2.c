/* SPDX-License-Identifier: MIT
 * gdn_gates with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"
#include "backends/cpu/gdn_gates.inc"

const struct qrn_kernel qrn_cpu_gdn_gates_avx2 = {
    .op = QRN_OP_gdn_gates, .name = "cpu.gdn_gates.avx2", .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = run,
};
