/* SPDX-License-Identifier: MIT
 * attention_paged with AVX-512. */
#include "backends/cpu/attention_paged_walk.h"
#include "backends/cpu/avx512/attention_panel_avx512.h"

static void run(void *lane, const void *args)
{
    attention_paged_walk(lane, args, &attention_vectors);
}

const struct qrn_kernel qrn_cpu_attention_paged_avx512 = {
    .op = QRN_OP_attention_paged,
    .name = "cpu.attention_paged.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = attention_paged_scratch_bytes,
    .run = run,
};
