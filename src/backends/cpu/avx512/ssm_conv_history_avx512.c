/* SPDX-License-Identifier: MIT
 * ssm_conv_history with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"
#include "backends/cpu/ssm_conv_tokens.inc"

static void run(void *lane, const void *args)
{
    ssm_conv_history_walk(lane, args, &conv_steps);
}

const struct qrn_kernel qrn_cpu_ssm_conv_history_avx512 = {
    .op = QRN_OP_ssm_conv_history, .name = "cpu.ssm_conv_history.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = ssm_conv_history_scratch, .run = run,
};
