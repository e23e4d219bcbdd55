/* SPDX-License-Identifier: MIT
 * gdn_solve: checks and reference. */
#include "ops/gdn_check.h"

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_solve_args *a = args;
    const char *op = "gdn_solve";
    int64_t n_seqs;
    QRN_TRY(
        qrn_check_shape(op, "A", &a->A, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)QRN_GDN_CHUNK));
    QRN_TRY(gdn_check_f32(op, "A", &a->A, err));
    QRN_TRY(gdn_check_f32(op, "inverse", &a->inverse, err));
    QRN_TRY(qrn_check_same_shape(op, "inverse", &a->inverse, "A", &a->A, err));
    return gdn_check_ragged(op, &a->seq_begin, &n_seqs, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_solve_args *a = args;
    return gdn_check_ragged_data("gdn_solve", &a->seq_begin, a->A.shape[0], err);
}

static void reference(const void *args)
{
    const struct qrn_gdn_solve_args *a = args;
    const int64_t T = a->A.shape[0], H = a->A.shape[1];
    const int64_t n_chunks = gdn_chunks_before(&a->seq_begin, T, gdn_n_seqs(&a->seq_begin));
    for (int64_t n = 0; n < n_chunks * H; n++) {
        const struct gdn_chunk c = gdn_chunk_at(&a->seq_begin, T, n / H);
        const int64_t h = n % H;
        double X[QRN_GDN_CHUNK][QRN_GDN_CHUNK] = {{0}};
        for (int64_t i = 0; i < c.n; i++)
            for (int64_t col = 0; col < QRN_GDN_CHUNK; col++) {
                X[i][col] = i == col;
                for (int64_t j = 0; j < i; j++)
                    X[i][col] -= qrn_ref_get(&a->A, c.begin + i, h, j, 0) * X[j][col];
                qrn_ref_set(&a->inverse, c.begin + i, h, col, 0, X[i][col]);
            }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_solve_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->A);
    *n_flops = n * QRN_GDN_CHUNK / 3;
    *n_bytes = 8 * n;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_solve, A, QRN_READS),
    QRN_OPERAND(gdn_solve, seq_begin, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(gdn_solve, inverse, QRN_WRITES, "A"),
};

const struct qrn_op qrn_op_gdn_solve = {
    .name = "gdn_solve",
    .args_bytes = sizeof(struct qrn_gdn_solve_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
