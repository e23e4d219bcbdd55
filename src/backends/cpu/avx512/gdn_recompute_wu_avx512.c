/* SPDX-License-Identifier: MIT
 * gdn_recompute_wu with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"

enum { PRODUCT_WIDE = 4 };
#include "backends/cpu/gdn_stage_vectors.inc"

#include "backends/cpu/gdn_recompute_wu.inc"

const struct qrn_kernel qrn_cpu_gdn_recompute_wu_avx512 = {
    .op = QRN_OP_gdn_recompute_wu,
    .name = "cpu.gdn_recompute_wu.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = scratch,
    .run = run,
};
