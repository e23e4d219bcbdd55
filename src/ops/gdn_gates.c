/* SPDX-License-Identifier: MIT
 * gdn_gates: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_gates_args *a = args;
    const char *op = "gdn_gates";
    static const char *const names[] = {"a", "b", "g", "beta"};
    const struct qrn_tensor *const all[] = {&a->a, &a->b, &a->g, &a->beta};
    QRN_TRY(qrn_check_shape(op, "a", &a->a, err, 2, (int64_t)-1, (int64_t)-1));
    for (int i = 0; i < 4; i++) {
        QRN_TRY(gdn_check_f32(op, names[i], all[i], err));
        QRN_TRY(qrn_check_same_shape(op, names[i], all[i], "a", &a->a, err));
    }
    QRN_TRY(gdn_check_f32(op, "a_scale", &a->a_scale, err));
    QRN_TRY(qrn_check_shape(op, "a_scale", &a->a_scale, err, 1, a->a.shape[1]));
    QRN_TRY(gdn_check_f32(op, "dt_bias", &a->dt_bias, err));
    return qrn_check_shape(op, "dt_bias", &a->dt_bias, err, 1, a->a.shape[1]);
}

static void reference(const void *args)
{
    const struct qrn_gdn_gates_args *a = args;
    for (int64_t t = 0; t < a->a.shape[0]; t++)
        for (int64_t h = 0; h < a->a.shape[1]; h++) {
            const double x = qrn_ref_get(&a->a, t, h, 0, 0) + qrn_ref_get(&a->dt_bias, h, 0, 0, 0);
            const double softplus = x > 20.0 ? x : log1p(exp(x));
            const double b = qrn_ref_get(&a->b, t, h, 0, 0);
            qrn_ref_set(&a->g, t, h, 0, 0, qrn_ref_get(&a->a_scale, h, 0, 0, 0) * softplus);
            qrn_ref_set(&a->beta, t, h, 0, 0, 1.0 / (1.0 + exp(-b)));
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_gates_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->a);
    *n_flops = 8 * n;
    *n_bytes = 16 * n;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_gates, a, QRN_READS),
    QRN_OPERAND(gdn_gates, b, QRN_READS),
    QRN_OPERAND(gdn_gates, a_scale, QRN_READS),
    QRN_OPERAND(gdn_gates, dt_bias, QRN_READS),
    QRN_OPERAND(gdn_gates, g, QRN_WRITES, "a"),
    QRN_OPERAND(gdn_gates, beta, QRN_WRITES, "b"),
};

const struct qrn_op qrn_op_gdn_gates = {
    .name = "gdn_gates",
    .args_bytes = sizeof(struct qrn_gdn_gates_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
