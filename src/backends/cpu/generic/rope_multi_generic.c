/* SPDX-License-Identifier: MIT
 * rope_multi in portable C. */
#include "backends/cpu/generic/rope_scalar.h"

static void run(void *lane, const void *args)
{
    rope_multi_walk(lane, args, &rope_steps);
}

const struct qrn_kernel qrn_cpu_rope_multi_generic = {
    .op = QRN_OP_rope_multi,
    .name = "cpu.rope_multi.generic",
    .scratch_bytes = rope_multi_scratch,
    .run = run,
};
