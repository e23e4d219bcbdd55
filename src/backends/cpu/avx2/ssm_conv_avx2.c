/* SPDX-License-Identifier: MIT
 * ssm_conv with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"
#include "backends/cpu/ssm_conv_tokens.inc"

static void tokens_bf16(const struct conv_block *b)
{
    conv_tokens_of(b, true);
}

static void run(void *lane, const void *args)
{
    const struct qrn_ssm_conv_args *a = args;
    ssm_conv_walk(lane, a, a->x.dtype == QRN_BF16 ? tokens_bf16 : tokens_f32);
}

const struct qrn_kernel qrn_cpu_ssm_conv_avx2 = {
    .op = QRN_OP_ssm_conv, .name = "cpu.ssm_conv.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = ssm_conv_scratch, .run = run,
};
