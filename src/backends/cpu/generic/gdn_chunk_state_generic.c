/* SPDX-License-Identifier: MIT
 * gdn_chunk_state in portable C. */
#include "backends/cpu/generic/gdn_stage_scalar.h"

#include "backends/cpu/gdn_chunk_state.inc"

const struct qrn_kernel qrn_cpu_gdn_chunk_state_generic = {
    .op = QRN_OP_gdn_chunk_state,
    .name = "cpu.gdn_chunk_state.generic",
    .scratch_bytes = scratch,
    .run = run,
};
