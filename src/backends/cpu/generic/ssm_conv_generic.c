/* SPDX-License-Identifier: MIT
 * ssm_conv in portable C. */
#include "backends/cpu/generic/ssm_conv_tokens.h"

static void run(void *lane, const void *args)
{
    ssm_conv_walk(lane, args, &conv_steps);
}

const struct qrn_kernel qrn_cpu_ssm_conv_generic = {
    .op = QRN_OP_ssm_conv,
    .name = "cpu.ssm_conv.generic",
    .scratch_bytes = ssm_conv_scratch,
    .run = run,
};
