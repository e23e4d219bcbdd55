/* SPDX-License-Identifier: MIT
 * gdn_chunk_state: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_chunk_state_args *a = args;
    const char *op = "gdn_chunk_state";
    struct gdn_sizes z;
    QRN_TRY(gdn_check_stage(op, "k", &a->k, "u", &a->u, &z, err));
    QRN_TRY(gdn_check_heads(op, a->head_map, z.n_k_heads, z.n_v_heads, err));
    QRN_TRY(gdn_check_stage_gates(op, NULL, &a->G, &z, err));
    QRN_TRY(
        gdn_check_stage_tensor(op, "w", &a->w, a->k.dtype, z.n_tokens, z.n_v_heads, z.d_k, err));
    QRN_TRY(gdn_check_stage_tensor(op, "v_new", &a->v_new, a->k.dtype, z.n_tokens, z.n_v_heads,
                                   z.d_v, err));
    QRN_TRY(gdn_check_ragged(op, &a->seq_begin, &z.n_seqs, err));
    QRN_TRY(gdn_check_f32(op, "state_in", &a->state_in, err));
    QRN_TRY(
        qrn_check_shape(op, "state_in", &a->state_in, err, 4, z.n_seqs, z.n_v_heads, z.d_v, z.d_k));
    QRN_TRY(gdn_check_f32(op, "state_out", &a->state_out, err));
    QRN_TRY(qrn_check_same_shape(op, "state_out", &a->state_out, "state_in", &a->state_in, err));
    QRN_TRY(qrn_check_dtype(op, "h", &a->h, err, 1, a->k.dtype));
    return qrn_check_shape(op, "h", &a->h, err, 4, (int64_t)-1, z.n_v_heads, z.d_v, z.d_k);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_chunk_state_args *a = args;
    return gdn_check_chunks_data("gdn_chunk_state", &a->h, &a->seq_begin, a->k.shape[0], err);
}

/* Row j of one head's state, which lives in state_out, through one chunk. */
static void reference_row(const struct qrn_gdn_chunk_state_args *a, int64_t i_chunk, int64_t s,
                          int64_t h, int64_t j)
{
    const int64_t d_k = a->k.shape[2],
                  kh = gdn_key_head(a->head_map, h, a->k.shape[1], a->u.shape[1]);
    const struct gdn_chunk c = gdn_chunk_at(&a->seq_begin, a->k.shape[0], i_chunk);
    const int64_t last = c.begin + c.n - 1;
    double v_new[QRN_GDN_CHUNK];
    for (int64_t t = 0; t < c.n; t++) {
        v_new[t] = qrn_ref_get(&a->u, c.begin + t, h, j, 0);
        for (int64_t i = 0; i < d_k; i++)
            v_new[t] -=
                qrn_ref_get(&a->state_out, s, h, j, i) * qrn_ref_get(&a->w, c.begin + t, h, i, 0);
        qrn_ref_set(&a->v_new, c.begin + t, h, j, 0, v_new[t]);
    }
    for (int64_t i = 0; i < d_k; i++) {
        double S = qrn_ref_get(&a->state_out, s, h, j, i);
        qrn_ref_set(&a->h, i_chunk, h, j, i, S);
        S *= exp(qrn_ref_get(&a->G, last, h, 0, 0));
        for (int64_t t = 0; t < c.n; t++)
            S += gdn_ref_decay(&a->G, h, last, c.begin + t) * v_new[t] *
                 qrn_ref_get(&a->k, c.begin + t, kh, i, 0);
        qrn_ref_set(&a->state_out, s, h, j, i, S);
    }
}

static void reference(const void *args)
{
    const struct qrn_gdn_chunk_state_args *a = args;
    const int64_t T = a->k.shape[0];
    for (int64_t s = 0; s < a->state_in.shape[0]; s++)
        for (int64_t h = 0; h < a->u.shape[1]; h++)
            for (int64_t j = 0; j < a->u.shape[2]; j++) {
                for (int64_t i = 0; i < a->k.shape[2]; i++)
                    qrn_ref_set(&a->state_out, s, h, j, i, qrn_ref_get(&a->state_in, s, h, j, i));
                for (int64_t c = gdn_chunks_before(&a->seq_begin, T, s);
                     c < gdn_chunks_before(&a->seq_begin, T, s + 1); c++)
                    reference_row(a, c, s, h, j);
            }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_chunk_state_args *a = args;
    const double T = (double)a->k.shape[0], H = (double)a->u.shape[1], dk = (double)a->k.shape[2],
                 dv = (double)a->u.shape[2], element = a->k.dtype == QRN_F32 ? 4 : 2;
    *n_flops = T * H * 4 * dk * dv;
    *n_bytes = element * (T * H * (2 * dk + 2 * dv) + (double)qrn_tensor_n_elements(&a->h)) +
               8 * (double)qrn_tensor_n_elements(&a->state_in);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_chunk_state, k, QRN_READS),
    QRN_OPERAND(gdn_chunk_state, w, QRN_READS),
    QRN_OPERAND(gdn_chunk_state, u, QRN_READS),
    QRN_OPERAND(gdn_chunk_state, G, QRN_READS),
    QRN_OPERAND(gdn_chunk_state, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gdn_chunk_state, state_in, QRN_READS),
    QRN_OPERAND(gdn_chunk_state, h, QRN_WRITES),
    QRN_OPERAND(gdn_chunk_state, v_new, QRN_WRITES, "u"),
    QRN_OPERAND(gdn_chunk_state, state_out, QRN_WRITES, "state_in"),
};

const struct qrn_op qrn_op_gdn_chunk_state = {
    .name = "gdn_chunk_state",
    .args_bytes = sizeof(struct qrn_gdn_chunk_state_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
