/* SPDX-License-Identifier: MIT
 * rope_multi with AVX2. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"
#include "backends/cpu/rope_vectors.inc"

static void run(void *lane, const void *args)
{
    rope_multi_walk(lane, args, &rope_steps);
}

const struct qrn_kernel qrn_cpu_rope_multi_avx2 = {
    .op = QRN_OP_rope_multi,
    .name = "cpu.rope_multi.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = rope_multi_scratch,
    .run = run,
};
