/* SPDX-License-Identifier: MIT
 * gdn_gates with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"
#include "backends/cpu/gdn_gates.inc"

const struct qrn_kernel qrn_cpu_gdn_gates_avx512 = {
    .op = QRN_OP_gdn_gates, .name = "cpu.gdn_gates.avx512", .needs = QRN_CPU_AVX512,
    .run = run,
};
