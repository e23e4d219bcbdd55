/* SPDX-License-Identifier: MIT
 * moe_route: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include <math.h>
#include "ops/ranking.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_moe_route_args *a = args;
    QRN_TRY(qrn_check_dtype("moe_route", "logits", &a->logits, err, 1, QRN_F32));
    QRN_TRY(qrn_check_dtype("moe_route", "ids", &a->ids, err, 1, QRN_I32));
    QRN_TRY(qrn_check_dtype("moe_route", "weights", &a->weights, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape("moe_route", "logits", &a->logits, err, 2, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_shape("moe_route", "ids", &a->ids, err, 2, a->logits.shape[0], (int64_t)-1));
    QRN_TRY(qrn_check_same_shape("moe_route", "weights", &a->weights, "ids", &a->ids, err));
    const int64_t n_experts = a->logits.shape[1], top_k = a->ids.shape[1];
    if (n_experts > INT32_MAX)
        return qrn_fail(err, QRN_ERR_SHAPE, "moe_route: logits.shape[1] is %" PRId64
                        ", wants %" PRId32 " or fewer experts", n_experts, INT32_MAX);
    if (top_k < 1 || top_k > n_experts)
        return qrn_fail(err, QRN_ERR_SHAPE, "moe_route: ids.shape[1] is %" PRId64
                        ", wants 1 to %" PRId64 " (experts)", top_k, n_experts);
    return QRN_OK;
}

static void reference(const void *args)
{
    const struct qrn_moe_route_args *a = args;
    const int64_t n_experts = a->logits.shape[1], top_k = a->ids.shape[1];
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        double largest = -INFINITY, sum = 0.0, sum_of_chosen = 0.0;
        for (int64_t e = 0; e < n_experts; e++)
            largest = fmax(largest, qrn_ref_get(&a->logits, t, e, 0, 0));
        for (int64_t e = 0; e < n_experts; e++)
            sum += exp(qrn_ref_get(&a->logits, t, e, 0, 0) - largest);
        for (int64_t e = 0; e < n_experts; e++) {
            int64_t rank = 0;
            for (int64_t other = 0; other < n_experts; other++)
                rank += qrn_ref_before(&a->logits, t, other, e);
            if (rank >= top_k) continue;
            const double p = exp(qrn_ref_get(&a->logits, t, e, 0, 0) - largest) / sum;
            qrn_ref_set(&a->ids, t, rank, 0, 0, (double)e);
            qrn_ref_set(&a->weights, t, rank, 0, 0, p);
            sum_of_chosen += p;
        }
        for (int64_t k = 0; k < top_k && a->normalise; k++)
            qrn_ref_set(&a->weights, t, k, 0, 0,
                        qrn_ref_get(&a->weights, t, k, 0, 0) / sum_of_chosen);
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_moe_route_args *a = args;
    *n_flops = 3.0 * (double)qrn_tensor_n_elements(&a->logits);
    *n_bytes = 4.0 * (double)qrn_tensor_n_elements(&a->logits) +
               8.0 * (double)qrn_tensor_n_elements(&a->ids);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(moe_route, logits, QRN_READS),
    QRN_OPERAND(moe_route, ids, QRN_WRITES),
    QRN_OPERAND(moe_route, weights, QRN_WRITES),
};

const struct qrn_op qrn_op_moe_route = {
    .name = "moe_route",
    .args_bytes = sizeof(struct qrn_moe_route_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
