/* SPDX-License-Identifier: MIT
 * moe_combine: checks and reference. */
#include "core/op.h"

#include <math.h>

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_moe_combine_args *a = args;
    static const char *const names[] = {"experts", "weights", "shared", "shared_gate", "out"};
    const struct qrn_tensor *const all[] = {&a->experts, &a->weights, &a->shared, &a->shared_gate,
                                            &a->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (qrn_tensor_present(all[i]))
            QRN_TRY(qrn_check_dtype("moe_combine", names[i], all[i], err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape("moe_combine", "experts", &a->experts, err, 3, (int64_t)-1, (int64_t)-1,
                            (int64_t)-1));
    const int64_t n_tokens = a->experts.shape[0], top_k = a->experts.shape[1],
                  d = a->experts.shape[2];
    if (top_k == 0)
        return qrn_fail(err, QRN_ERR_SHAPE, "moe_combine: experts.shape[1] is 0, wants 1 or more");
    QRN_TRY(qrn_check_shape("moe_combine", "weights", &a->weights, err, 2, n_tokens, top_k));
    QRN_TRY(qrn_check_shape("moe_combine", "out", &a->out, err, 2, n_tokens, d));
    if (qrn_tensor_present(&a->shared))
        QRN_TRY(qrn_check_shape("moe_combine", "shared", &a->shared, err, 2, n_tokens, d));
    if (!qrn_tensor_present(&a->shared_gate)) return QRN_OK;
    if (!qrn_tensor_present(&a->shared))
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "moe_combine: shared_gate is given, shared is missing");
    if (a->shared_gate.n_dims == 1)
        return qrn_check_shape("moe_combine", "shared_gate", &a->shared_gate, err, 1, n_tokens);
    return qrn_check_shape("moe_combine", "shared_gate", &a->shared_gate, err, 2, n_tokens,
                           (int64_t)1);
}

static void reference(const void *args)
{
    const struct qrn_moe_combine_args *a = args;
    for (int64_t t = 0; t < a->experts.shape[0]; t++)
        for (int64_t i = 0; i < a->experts.shape[2]; i++) {
            double y = 0.0, factor = 1.0;
            for (int64_t k = 0; k < a->experts.shape[1]; k++)
                y += qrn_ref_get(&a->weights, t, k, 0, 0) * qrn_ref_get(&a->experts, t, k, i, 0);
            if (a->shared_gate.n_dims)
                factor = 1.0 / (1.0 + exp(-qrn_ref_get_flat(&a->shared_gate, t)));
            if (a->shared.n_dims) y += factor * qrn_ref_get(&a->shared, t, i, 0, 0);
            qrn_ref_set(&a->out, t, i, 0, 0, y);
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_moe_combine_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->experts);
    const double m = (double)qrn_tensor_n_elements(&a->out);
    const bool shared = a->shared.n_dims != 0;
    *n_flops = 2 * n + (shared ? 2 * m : 0);
    *n_bytes = 4 * n + 4 * m * (1 + shared);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(moe_combine, experts, QRN_READS),
    QRN_OPERAND(moe_combine, weights, QRN_READS),
    QRN_OPERAND(moe_combine, shared, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(moe_combine, shared_gate, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(moe_combine, out, QRN_WRITES, "shared"),
};

const struct qrn_op qrn_op_moe_combine = {
    .name = "moe_combine",
    .args_bytes = sizeof(struct qrn_moe_combine_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
