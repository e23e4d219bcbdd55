/* SPDX-License-Identifier: MIT
 * gdn_cumsum in portable C. */
#include "backends/cpu/gdn_cumsum.inc"

const struct qrn_kernel qrn_cpu_gdn_cumsum_generic = {
    .op = QRN_OP_gdn_cumsum,
    .name = "cpu.gdn_cumsum.generic",
    .run = run,
};
