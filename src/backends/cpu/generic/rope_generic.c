/* SPDX-License-Identifier: MIT
 * rope in portable C. */
#include "backends/cpu/generic/rope_scalar.h"

static void run(void *lane, const void *args)
{
    rope_walk(lane, args, &rope_steps);
}

const struct qrn_kernel qrn_cpu_rope_generic = {
    .op = QRN_OP_rope,
    .name = "cpu.rope.generic",
    .scratch_bytes = rope_scratch,
    .run = run,
};
