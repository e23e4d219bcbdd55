/* SPDX-License-Identifier: MIT
 * embedding in portable C: each row is decoded straight into its place. */
#include "backends/cpu/cpu.h"
#include "ops/matmul_common.h"

static bool supports(const void *args)
{
    return ((const struct qrn_embedding_args *)args)->layout == QRN_LAYOUT_ROWS;
}

static void run(void *lane, const void *args)
{
    const struct qrn_embedding_args *a = args;
    const int64_t d = a->table.shape[1];
    int64_t begin, end;
    qrn_cpu_share(lane, a->ids.shape[0], 1, &begin, &end);
    for (int64_t t = begin; t < end && d; t++) {
        const int64_t id = ((const int32_t *)a->ids.data)[t];
        const struct qrn_weight_row row =
            qrn_weight_row(&a->table, &a->scales, &a->biases, 0, 0, id);
        qrn_weight_decode(&row, 0, d, (float *)a->out.data + t * a->out.stride[0]);
    }
}

const struct qrn_kernel qrn_cpu_embedding_generic = {
    .op = QRN_OP_embedding,
    .name = "cpu.embedding.generic",
    .serves = "tables in rows",
    .supports = supports,
    .run = run,
};
