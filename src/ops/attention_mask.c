/* SPDX-License-Identifier: MIT
 * attention_mask: checks and reference. */
#include "core/op.h"

#include <math.h>
#include "ops/attention_row.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_attention_mask_args *a = args;
    QRN_TRY(qrn_check_dtype("attention_mask", "out", &a->out, err, 2, QRN_F32, QRN_BF16));
    QRN_TRY(qrn_check_shape("attention_mask", "out", &a->out, err, 2, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_attention_check_numbers("attention_mask", 1.0f, 0.0f, a->window, err));
    return qrn_attention_check_offset("attention_mask", a->q_offset, err);
}

static void reference(const void *args)
{
    const struct qrn_attention_mask_args *a = args;
    for (int64_t i = 0; i < a->out.shape[0]; i++)
        for (int64_t j = 0; j < a->out.shape[1]; j++) {
            const int64_t p = a->q_offset + i;
            const bool masked = (a->causal && j > p) || (a->window && p - j >= a->window);
            qrn_ref_set(&a->out, i, j, 0, 0, masked ? -INFINITY : 0.0);
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_attention_mask_args *a = args;
    *n_flops = 0;
    *n_bytes = (double)qrn_tensor_n_elements(&a->out) * qrn_dtype_info(a->out.dtype)->block_bytes;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(attention_mask, out, QRN_WRITES),
};

const struct qrn_op qrn_op_attention_mask = {
    .name = "attention_mask",
    .args_bytes = sizeof(struct qrn_attention_mask_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
