/* SPDX-License-Identifier: MIT
 * gdn_open_chunk with AVX2: three tokens, their keys and queries, by 16 columns in registers. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"

enum { MOST = 3, WIDE = 2, WIDE_ONE = 4 };

#include "backends/cpu/gdn_open_chunk_tiles.inc"

static void run(void *lane, const void *args)
{
    static const struct gdn_open_steps steps = {pack, dots, decays, tokens, edge, WIDE_ONE * LANES};
    gdn_open_chunk_walk(lane, args, &steps);
}

const struct qrn_kernel qrn_cpu_gdn_open_chunk_avx2 = {
    .op = QRN_OP_gdn_open_chunk, .name = "cpu.gdn_open_chunk.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .serves = "f32 tensors", .supports = gdn_open_chunk_takes,
    .scratch_bytes = gdn_open_chunk_scratch, .run = run,
};
