/* SPDX-License-Identifier: MIT
 * argmax and top_k: checks and references. */
#include "core/op.h"

#include <inttypes.h>
#include "ops/ranking.h"

static enum qrn_status check_rows(const char *op, const struct qrn_tensor *x,
                                  const struct qrn_tensor *ids, const struct qrn_tensor *values,
                                  struct qrn_error *err)
{
    QRN_TRY(qrn_check_dtype(op, "x", x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_dtype(op, "ids", ids, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(op, "x", x, err, 2, (int64_t)-1, (int64_t)-1));
    if (x->shape[1] < 1 || x->shape[1] > INT32_MAX)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: x.shape[1] is %" PRId64 ", wants 1 to %" PRId32,
                        op, x->shape[1], INT32_MAX);
    if (!qrn_tensor_present(values)) return QRN_OK;
    QRN_TRY(qrn_check_dtype(op, "values", values, err, 1, QRN_F32));
    return qrn_check_same_shape(op, "values", values, "ids", ids, err);
}

static enum qrn_status argmax_check(const void *args, struct qrn_error *err)
{
    const struct qrn_argmax_args *a = args;
    QRN_TRY(check_rows("argmax", &a->x, &a->ids, &a->values, err));
    return qrn_check_shape("argmax", "ids", &a->ids, err, 1, a->x.shape[0]);
}

static void argmax_reference(const void *args)
{
    const struct qrn_argmax_args *a = args;
    for (int64_t r = 0; r < a->x.shape[0]; r++) {
        int64_t best = 0;
        for (int64_t i = 1; i < a->x.shape[1]; i++)
            if (qrn_ref_before(&a->x, r, i, best)) best = i;
        qrn_ref_set(&a->ids, r, 0, 0, 0, (double)best);
        if (a->values.n_dims)
            qrn_ref_set(&a->values, r, 0, 0, 0, qrn_ref_get(&a->x, r, best, 0, 0));
    }
}

static void argmax_cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_argmax_args *a = args;
    *n_flops = (double)qrn_tensor_n_elements(&a->x);
    *n_bytes = 4.0 * (double)qrn_tensor_n_elements(&a->x);
}

static const struct qrn_operand argmax_operands[] = {
    QRN_OPERAND(argmax, x, QRN_READS),
    QRN_OPERAND(argmax, ids, QRN_WRITES),
    QRN_OPERAND(argmax, values, QRN_WRITES | QRN_OPTIONAL),
};

const struct qrn_op qrn_op_argmax = {
    .name = "argmax",
    .args_bytes = sizeof(struct qrn_argmax_args),
    .operands = argmax_operands,
    .n_operands = sizeof argmax_operands / sizeof *argmax_operands,
    .check = argmax_check,
    .reference = argmax_reference,
    .cost = argmax_cost,
};

static enum qrn_status top_k_check(const void *args, struct qrn_error *err)
{
    const struct qrn_top_k_args *a = args;
    QRN_TRY(check_rows("top_k", &a->x, &a->ids, &a->values, err));
    QRN_TRY(qrn_check_shape("top_k", "ids", &a->ids, err, 2, a->x.shape[0], (int64_t)-1));
    if (a->ids.shape[1] < 1 || a->ids.shape[1] > a->x.shape[1])
        return qrn_fail(err, QRN_ERR_SHAPE, "top_k: ids.shape[1] is %" PRId64
                        ", wants 1 to %" PRId64 " (elements of a row)",
                        a->ids.shape[1], a->x.shape[1]);
    return QRN_OK;
}

static void top_k_reference(const void *args)
{
    const struct qrn_top_k_args *a = args;
    for (int64_t r = 0; r < a->x.shape[0]; r++)
        for (int64_t k = 0, last = -1; k < a->ids.shape[1]; k++) {
            int64_t best = -1;
            for (int64_t i = 0; i < a->x.shape[1]; i++)
                if ((k == 0 || qrn_ref_before(&a->x, r, last, i)) &&
                    (best < 0 || qrn_ref_before(&a->x, r, i, best)))
                    best = i;
            last = best;
            qrn_ref_set(&a->ids, r, k, 0, 0, (double)best);
            if (a->values.n_dims)
                qrn_ref_set(&a->values, r, k, 0, 0, qrn_ref_get(&a->x, r, best, 0, 0));
        }
}

static void top_k_cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_top_k_args *a = args;
    *n_flops = (double)qrn_tensor_n_elements(&a->x);
    *n_bytes = 4.0 * (double)qrn_tensor_n_elements(&a->x) +
               4.0 * (double)qrn_tensor_n_elements(&a->ids);
}

static const struct qrn_operand top_k_operands[] = {
    QRN_OPERAND(top_k, x, QRN_READS),
    QRN_OPERAND(top_k, ids, QRN_WRITES),
    QRN_OPERAND(top_k, values, QRN_WRITES | QRN_OPTIONAL),
};

const struct qrn_op qrn_op_top_k = {
    .name = "top_k",
    .args_bytes = sizeof(struct qrn_top_k_args),
    .operands = top_k_operands,
    .n_operands = sizeof top_k_operands / sizeof *top_k_operands,
    .check = top_k_check,
    .reference = top_k_reference,
    .cost = top_k_cost,
};
