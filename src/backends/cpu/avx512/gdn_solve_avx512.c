/* SPDX-License-Identifier: MIT
 * gdn_solve with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"

enum { PRODUCT_WIDE = 4 };
#include "backends/cpu/gdn_stage_vectors.inc"

#include "backends/cpu/gdn_solve.inc"

const struct qrn_kernel qrn_cpu_gdn_solve_avx512 = {
    .op = QRN_OP_gdn_solve,
    .name = "cpu.gdn_solve.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = scratch,
    .run = run,
};
