/* SPDX-License-Identifier: MIT
 * attention_classify_tiles: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include "ops/attention_row.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_attention_classify_tiles_args *a = args;
    const char *op = "attention_classify_tiles";
    if (a->n_tokens < 0 || a->n_kv < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: n_tokens is %" PRId64 ", n_kv is %" PRId64 ", want 0 or more", op,
                        a->n_tokens, a->n_kv);
    if (a->tile_q < 1 || a->tile_k < 1)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: tile_q is %" PRId64 ", tile_k is %" PRId64 ", want 1 or more", op,
                        a->tile_q, a->tile_k);
    QRN_TRY(qrn_attention_check_numbers(op, 1.0f, 0.0f, a->window, err));
    QRN_TRY(qrn_attention_check_offset(op, a->q_offset, err));
    if (qrn_tensor_present(&a->mask)) {
        QRN_TRY(qrn_check_dtype(op, "mask", &a->mask, err, 3, QRN_F32, QRN_F16, QRN_BF16));
        QRN_TRY(qrn_check_shape(op, "mask", &a->mask, err, 2, a->n_tokens, a->n_kv));
    }
    QRN_TRY(qrn_check_dtype(op, "classes", &a->classes, err, 1, QRN_U8));
    return qrn_check_shape(op, "classes", &a->classes, err, 2,
                           attention_n_tiles(a->n_tokens, a->tile_q),
                           attention_n_tiles(a->n_kv, a->tile_k));
}

static void reference(const void *args)
{
    const struct qrn_attention_classify_tiles_args *a = args;
    for (int64_t tq = 0; tq < a->classes.shape[0]; tq++)
        for (int64_t tk = 0; tk < a->classes.shape[1]; tk++) {
            int64_t n_attended = 0, n_zero = 0;
            for (int64_t i = tq * a->tile_q; i < (tq + 1) * a->tile_q && i < a->n_tokens; i++)
                for (int64_t j = tk * a->tile_k; j < (tk + 1) * a->tile_k && j < a->n_kv; j++) {
                    const int64_t p = a->q_offset + i;
                    const double mask = a->mask.n_dims ? qrn_ref_get(&a->mask, i, j, 0, 0) : 0.0;
                    if ((a->causal && j > p) || (a->window && p - j >= a->window)) continue;
                    if (mask <= (double)ATTENTION_MASKED) continue;
                    n_attended++;
                    n_zero += mask == 0.0;
                }
            const int class = n_attended == 0 ? 0 : n_zero == a->tile_q * a->tile_k ? 2 : 1;
            qrn_ref_set(&a->classes, tq, tk, 0, 0, class);
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_attention_classify_tiles_args *a = args;
    *n_flops = 0;
    *n_bytes = (double)qrn_tensor_n_elements(&a->classes);
    if (a->mask.n_dims)
        *n_bytes +=
            (double)qrn_tensor_n_elements(&a->mask) * qrn_dtype_info(a->mask.dtype)->block_bytes;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(attention_classify_tiles, mask, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(attention_classify_tiles, classes, QRN_WRITES),
};

const struct qrn_op qrn_op_attention_classify_tiles = {
    .name = "attention_classify_tiles",
    .args_bytes = sizeof(struct qrn_attention_classify_tiles_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
