/* SPDX-License-Identifier: MIT
 * matmul_id: checks and reference. */
#include "ops/matmul_common.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_matmul_id_args *a = args;
    QRN_TRY(
        qrn_check_shape("matmul_id", "w", &a->w, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_weight("matmul_id", "w", &a->w, &a->scales, &a->biases, a->layout, err));
    QRN_TRY(qrn_check_dtype("matmul_id", "ids", &a->ids, err, 1, QRN_I32));
    QRN_TRY(qrn_check_dtype("matmul_id", "out", &a->out, err, 1, QRN_F32));
    const int64_t n = a->w.shape[1], k = a->w.shape[2];
    QRN_TRY(qrn_check_shape("matmul_id", "x", &a->x, err, 3, (int64_t)-1, (int64_t)-1, k));
    const int64_t n_tokens = a->x.shape[0], n_x = a->x.shape[1];
    QRN_TRY(qrn_check_shape("matmul_id", "ids", &a->ids, err, 2, n_tokens, (int64_t)-1));
    const int64_t top_k = a->ids.shape[1];
    if (n_x != 1 && n_x != top_k)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "matmul_id: x.shape[1] is %" PRId64 ", wants 1 or %" PRId64
                        " (top_k of ids)",
                        n_x, top_k);
    if (qrn_tensor_n_elements(&a->ids) > INT32_MAX)
        return qrn_fail(err, QRN_ERR_SHAPE, "matmul_id: ids has %" PRId64 " elements, at most %d",
                        qrn_tensor_n_elements(&a->ids), INT32_MAX);
    QRN_TRY(qrn_check_activation("matmul_id", a->activation, k, err));
    QRN_TRY(qrn_check_x("matmul_id", &a->x, &a->w, a->activation, a->layout, err));
    return qrn_check_shape("matmul_id", "out", &a->out, err, 3, n_tokens, top_k, n);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_matmul_id_args *a = args;
    return qrn_check_ids("matmul_id", &a->ids, a->w.shape[0], err);
}

static void reference(const void *args)
{
    const struct qrn_matmul_id_args *a = args;
    const int64_t n = a->w.shape[1], k = a->w.shape[2], n_x = a->x.shape[1],
                  top_k = a->ids.shape[1];
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t j = 0; j < top_k; j++) {
            const int64_t expert = (int64_t)qrn_ref_get(&a->ids, t, j, 0, 0);
            const int64_t at = t * a->x.stride[0] + (n_x > 1 ? j : 0) * a->x.stride[1];
            for (int64_t i = 0; i < n; i++) {
                const struct qrn_weight_row row =
                    qrn_weight_row(&a->w, &a->scales, &a->biases, 0, expert, i);
                qrn_ref_set(&a->out, t, j, i, 0, qrn_ref_dot(&row, &a->x, at, k, a->activation));
            }
        }
}

/* As if every slot had an expert of its own, up to all experts. */
static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_matmul_id_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->w.dtype);
    const double out = (double)qrn_tensor_n_elements(&a->out),
                 n_slots = (double)qrn_tensor_n_elements(&a->ids);
    const double n_matrices = n_slots < (double)a->w.shape[0] ? n_slots : (double)a->w.shape[0];
    *n_flops = 2.0 * out * (double)a->w.shape[2];
    *n_bytes = 4.0 * (out + (double)qrn_tensor_n_elements(&a->x)) +
               n_matrices * (double)a->w.shape[1] * (double)a->w.shape[2] * type->block_bytes /
                   type->block_elements;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(matmul_id, w, QRN_READS),
    QRN_OPERAND(matmul_id, scales, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(matmul_id, biases, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(matmul_id, x, QRN_READS),
    QRN_OPERAND(matmul_id, ids, QRN_READS),
    QRN_OPERAND(matmul_id, out, QRN_WRITES),
};

const struct qrn_op qrn_op_matmul_id = {
    .name = "matmul_id",
    .args_bytes = sizeof(struct qrn_matmul_id_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
