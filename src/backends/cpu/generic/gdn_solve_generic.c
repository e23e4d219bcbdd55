/* SPDX-License-Identifier: MIT
 * gdn_solve in portable C. */
#include "backends/cpu/generic/gdn_stage_scalar.h"

#include "backends/cpu/gdn_solve.inc"

const struct qrn_kernel qrn_cpu_gdn_solve_generic = {
    .op = QRN_OP_gdn_solve,
    .name = "cpu.gdn_solve.generic",
    .scratch_bytes = scratch,
    .run = run,
};
