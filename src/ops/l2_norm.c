/* SPDX-License-Identifier: MIT
 * l2_norm: checks and reference. */
#include "core/op.h"

#include <math.h>

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_l2_norm_args *a = args;
    QRN_TRY(qrn_check_dtype("l2_norm", "x", &a->x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_dtype("l2_norm", "out", &a->out, err, 1, QRN_F32));
    QRN_TRY(qrn_check_same_shape("l2_norm", "out", &a->out, "x", &a->x, err));
    if (a->x.shape[a->x.n_dims - 1] == 0)
        return qrn_fail(err, QRN_ERR_SHAPE, "l2_norm: rows of x have 0 elements, want 1 or more");
    if (!(a->eps >= 0.0f) || isinf(a->eps))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "l2_norm: eps is %g, wants 0 or more",
                        (double)a->eps);
    if (!isfinite(a->scale))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "l2_norm: scale is %g, wants a finite number",
                        (double)a->scale);
    return QRN_OK;
}

static void reference(const void *args)
{
    const struct qrn_l2_norm_args *a = args;
    const int64_t d = a->x.shape[a->x.n_dims - 1], n_rows = qrn_tensor_n_elements(&a->x) / d;
    for (int64_t r = 0; r < n_rows; r++) {
        double squares = 0.0;
        for (int64_t i = 0; i < d; i++) {
            const double x = qrn_ref_get_flat(&a->x, r * d + i);
            squares += x * x;
        }
        const double scale = a->scale != 0.0f ? (double)a->scale : 1.0;
        for (int64_t i = 0; i < d; i++)
            qrn_ref_set_flat(&a->out, r * d + i, scale * qrn_ref_get_flat(&a->x, r * d + i) /
                                                     sqrt(squares + (double)a->eps));
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_l2_norm_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->x);
    *n_flops = 3 * n;
    *n_bytes = 8 * n;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(l2_norm, x, QRN_READS),
    QRN_OPERAND(l2_norm, out, QRN_WRITES, "x"),
};

const struct qrn_op qrn_op_l2_norm = {
    .name = "l2_norm",
    .args_bytes = sizeof(struct qrn_l2_norm_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
