/* SPDX-License-Identifier: MIT
 * gdn_kkt in portable C. */
#include "backends/cpu/generic/gdn_stage_scalar.h"

#include "backends/cpu/gdn_kkt.inc"

const struct qrn_kernel qrn_cpu_gdn_kkt_generic = {
    .op = QRN_OP_gdn_kkt,
    .name = "cpu.gdn_kkt.generic",
    .scratch_bytes = scratch,
    .run = run,
};
