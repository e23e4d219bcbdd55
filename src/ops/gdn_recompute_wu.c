/* SPDX-License-Identifier: MIT
 * gdn_recompute_wu: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_recompute_wu_args *a = args;
    const char *op = "gdn_recompute_wu";
    struct gdn_sizes z;
    QRN_TRY(gdn_check_stage(op, "k", &a->k, "v", &a->v, &z, err));
    QRN_TRY(gdn_check_heads(op, a->head_map, z.n_k_heads, z.n_v_heads, err));
    QRN_TRY(gdn_check_stage_gates(op, &a->beta, &a->G, &z, err));
    QRN_TRY(gdn_check_stage_tensor(op, "inverse", &a->inverse, QRN_F32, z.n_tokens, z.n_v_heads,
                                   QRN_GDN_CHUNK, err));
    QRN_TRY(
        gdn_check_stage_tensor(op, "w", &a->w, a->k.dtype, z.n_tokens, z.n_v_heads, z.d_k, err));
    QRN_TRY(
        gdn_check_stage_tensor(op, "u", &a->u, a->k.dtype, z.n_tokens, z.n_v_heads, z.d_v, err));
    return gdn_check_ragged(op, &a->seq_begin, &z.n_seqs, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_recompute_wu_args *a = args;
    return gdn_check_ragged_data("gdn_recompute_wu", &a->seq_begin, a->k.shape[0], err);
}

/* Row i of w and of u. */
static void reference_row(const struct qrn_gdn_recompute_wu_args *a, struct gdn_chunk c, int64_t i,
                          int64_t h)
{
    const int64_t kh = gdn_key_head(a->head_map, h, a->k.shape[1], a->v.shape[1]);
    for (int64_t d = 0; d < a->k.shape[2]; d++) {
        double w = 0.0;
        for (int64_t j = 0; j <= i; j++)
            w += qrn_ref_get(&a->inverse, c.begin + i, h, j, 0) *
                 qrn_ref_get(&a->beta, c.begin + j, h, 0, 0) *
                 exp(qrn_ref_get(&a->G, c.begin + j, h, 0, 0)) *
                 qrn_ref_get(&a->k, c.begin + j, kh, d, 0);
        qrn_ref_set(&a->w, c.begin + i, h, d, 0, w);
    }
    for (int64_t d = 0; d < a->v.shape[2]; d++) {
        double u = 0.0;
        for (int64_t j = 0; j <= i; j++)
            u += qrn_ref_get(&a->inverse, c.begin + i, h, j, 0) *
                 qrn_ref_get(&a->beta, c.begin + j, h, 0, 0) *
                 qrn_ref_get(&a->v, c.begin + j, h, d, 0);
        qrn_ref_set(&a->u, c.begin + i, h, d, 0, u);
    }
}

static void reference(const void *args)
{
    const struct qrn_gdn_recompute_wu_args *a = args;
    const int64_t T = a->k.shape[0], H = a->v.shape[1];
    const int64_t n_chunks = gdn_chunks_before(&a->seq_begin, T, gdn_n_seqs(&a->seq_begin));
    for (int64_t n = 0; n < n_chunks * H; n++) {
        const struct gdn_chunk c = gdn_chunk_at(&a->seq_begin, T, n / H);
        for (int64_t i = 0; i < c.n; i++) reference_row(a, c, i, n % H);
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_recompute_wu_args *a = args;
    const double T = (double)a->k.shape[0], H = (double)a->v.shape[1], C = QRN_GDN_CHUNK;
    const double d = (double)(a->k.shape[2] + a->v.shape[2]),
                 element = a->k.dtype == QRN_F32 ? 4 : 2;
    *n_flops = T * H * C * d;
    *n_bytes = T * H * (4 * C + 2 * element * d);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_recompute_wu, k, QRN_READS),
    QRN_OPERAND(gdn_recompute_wu, v, QRN_READS),
    QRN_OPERAND(gdn_recompute_wu, beta, QRN_READS),
    QRN_OPERAND(gdn_recompute_wu, G, QRN_READS),
    QRN_OPERAND(gdn_recompute_wu, inverse, QRN_READS),
    QRN_OPERAND(gdn_recompute_wu, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gdn_recompute_wu, w, QRN_WRITES),
    QRN_OPERAND(gdn_recompute_wu, u, QRN_WRITES),
};

const struct qrn_op qrn_op_gdn_recompute_wu = {
    .name = "gdn_recompute_wu",
    .args_bytes = sizeof(struct qrn_gdn_recompute_wu_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
