/* SPDX-License-Identifier: MIT
 * ssm_conv in portable C. */
#include "backends/cpu/generic/ssm_conv_tokens.h"

static void tokens_f32(const struct conv_block *b)
{
    conv_tokens_of(b, false);
}

static void tokens_bf16(const struct conv_block *b)
{
    conv_tokens_of(b, true);
}

static void run(void *lane, const void *args)
{
    const struct qrn_ssm_conv_args *a = args;
    ssm_conv_walk(lane, a, a->x.dtype == QRN_BF16 ? tokens_bf16 : tokens_f32);
}

const struct qrn_kernel qrn_cpu_ssm_conv_generic = {
    .op = QRN_OP_ssm_conv,
    .name = "cpu.ssm_conv.generic",
    .scratch_bytes = ssm_conv_scratch,
    .run = run,
};
