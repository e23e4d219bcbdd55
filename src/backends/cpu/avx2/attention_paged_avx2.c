/* SPDX-License-Identifier: MIT
 * attention_paged with AVX2. */
#include "backends/cpu/attention_paged_walk.h"
#include "backends/cpu/avx2/attention_panel_avx2.h"

static void run(void *lane, const void *args)
{
    attention_paged_walk(lane, args, &attention_vectors);
}

const struct qrn_kernel qrn_cpu_attention_paged_avx2 = {
    .op = QRN_OP_attention_paged,
    .name = "cpu.attention_paged.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = attention_paged_scratch_bytes,
    .run = run,
};
