/* SPDX-License-Identifier: MIT
 * rms_norm: checks and reference. */
#include "core/op.h"
#include "formats/q8_act.h"

#include <inttypes.h>
#include <math.h>

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_rms_norm_args *a = args;
    static const char *const names[] = {"x", "residual", "gate", "sum", "out"};
    const struct qrn_tensor *const all[] = {&a->x, &a->residual, &a->gate, &a->sum, &a->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!qrn_tensor_present(all[i])) continue;
        QRN_TRY(qrn_check_dtype("rms_norm", names[i], all[i], err, 1, QRN_F32));
        QRN_TRY(qrn_check_same_shape("rms_norm", names[i], all[i], "x", &a->x, err));
    }
    if (qrn_tensor_present(&a->rounded)) {
        QRN_TRY(qrn_check_dtype("rms_norm", "rounded", &a->rounded, err, 2, QRN_BF16, QRN_Q8_ACT));
        QRN_TRY(qrn_check_same_shape("rms_norm", "rounded", &a->rounded, "x", &a->x, err));
    } else if (!qrn_tensor_present(&a->out)) {
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rms_norm: out is missing, and rounded too");
    }
    const int64_t d = a->x.shape[a->x.n_dims - 1];
    if (d == 0) return qrn_fail(err, QRN_ERR_SHAPE, "rms_norm: rows of x have 0 elements, want 1 or more");
    if (qrn_tensor_present(&a->weight)) {
        QRN_TRY(qrn_check_dtype("rms_norm", "weight", &a->weight, err, 1, QRN_F32));
        QRN_TRY(qrn_check_shape("rms_norm", "weight", &a->weight, err, 1, d));
    }
    if (!(a->eps >= 0.0f) || isinf(a->eps))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rms_norm: eps is %g, wants 0 or more", (double)a->eps);
    return QRN_OK;
}

static void reference(const void *args)
{
    const struct qrn_rms_norm_args *a = args;
    const int64_t d = a->x.shape[a->x.n_dims - 1], n_rows = qrn_tensor_n_elements(&a->x) / d;
    double block[QRN_Q8_ACT_BLOCK];
    for (int64_t r = 0; r < n_rows; r++) {
        double squares = 0.0;
        for (int64_t i = 0; i < d; i++) {
            double s = qrn_ref_get_flat(&a->x, r * d + i);
            if (a->residual.n_dims) s += qrn_ref_get_flat(&a->residual, r * d + i);
            if (a->sum.n_dims) qrn_ref_set_flat(&a->sum, r * d + i, s);
            squares += s * s;
        }
        const double scale = 1.0 / sqrt(squares / (double)d + (double)a->eps);
        for (int64_t i = 0; i < d; i++) {
            double y = qrn_ref_get_flat(&a->x, r * d + i);
            if (a->residual.n_dims) y += qrn_ref_get_flat(&a->residual, r * d + i);
            y *= scale;
            if (a->weight.n_dims) y *= qrn_ref_get_flat(&a->weight, i);
            if (a->gate.n_dims) {
                const double z = qrn_ref_get_flat(&a->gate, r * d + i);
                y *= z / (1.0 + exp(-z));
            }
            if (a->out.n_dims) qrn_ref_set_flat(&a->out, r * d + i, y);
            block[i % QRN_Q8_ACT_BLOCK] = y;
            if (a->rounded.n_dims && a->rounded.dtype != QRN_Q8_ACT)
                qrn_ref_set_flat(&a->rounded, r * d + i, y);
            else if (a->rounded.n_dims && (i + 1) % QRN_Q8_ACT_BLOCK == 0)
                qrn_ref_round_flat(&a->rounded, r * d + i + 1 - QRN_Q8_ACT_BLOCK, block);
        }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_rms_norm_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->x);
    *n_flops = 4 * n;
    *n_bytes = 4 * n * (2 + (a->residual.n_dims != 0) + (a->gate.n_dims != 0) + (a->sum.n_dims != 0));
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(rms_norm, x, QRN_READS),
    QRN_OPERAND(rms_norm, weight, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(rms_norm, residual, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(rms_norm, gate, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(rms_norm, sum, QRN_WRITES | QRN_OPTIONAL, "x residual"),
    QRN_OPERAND(rms_norm, out, QRN_WRITES | QRN_OPTIONAL, "x gate"),
    QRN_OPERAND(rms_norm, rounded, QRN_WRITES | QRN_OPTIONAL),
};

const struct qrn_op qrn_op_rms_norm = {
    .name = "rms_norm",
    .args_bytes = sizeof(struct qrn_rms_norm_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
