/* SPDX-License-Identifier: MIT
 * gdn_chunk_state with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"

enum { PRODUCT_WIDE = 4 };
#include "backends/cpu/gdn_stage_vectors.inc"

#include "backends/cpu/gdn_chunk_state.inc"

const struct qrn_kernel qrn_cpu_gdn_chunk_state_avx512 = {
    .op = QRN_OP_gdn_chunk_state,
    .name = "cpu.gdn_chunk_state.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = scratch,
    .run = run,
};
