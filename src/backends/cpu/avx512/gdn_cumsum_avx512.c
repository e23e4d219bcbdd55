/* SPDX-License-Identifier: MIT
 * gdn_cumsum with AVX-512. */
#include "backends/cpu/gdn_cumsum.inc"

const struct qrn_kernel qrn_cpu_gdn_cumsum_avx512 = {
    .op = QRN_OP_gdn_cumsum,
    .name = "cpu.gdn_cumsum.avx512",
    .needs = QRN_CPU_AVX512,
    .run = run,
};
