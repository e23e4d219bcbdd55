/* SPDX-License-Identifier: MIT
 * embedding from packed weights: a row's bytes lie 16 rows apart, which costs a few microseconds a
 * token and saves a second copy of the largest matrix. */
#include "backends/cpu/cpu.h"
#include "backends/cpu/matmul_image_row.h"

static bool supports(const void *args)
{
    const struct qrn_embedding_args *a = args;
    return a->layout == QRN_LAYOUT_PACKED && image_exists(a->table.dtype) &&
           image_mlx_group(&a->table) > 0;
}

static void run(void *lane, const void *args)
{
    const struct qrn_embedding_args *a = args;
    const int64_t group = image_mlx_group(&a->table);
    int64_t begin, end;
    qrn_cpu_share(lane, a->ids.shape[0], 1, &begin, &end);
    for (int64_t t = begin; t < end && a->table.shape[1]; t++)
        qrn_image_read_row(&a->table, group, ((const int32_t *)a->ids.data)[t],
                           (float *)a->out.data + t * a->out.stride[0]);
}

const struct qrn_kernel qrn_cpu_embedding_interleaved = {
    .op = QRN_OP_embedding,
    .name = "cpu.embedding.interleaved",
    .serves = "packed tables",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .supports = supports,
    .run = run,
};
