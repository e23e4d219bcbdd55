/* SPDX-License-Identifier: MIT
 * matmul_pack in portable C: what the vector kernels must equal. */
#include "backends/cpu/matmul_pack_walk.h"

static void write_group(const struct qrn_weight_row *rows, int n_rows, int64_t k, uint8_t *out)
{
    qrn_image_write(rows, n_rows, 0, k, out);
}

static void run(void *lane, const void *args)
{
    pack_walk(lane, args, write_group);
}

const struct qrn_kernel qrn_cpu_matmul_pack_interleaved = {
    .op = QRN_OP_matmul_pack,
    .name = "cpu.matmul_pack.interleaved",
    .serves = "all that has a packed form",
#if defined(QRN_ISA_aarch64)
    .needs = QRN_CPU_NEON,
#else
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
#endif
    .supports = pack_supports,
    .run = run,
    .output_bytes = pack_output_bytes,
};
