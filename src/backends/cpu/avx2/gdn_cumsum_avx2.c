/* SPDX-License-Identifier: MIT
 * gdn_cumsum with AVX2. */
#include "backends/cpu/gdn_cumsum.inc"

const struct qrn_kernel qrn_cpu_gdn_cumsum_avx2 = {
    .op = QRN_OP_gdn_cumsum,
    .name = "cpu.gdn_cumsum.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = run,
};
