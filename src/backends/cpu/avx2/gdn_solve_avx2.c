/* SPDX-License-Identifier: MIT
 * gdn_solve with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"

enum { PRODUCT_WIDE = 2 };
#include "backends/cpu/gdn_stage_vectors.inc"

#include "backends/cpu/gdn_solve.inc"

const struct qrn_kernel qrn_cpu_gdn_solve_avx2 = {
    .op = QRN_OP_gdn_solve,
    .name = "cpu.gdn_solve.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = scratch,
    .run = run,
};
