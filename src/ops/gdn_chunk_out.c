/* SPDX-License-Identifier: MIT
 * gdn_chunk_out: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_chunk_out_args *a = args;
    const char *op = "gdn_chunk_out";
    struct gdn_sizes z;
    QRN_TRY(gdn_check_stage(op, "q", &a->q, "v_new", &a->v_new, &z, err));
    QRN_TRY(gdn_check_heads(op, a->head_map, z.n_k_heads, z.n_v_heads, err));
    QRN_TRY(gdn_check_stage_gates(op, NULL, &a->G, &z, err));
    QRN_TRY(
        gdn_check_stage_tensor(op, "k", &a->k, a->q.dtype, z.n_tokens, z.n_k_heads, z.d_k, err));
    QRN_TRY(gdn_check_stage_tensor(op, "out", &a->out, a->q.dtype, z.n_tokens, z.n_v_heads, z.d_v,
                                   err));
    QRN_TRY(gdn_check_ragged(op, &a->seq_begin, &z.n_seqs, err));
    QRN_TRY(qrn_check_dtype(op, "h", &a->h, err, 1, a->q.dtype));
    QRN_TRY(qrn_check_shape(op, "h", &a->h, err, 4, (int64_t)-1, z.n_v_heads, z.d_v, z.d_k));
    return gdn_check_scale(op, a->scale, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_chunk_out_args *a = args;
    return gdn_check_chunks_data("gdn_chunk_out", &a->h, &a->seq_begin, a->q.shape[0], err);
}

/* Token i of a chunk. */
static void reference_row(const struct qrn_gdn_chunk_out_args *a, int64_t i_chunk,
                          struct gdn_chunk c, int64_t i, int64_t h)
{
    const int64_t kh = gdn_key_head(a->head_map, h, a->q.shape[1], a->v_new.shape[1]),
                  t = c.begin + i;
    double weight[QRN_GDN_CHUNK];
    for (int64_t j = 0; j <= i; j++)
        weight[j] =
            gdn_ref_decay(&a->G, h, t, c.begin + j) * gdn_ref_dot(&a->q, t, &a->k, c.begin + j, kh);
    for (int64_t d = 0; d < a->v_new.shape[2]; d++) {
        double o = 0.0;
        for (int64_t e = 0; e < a->q.shape[2]; e++)
            o += qrn_ref_get(&a->h, i_chunk, h, d, e) * qrn_ref_get(&a->q, t, kh, e, 0);
        o *= exp(qrn_ref_get(&a->G, t, h, 0, 0));
        for (int64_t j = 0; j <= i; j++)
            o += weight[j] * qrn_ref_get(&a->v_new, c.begin + j, h, d, 0);
        qrn_ref_set(&a->out, t, h, d, 0, (double)a->scale * o);
    }
}

static void reference(const void *args)
{
    const struct qrn_gdn_chunk_out_args *a = args;
    const int64_t T = a->q.shape[0], H = a->v_new.shape[1];
    const int64_t n_chunks = gdn_chunks_before(&a->seq_begin, T, gdn_n_seqs(&a->seq_begin));
    for (int64_t n = 0; n < n_chunks * H; n++) {
        const struct gdn_chunk c = gdn_chunk_at(&a->seq_begin, T, n / H);
        for (int64_t i = 0; i < c.n; i++) reference_row(a, n / H, c, i, n % H);
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_chunk_out_args *a = args;
    const double T = (double)a->q.shape[0], H = (double)a->v_new.shape[1],
                 dk = (double)a->q.shape[2], dv = (double)a->v_new.shape[2],
                 element = a->q.dtype == QRN_F32 ? 4 : 2;
    *n_flops = T * H * (2 * dk * dv + QRN_GDN_CHUNK * (dk + dv));
    *n_bytes = element * (T * H * (2 * dk + 2 * dv) + (double)qrn_tensor_n_elements(&a->h));
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_chunk_out, q, QRN_READS),
    QRN_OPERAND(gdn_chunk_out, k, QRN_READS),
    QRN_OPERAND(gdn_chunk_out, v_new, QRN_READS),
    QRN_OPERAND(gdn_chunk_out, h, QRN_READS),
    QRN_OPERAND(gdn_chunk_out, G, QRN_READS),
    QRN_OPERAND(gdn_chunk_out, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gdn_chunk_out, out, QRN_WRITES),
};

const struct qrn_op qrn_op_gdn_chunk_out = {
    .name = "gdn_chunk_out",
    .args_bytes = sizeof(struct qrn_gdn_chunk_out_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
