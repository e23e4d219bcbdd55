/* SPDX-License-Identifier: MIT
 * embedding: checks and reference. */
#include "ops/matmul_common.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_embedding_args *a = args;
    QRN_TRY(qrn_check_shape("embedding", "table", &a->table, err, 2, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_weight("embedding", "table", &a->table, &a->scales, &a->biases, a->layout,
                             err));
    QRN_TRY(qrn_check_dtype("embedding", "ids", &a->ids, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape("embedding", "ids", &a->ids, err, 1, (int64_t)-1));
    QRN_TRY(qrn_check_dtype("embedding", "out", &a->out, err, 1, QRN_F32));
    return qrn_check_shape("embedding", "out", &a->out, err, 2, a->ids.shape[0], a->table.shape[1]);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_embedding_args *a = args;
    return qrn_check_ids("embedding", &a->ids, a->table.shape[0], err);
}

static void reference(const void *args)
{
    const struct qrn_embedding_args *a = args;
    const int64_t d = a->table.shape[1];
    for (int64_t t = 0; t < a->ids.shape[0]; t++) {
        const int64_t id = ((const int32_t *)a->ids.data)[t];
        const struct qrn_weight_row row =
            qrn_weight_row(&a->table, &a->scales, &a->biases, 0, 0, id);
        for (int64_t i = 0; i < d; i += 256) {
            float values[256];
            const int64_t n = d - i < 256 ? d - i : 256;
            qrn_weight_decode(&row, i, n, values);
            for (int64_t j = 0; j < n; j++) qrn_ref_set(&a->out, t, i + j, 0, 0, (double)values[j]);
        }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_embedding_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->table.dtype);
    const double n = (double)a->ids.shape[0] * (double)a->table.shape[1];
    *n_flops = 0;
    *n_bytes = n * (4.0 + (double)type->block_bytes / type->block_elements);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(embedding, table, QRN_READS),
    QRN_OPERAND(embedding, scales, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(embedding, biases, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(embedding, ids, QRN_READS),
    QRN_OPERAND(embedding, out, QRN_WRITES),
};

const struct qrn_op qrn_op_embedding = {
    .name = "embedding",
    .args_bytes = sizeof(struct qrn_embedding_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
