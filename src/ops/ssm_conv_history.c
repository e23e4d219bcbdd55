/* SPDX-License-Identifier: MIT
 * ssm_conv_history: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_ssm_conv_history_args *a = args;
    const char *op = "ssm_conv_history";
    int64_t n_seqs;
    QRN_TRY(gdn_check_f32(op, "x", &a->x, err));
    QRN_TRY(gdn_check_f32(op, "weight", &a->weight, err));
    QRN_TRY(gdn_check_f32(op, "out", &a->out, err));
    QRN_TRY(qrn_check_shape(op, "x", &a->x, err, 2, (int64_t)-1, (int64_t)-1));
    QRN_TRY(gdn_check_not_empty(op, "x", &a->x, 1, err));
    QRN_TRY(qrn_check_shape(op, "weight", &a->weight, err, 2, a->x.shape[1], (int64_t)-1));
    const int64_t K = a->weight.shape[1];
    if (K < 2)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: weight.shape[1] is %" PRId64 ", wants 2 or more",
                        op, K);
    QRN_TRY(qrn_check_same_shape(op, "out", &a->out, "x", &a->x, err));
    QRN_TRY(gdn_check_ragged(op, &a->seq_begin, &n_seqs, err));
    QRN_TRY(qrn_check_dtype(op, "position", &a->position, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(op, "position", &a->position, err, 1, n_seqs));
    QRN_TRY(qrn_check_dtype(op, "history", &a->history, err, 1, QRN_ADDRESS));
    QRN_TRY(qrn_check_shape(op, "history", &a->history, err, 1, n_seqs));
    if (a->n_history < K - 1)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: n_history is %" PRId64 ", wants %" PRId64 " or more", op, a->n_history,
                        K - 1);
    if (a->history_offset % sizeof(float))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: history_offset is %zu, wants a multiple of 4",
                        op, a->history_offset);
    return QRN_OK;
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_ssm_conv_history_args *a = args;
    const char *op = "ssm_conv_history";
    QRN_TRY(gdn_check_ragged_data(op, &a->seq_begin, a->x.shape[0], err));
    QRN_TRY(gdn_check_position_data(op, &a->position, &a->seq_begin, err));
    const int32_t *begin = a->seq_begin.data;
    for (int64_t s = 0; s < a->history.shape[0]; s++) {
        const uint64_t address = gdn_address(&a->history, s, 0);
        if (begin[s + 1] > begin[s] && (address == 0 || address % sizeof(float)))
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "%s: history[%" PRId64 "] is %#" PRIx64
                            ", wants a multiple of 4, not 0",
                            op, s, address);
    }
    return QRN_OK;
}

/* The history is only read. */
static void reference(const void *args)
{
    const struct qrn_ssm_conv_history_args *a = args;
    const int64_t C = a->x.shape[1], K = a->weight.shape[1], n_seqs = a->position.shape[0];
    const int32_t *begin = a->seq_begin.data, *position = a->position.data;
    for (int64_t s = 0; s < n_seqs; s++) {
        const float *ring =
            (const float *)(uintptr_t)(gdn_address(&a->history, s, 0) + a->history_offset);
        for (int64_t t = begin[s]; t < begin[s + 1]; t++)
            for (int64_t c = 0; c < C; c++) {
                double sum = 0.0;
                for (int64_t k = 0; k < K; k++) {
                    const int64_t row = t + k - (K - 1), p = position[s] + row - begin[s];
                    double x = 0.0;
                    if (row >= begin[s])
                        x = qrn_ref_get(&a->x, row, c, 0, 0);
                    else if (p >= 0)
                        x = (double)ring[p % a->n_history * C + c];
                    sum += qrn_ref_get(&a->weight, c, k, 0, 0) * x;
                }
                qrn_ref_set(&a->out, t, c, 0, 0, sum / (1.0 + exp(-sum)));
            }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_ssm_conv_history_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->x), K = (double)a->weight.shape[1];
    *n_flops = n * (2 * K + 4);
    *n_bytes = 4 * (3 * n + (double)a->x.shape[1] * (K + (K - 1) * (double)a->position.shape[0]));
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(ssm_conv_history, x, QRN_READS),
    QRN_OPERAND(ssm_conv_history, weight, QRN_READS),
    QRN_OPERAND(ssm_conv_history, seq_begin, QRN_READS),
    QRN_OPERAND(ssm_conv_history, position, QRN_READS),
    QRN_OPERAND(ssm_conv_history, history, QRN_READS),
    QRN_OPERAND(ssm_conv_history, out, QRN_WRITES),
};

const struct qrn_op qrn_op_ssm_conv_history = {
    .name = "ssm_conv_history",
    .args_bytes = sizeof(struct qrn_ssm_conv_history_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
