/* SPDX-License-Identifier: MIT
 * gdn_cumsum: checks and reference. */
#include "ops/gdn_check.h"

int64_t qrn_gdn_n_chunks(const int32_t *seq_begin, int64_t n_seqs, int64_t n_tokens)
{
    if (!seq_begin) return (n_tokens + QRN_GDN_CHUNK - 1) / QRN_GDN_CHUNK;
    int64_t n = 0;
    for (int64_t s = 0; s < n_seqs; s++)
        n += (seq_begin[s + 1] - seq_begin[s] + QRN_GDN_CHUNK - 1) / QRN_GDN_CHUNK;
    return n;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_cumsum_args *a = args;
    const char *op = "gdn_cumsum";
    int64_t n_seqs;
    QRN_TRY(gdn_check_f32(op, "g", &a->g, err));
    QRN_TRY(qrn_check_shape(op, "g", &a->g, err, 2, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_dtype(op, "G", &a->G, err, 2, QRN_F32, QRN_F64));
    QRN_TRY(qrn_check_same_shape(op, "G", &a->G, "g", &a->g, err));
    return gdn_check_ragged(op, &a->seq_begin, &n_seqs, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_cumsum_args *a = args;
    return gdn_check_ragged_data("gdn_cumsum", &a->seq_begin, a->g.shape[0], err);
}

static void reference(const void *args)
{
    const struct qrn_gdn_cumsum_args *a = args;
    const int64_t n_chunks =
        gdn_chunks_before(&a->seq_begin, a->g.shape[0], gdn_n_seqs(&a->seq_begin));
    for (int64_t i = 0; i < n_chunks; i++) {
        const struct gdn_chunk c = gdn_chunk_at(&a->seq_begin, a->g.shape[0], i);
        for (int64_t h = 0; h < a->g.shape[1]; h++) {
            double sum = 0.0;
            for (int64_t t = c.begin; t < c.begin + c.n; t++)
                qrn_ref_set(&a->G, t, h, 0, 0, sum += qrn_ref_get(&a->g, t, h, 0, 0));
        }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_cumsum_args *a = args;
    *n_flops = (double)qrn_tensor_n_elements(&a->g);
    *n_bytes = *n_flops * (a->G.dtype == QRN_F64 ? 12 : 8);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_cumsum, g, QRN_READS),
    QRN_OPERAND(gdn_cumsum, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gdn_cumsum, G, QRN_WRITES, "g"),
};

const struct qrn_op qrn_op_gdn_cumsum = {
    .name = "gdn_cumsum",
    .args_bytes = sizeof(struct qrn_gdn_cumsum_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
