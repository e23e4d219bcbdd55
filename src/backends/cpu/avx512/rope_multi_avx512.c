/* SPDX-License-Identifier: MIT
 * rope_multi with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"
#include "backends/cpu/rope_vectors.inc"

static void run(void *lane, const void *args)
{
    rope_multi_walk(lane, args, &rope_steps);
}

const struct qrn_kernel qrn_cpu_rope_multi_avx512 = {
    .op = QRN_OP_rope_multi,
    .name = "cpu.rope_multi.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = rope_multi_scratch,
    .run = run,
};
