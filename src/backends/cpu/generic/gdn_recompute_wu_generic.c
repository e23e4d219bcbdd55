/* SPDX-License-Identifier: MIT
 * gdn_recompute_wu in portable C. */
#include "backends/cpu/generic/gdn_stage_scalar.h"

#include "backends/cpu/gdn_recompute_wu.inc"

const struct qrn_kernel qrn_cpu_gdn_recompute_wu_generic = {
    .op = QRN_OP_gdn_recompute_wu,
    .name = "cpu.gdn_recompute_wu.generic",
    .scratch_bytes = scratch,
    .run = run,
};
