/* SPDX-License-Identifier: MIT
 * gated_delta_net: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gated_delta_net_args *a = args;
    const char *op = "gated_delta_net";
    struct gdn_sizes z;
    QRN_TRY(gdn_check_tokens(op, &a->q, &a->k, &a->v, &a->g, &a->beta, &a->out, QRN_F32, &z, err));
    QRN_TRY(gdn_check_heads(op, a->head_map, z.n_k_heads, z.n_v_heads, err));
    if (a->gate_sign != QRN_GATE_LOG_DECAY && a->gate_sign != QRN_GATE_POSITIVE)
        return qrn_fail(
            err, QRN_ERR_ARGUMENT,
            "%s: gate_sign is %d, wants QRN_GATE_LOG_DECAY (%d) or QRN_GATE_POSITIVE (%d)", op,
            (int)a->gate_sign, QRN_GATE_LOG_DECAY, QRN_GATE_POSITIVE);
    QRN_TRY(gdn_check_ragged(op, &a->seq_begin, &z.n_seqs, err));
    QRN_TRY(gdn_check_f32(op, "state_in", &a->state_in, err));
    QRN_TRY(
        qrn_check_shape(op, "state_in", &a->state_in, err, 4, z.n_seqs, z.n_v_heads, z.d_v, z.d_k));
    QRN_TRY(gdn_check_f32(op, "state_out", &a->state_out, err));
    QRN_TRY(qrn_check_same_shape(op, "state_out", &a->state_out, "state_in", &a->state_in, err));
    return gdn_check_scale(op, a->scale, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gated_delta_net_args *a = args;
    return gdn_check_ragged_data("gated_delta_net", &a->seq_begin, a->q.shape[0], err);
}

/* One token, row j of one head's state, which lives in state_out. */
static void step(const struct qrn_gated_delta_net_args *a, int64_t s, int64_t t, int64_t h,
                 int64_t kh, int64_t j)
{
    const int64_t d_k = a->q.shape[2];
    const double g = qrn_ref_get(&a->g, t, h, 0, 0), beta = qrn_ref_get(&a->beta, t, h, 0, 0);
    const double decay = exp(a->gate_sign == QRN_GATE_POSITIVE ? -g : g);
    double predicted = 0.0, o = 0.0;
    for (int64_t i = 0; i < d_k; i++)
        predicted +=
            decay * qrn_ref_get(&a->state_out, s, h, j, i) * qrn_ref_get(&a->k, t, kh, i, 0);
    const double d = beta * (qrn_ref_get(&a->v, t, h, j, 0) - predicted);
    for (int64_t i = 0; i < d_k; i++) {
        const double k = qrn_ref_get(&a->k, t, kh, i, 0);
        const double S = decay * qrn_ref_get(&a->state_out, s, h, j, i) + d * k;
        qrn_ref_set(&a->state_out, s, h, j, i, S);
        o += S * qrn_ref_get(&a->q, t, kh, i, 0);
    }
    qrn_ref_set(&a->out, t, h, j, 0, (double)a->scale * o);
}

static void reference(const void *args)
{
    const struct qrn_gated_delta_net_args *a = args;
    const int64_t n_tokens = a->q.shape[0], n_k_heads = a->q.shape[1], d_k = a->q.shape[2];
    const int64_t n_v_heads = a->v.shape[1], d_v = a->v.shape[2];
    for (int64_t s = 0; s < a->state_in.shape[0]; s++)
        for (int64_t h = 0; h < n_v_heads; h++)
            for (int64_t j = 0; j < d_v; j++) {
                const int64_t kh = gdn_key_head(a->head_map, h, n_k_heads, n_v_heads);
                for (int64_t i = 0; i < d_k; i++)
                    qrn_ref_set(&a->state_out, s, h, j, i, qrn_ref_get(&a->state_in, s, h, j, i));
                for (int64_t t = gdn_seq_begin(&a->seq_begin, n_tokens, s);
                     t < gdn_seq_begin(&a->seq_begin, n_tokens, s + 1); t++)
                    step(a, s, t, h, kh, j);
            }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gated_delta_net_args *a = args;
    const double T = (double)a->q.shape[0], Hk = (double)a->q.shape[1], Hv = (double)a->v.shape[1],
                 dk = (double)a->q.shape[2], dv = (double)a->v.shape[2];
    *n_flops = T * Hv * dv * (7 * dk + 4);
    *n_bytes = 4 * (T * (2 * Hk * dk + 2 * Hv * dv + 2 * Hv) +
                    2 * (double)qrn_tensor_n_elements(&a->state_in));
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gated_delta_net, q, QRN_READS),
    QRN_OPERAND(gated_delta_net, k, QRN_READS),
    QRN_OPERAND(gated_delta_net, v, QRN_READS),
    QRN_OPERAND(gated_delta_net, g, QRN_READS),
    QRN_OPERAND(gated_delta_net, beta, QRN_READS),
    QRN_OPERAND(gated_delta_net, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gated_delta_net, state_in, QRN_READS),
    QRN_OPERAND(gated_delta_net, state_out, QRN_WRITES, "state_in"),
    QRN_OPERAND(gated_delta_net, out, QRN_WRITES),
};

const struct qrn_op qrn_op_gated_delta_net = {
    .name = "gated_delta_net",
    .args_bytes = sizeof(struct qrn_gated_delta_net_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
