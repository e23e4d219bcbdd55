/* SPDX-License-Identifier: MIT
 * attention over plain buffers with AVX-512. */
#include "backends/cpu/attention_walk.h"
#include "backends/cpu/avx512/attention_panel_avx512.h"

static void run(void *lane, const void *args)
{
    attention_walk(lane, args, &attention_vectors);
}

const struct qrn_kernel qrn_cpu_attention_avx512 = {
    .op = QRN_OP_attention,
    .name = "cpu.attention.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = attention_scratch_bytes,
    .run = run,
};
