/* SPDX-License-Identifier: MIT
 * ssm_conv_history with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"
#include "backends/cpu/ssm_conv_tokens.inc"

static void run(void *lane, const void *args)
{
    ssm_conv_history_walk(lane, args, &conv_steps);
}

const struct qrn_kernel qrn_cpu_ssm_conv_history_avx2 = {
    .op = QRN_OP_ssm_conv_history, .name = "cpu.ssm_conv_history.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = ssm_conv_history_scratch, .run = run,
};
