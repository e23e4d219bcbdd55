/* SPDX-License-Identifier: MIT
 * gdn_chunk_out with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"

enum { PRODUCT_WIDE = 2 };
#include "backends/cpu/gdn_stage_vectors.inc"

#include "backends/cpu/gdn_chunk_out.inc"

const struct qrn_kernel qrn_cpu_gdn_chunk_out_avx2 = {
    .op = QRN_OP_gdn_chunk_out,
    .name = "cpu.gdn_chunk_out.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = scratch,
    .run = run,
};
