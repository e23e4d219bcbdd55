/* SPDX-License-Identifier: MIT
 * gdn_open_chunk with AVX-512: six tokens, their keys and queries, by 32 columns in registers. */
#include "backends/cpu/avx512/gdn_vec_avx512.h"

enum { MOST = 6, WIDE = 2, WIDE_ONE = 8 };

#include "backends/cpu/gdn_open_chunk_tiles.inc"

static void run(void *lane, const void *args)
{
    static const struct gdn_open_steps steps = {pack, dots, decays, tokens, edge, WIDE_ONE * LANES};
    gdn_open_chunk_walk(lane, args, &steps);
}

const struct qrn_kernel qrn_cpu_gdn_open_chunk_avx512 = {
    .op = QRN_OP_gdn_open_chunk, .name = "cpu.gdn_open_chunk.avx512", .needs = QRN_CPU_AVX512,
    .serves = "f32 tensors", .supports = gdn_open_chunk_takes,
    .scratch_bytes = gdn_open_chunk_scratch, .run = run,
};
