/* SPDX-License-Identifier: MIT
 * ssm_conv: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_ssm_conv_args *a = args;
    const char *op = "ssm_conv";
    const bool ragged = qrn_tensor_present(&a->seq_begin);
    const int last = ragged ? 1 : 2;
    int64_t n_seqs;
    QRN_TRY(gdn_check_ragged(op, &a->seq_begin, &n_seqs, err));
    if (ragged) {
        QRN_TRY(qrn_check_shape(op, "x", &a->x, err, 2, (int64_t)-1, (int64_t)-1));
    } else {
        QRN_TRY(qrn_check_shape(op, "x", &a->x, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
        n_seqs = a->x.shape[0];
    }
    QRN_TRY(gdn_check_not_empty(op, "x", &a->x, last, err));
    const int64_t C = a->x.shape[last];
    QRN_TRY(qrn_check_shape(op, "weight", &a->weight, err, 2, C, (int64_t)-1));
    const int64_t K = a->weight.shape[1];
    if (K < 2)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: weight.shape[1] is %" PRId64 ", wants 2 or more",
                        op, K);
    QRN_TRY(qrn_check_shape(op, "state_in", &a->state_in, err, 3, n_seqs, C, K - 1));
    QRN_TRY(qrn_check_same_shape(op, "state_out", &a->state_out, "state_in", &a->state_in, err));
    QRN_TRY(qrn_check_same_shape(op, "out", &a->out, "x", &a->x, err));
    QRN_TRY(gdn_check_f32_or_bf16(op, "x", &a->x, err));
    QRN_TRY(gdn_check_f32_or_bf16(op, "weight", &a->weight, err));
    QRN_TRY(qrn_check_dtype(op, "state_in", &a->state_in, err, 1, a->x.dtype));
    QRN_TRY(qrn_check_dtype(op, "state_out", &a->state_out, err, 1, a->x.dtype));
    return qrn_check_dtype(op, "out", &a->out, err, 1, a->x.dtype);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_ssm_conv_args *a = args;
    return gdn_check_ragged_data("ssm_conv", &a->seq_begin, a->x.shape[0], err);
}

/* One sequence: x and out [n_tokens, C], the states [C, K - 1]. */
static void reference_sequence(const struct qrn_tensor *x, const struct qrn_tensor *weight,
                               const struct qrn_tensor *state_in,
                               const struct qrn_tensor *state_out, const struct qrn_tensor *out)
{
    const int64_t T = x->shape[0], C = x->shape[1], K = weight->shape[1];
    for (int64_t c = 0; c < C; c++)
        for (int64_t t = 0; t < T + K - 1; t++) { /* the last K - 1 turns store states */
            double sum = 0.0;
            for (int64_t k = 0; k < K; k++) {
                const int64_t row = t + k - (K - 1);
                if (row >= T) break;
                const double ext = row < 0 ? qrn_ref_get(state_in, c, t + k, 0, 0)
                                           : qrn_ref_get(x, row, c, 0, 0);
                if (t >= T && k == 0) qrn_ref_set(state_out, c, t - T, 0, 0, ext);
                sum += qrn_ref_get(weight, c, k, 0, 0) * ext;
            }
            if (t < T) qrn_ref_set(out, t, c, 0, 0, sum / (1.0 + exp(-sum)));
        }
}

/* A tensor without its first dimension, at index i of it. */
static struct qrn_tensor at_first(const struct qrn_tensor *t, int64_t i)
{
    struct qrn_tensor r = qrn_tensor_slice(*t, 0, i, 1);
    r.n_dims--;
    for (int d = 0; d < r.n_dims; d++) {
        r.shape[d] = r.shape[d + 1];
        r.stride[d] = r.stride[d + 1];
    }
    return r;
}

static void reference(const void *args)
{
    const struct qrn_ssm_conv_args *a = args;
    for (int64_t s = 0; s < a->state_in.shape[0]; s++) {
        struct qrn_tensor x, out;
        if (qrn_tensor_present(&a->seq_begin)) {
            const int32_t *begin = a->seq_begin.data;
            x = qrn_tensor_slice(a->x, 0, begin[s], begin[s + 1] - begin[s]);
            out = qrn_tensor_slice(a->out, 0, begin[s], begin[s + 1] - begin[s]);
        } else {
            x = at_first(&a->x, s);
            out = at_first(&a->out, s);
        }
        const struct qrn_tensor in = at_first(&a->state_in, s), next = at_first(&a->state_out, s);
        reference_sequence(&x, &a->weight, &in, &next, &out);
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_ssm_conv_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->x), K = (double)a->weight.shape[1];
    const double element = a->x.dtype == QRN_F32 ? 4 : 2;
    *n_flops = n * (2 * K + 4);
    *n_bytes = element * (2 * n + 2 * (double)qrn_tensor_n_elements(&a->state_in)) +
               4 * (double)qrn_tensor_n_elements(&a->weight);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(ssm_conv, x, QRN_READS),
    QRN_OPERAND(ssm_conv, weight, QRN_READS),
    QRN_OPERAND(ssm_conv, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(ssm_conv, state_in, QRN_READS),
    QRN_OPERAND(ssm_conv, state_out, QRN_WRITES, "state_in"),
    QRN_OPERAND(ssm_conv, out, QRN_WRITES),
};

const struct qrn_op qrn_op_ssm_conv = {
    .name = "ssm_conv",
    .args_bytes = sizeof(struct qrn_ssm_conv_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
