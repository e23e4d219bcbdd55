/* SPDX-License-Identifier: MIT
 * gdn_kkt: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_kkt_args *a = args;
    const char *op = "gdn_kkt";
    struct gdn_sizes z;
    QRN_TRY(gdn_check_stage(op, "k", &a->k, NULL, NULL, &z, err));
    QRN_TRY(qrn_check_shape(op, "beta", &a->beta, err, 2, z.n_tokens, (int64_t)-1));
    z.n_v_heads = a->beta.shape[1];
    QRN_TRY(gdn_check_stage_gates(op, &a->beta, &a->G, &z, err));
    QRN_TRY(gdn_check_heads(op, a->head_map, z.n_k_heads, z.n_v_heads, err));
    QRN_TRY(gdn_check_stage_tensor(op, "A", &a->A, QRN_F32, z.n_tokens, z.n_v_heads, QRN_GDN_CHUNK,
                                   err));
    return gdn_check_ragged(op, &a->seq_begin, &z.n_seqs, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_kkt_args *a = args;
    return gdn_check_ragged_data("gdn_kkt", &a->seq_begin, a->k.shape[0], err);
}

static void reference(const void *args)
{
    const struct qrn_gdn_kkt_args *a = args;
    const int64_t T = a->k.shape[0], n_v_heads = a->beta.shape[1];
    const int64_t n_chunks = gdn_chunks_before(&a->seq_begin, T, gdn_n_seqs(&a->seq_begin));
    for (int64_t n = 0; n < n_chunks * n_v_heads; n++) {
        const struct gdn_chunk c = gdn_chunk_at(&a->seq_begin, T, n / n_v_heads);
        const int64_t h = n % n_v_heads,
                      kh = gdn_key_head(a->head_map, h, a->k.shape[1], n_v_heads);
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t j = 0; j < QRN_GDN_CHUNK; j++) {
                double x = 0.0;
                if (j < i)
                    x = qrn_ref_get(&a->beta, c.begin + i, h, 0, 0) *
                        gdn_ref_decay(&a->G, h, c.begin + i, c.begin + j) *
                        gdn_ref_dot(&a->k, c.begin + i, &a->k, c.begin + j, kh);
                qrn_ref_set(&a->A, c.begin + i, h, j, 0, x);
            }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_kkt_args *a = args;
    const double T = (double)a->k.shape[0], H = (double)a->beta.shape[1], C = QRN_GDN_CHUNK;
    *n_flops = T * H * (C / 2) * (2 * (double)a->k.shape[2] + 2);
    const double element = a->k.dtype == QRN_F32 ? 4 : 2;
    *n_bytes = T * H * C * 4 + (double)qrn_tensor_n_elements(&a->k) * element;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_kkt, k, QRN_READS),
    QRN_OPERAND(gdn_kkt, beta, QRN_READS),
    QRN_OPERAND(gdn_kkt, G, QRN_READS),
    QRN_OPERAND(gdn_kkt, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gdn_kkt, A, QRN_WRITES),
};

const struct qrn_op qrn_op_gdn_kkt = {
    .name = "gdn_kkt",
    .args_bytes = sizeof(struct qrn_gdn_kkt_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
