/* SPDX-License-Identifier: MIT
 * attention over plain buffers in portable C. */
#include "backends/cpu/attention_walk.h"
#include "backends/cpu/generic/attention_panel_generic.h"

static void run(void *lane, const void *args)
{
    attention_walk(lane, args, &attention_generic);
}

const struct qrn_kernel qrn_cpu_attention_generic = {
    .op = QRN_OP_attention,
    .name = "cpu.attention.generic",
    .scratch_bytes = attention_scratch_bytes,
    .run = run,
};
