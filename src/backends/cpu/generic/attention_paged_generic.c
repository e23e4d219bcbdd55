/* SPDX-License-Identifier: MIT
 * attention_paged in portable C. */
#include "backends/cpu/attention_paged_walk.h"
#include "backends/cpu/generic/attention_panel_generic.h"

static void run(void *lane, const void *args)
{
    attention_paged_walk(lane, args, &attention_generic);
}

const struct qrn_kernel qrn_cpu_attention_paged_generic = {
    .op = QRN_OP_attention_paged,
    .name = "cpu.attention_paged.generic",
    .scratch_bytes = attention_paged_scratch_bytes,
    .run = run,
};
