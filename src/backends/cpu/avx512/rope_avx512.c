/* SPDX-License-Identifier: MIT
 * rope with AVX-512. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"
#include "backends/cpu/rope_vectors.inc"

static void run(void *lane, const void *args)
{
    rope_walk(lane, args, &rope_steps);
}

const struct qrn_kernel qrn_cpu_rope_avx512 = {
    .op = QRN_OP_rope,
    .name = "cpu.rope.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = rope_scratch,
    .run = run,
};
