/* SPDX-License-Identifier: MIT
 * gdn_chunk_out in portable C. */
#include "backends/cpu/generic/gdn_stage_scalar.h"

#include "backends/cpu/gdn_chunk_out.inc"

const struct qrn_kernel qrn_cpu_gdn_chunk_out_generic = {
    .op = QRN_OP_gdn_chunk_out,
    .name = "cpu.gdn_chunk_out.generic",
    .scratch_bytes = scratch,
    .run = run,
};
