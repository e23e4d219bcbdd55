/* SPDX-License-Identifier: MIT
 * gdn_open_chunk: checks, sizes and reference. */
#include <stdlib.h>

#include "base/memory.h"
#include "ops/gdn_check.h"

enum { CHUNK = QRN_GDN_CHUNK };

/* n0 * n1 * n2 * element bytes, rounded up to 64 and added to *sum; false when that is too much. */
static bool add_bytes(size_t *sum, int64_t n0, int64_t n1, int64_t n2, size_t element)
{
    size_t n;
    if (n0 < 1 || n1 < 1 || n2 < 1) return false;
    if (!qrn_mul_size((size_t)n0, (size_t)n1, &n) || !qrn_mul_size(n, (size_t)n2, &n) ||
        !qrn_mul_size(n, element, &n))
        return false;
    if (n > SIZE_MAX - 63) return false;
    n = (n + 63) / 64 * 64;
    return !__builtin_add_overflow(*sum, n, sum);
}

size_t qrn_gdn_state_bytes(int64_t n_v_heads, int64_t d_k, int64_t d_v)
{
    size_t sum = 0;
    return add_bytes(&sum, n_v_heads, d_k, d_v, sizeof(float)) ? sum : 0;
}

size_t qrn_gdn_rows_bytes(int64_t n_k_heads, int64_t n_v_heads, int64_t d_k, int64_t d_v)
{
    size_t sum = 0;
    const bool ok = add_bytes(&sum, n_v_heads, CHUNK, 1, sizeof(double)) &&
                    add_bytes(&sum, n_k_heads, d_k, CHUNK, sizeof(float)) &&
                    add_bytes(&sum, n_v_heads, CHUNK, d_v, sizeof(float));
    return ok ? sum : 0;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    const char *op = "gdn_open_chunk";
    struct gdn_sizes z;
    QRN_TRY(gdn_check_f32_or_bf16(op, "q", &a->q, err));
    QRN_TRY(gdn_check_tokens(op, &a->q, &a->k, &a->v, &a->g, &a->beta, &a->out, a->q.dtype, &z,
                             err));
    if (a->acts != QRN_ACT_F32 && a->acts != QRN_ACT_BF16)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: acts is %d, wants QRN_ACT_F32 (%d) or QRN_ACT_BF16 (%d)", op,
                        (int)a->acts, QRN_ACT_F32, QRN_ACT_BF16);
    QRN_TRY(gdn_check_heads(op, a->head_map, z.n_k_heads, z.n_v_heads, err));
    QRN_TRY(gdn_check_ragged(op, &a->seq_begin, &z.n_seqs, err));
    QRN_TRY(qrn_check_dtype(op, "position", &a->position, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(op, "position", &a->position, err, 1, z.n_seqs));
    QRN_TRY(qrn_check_dtype(op, "state", &a->state, err, 1, QRN_ADDRESS));
    QRN_TRY(qrn_check_shape(op, "state", &a->state, err, 2, z.n_seqs, (int64_t)3));
    QRN_TRY(qrn_check_dtype(op, "rows", &a->rows, err, 1, QRN_ADDRESS));
    QRN_TRY(qrn_check_shape(op, "rows", &a->rows, err, 2, z.n_seqs, (int64_t)2));
    if (a->state_offset % 8 || a->rows_offset % 8)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: state_offset is %zu and rows_offset %zu, want multiples of 8", op,
                        a->state_offset, a->rows_offset);
    if (!qrn_gdn_state_bytes(z.n_v_heads, z.d_k, z.d_v) ||
        !qrn_gdn_rows_bytes(z.n_k_heads, z.n_v_heads, z.d_k, z.d_v))
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: states of %" PRId64 " heads, d_k %" PRId64 ", d_v %" PRId64
                        " do not fit in memory",
                        op, z.n_v_heads, z.d_k, z.d_v);
    return gdn_check_scale(op, a->scale, err);
}

static enum qrn_status check_address(const char *name, const struct qrn_tensor *t, int64_t s,
                                     int64_t i, struct qrn_error *err)
{
    const uint64_t address = gdn_address(t, s, i);
    if (address && address % 8 == 0) return QRN_OK;
    return qrn_fail(err, QRN_ERR_ARGUMENT,
                    "gdn_open_chunk: %s[%" PRId64 "][%" PRId64 "] is %#" PRIx64
                    ", wants a multiple of 8, not 0",
                    name, s, i, address);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    const char *op = "gdn_open_chunk";
    QRN_TRY(gdn_check_ragged_data(op, &a->seq_begin, a->q.shape[0], err));
    QRN_TRY(gdn_check_position_data(op, &a->position, &a->seq_begin, err));
    const int32_t *begin = a->seq_begin.data, *position = a->position.data;
    for (int64_t s = 0; s < a->position.shape[0]; s++) {
        const int64_t first = position[s], end = first + begin[s + 1] - begin[s];
        if (end == first) continue;
        QRN_TRY(check_address("state", &a->state, s, 0, err));
        for (int64_t c = first / CHUNK; c <= (end - 1) / CHUNK && c <= first / CHUNK + 1; c++)
            QRN_TRY(check_address("rows", &a->rows, s, c & 1, err));
        for (int64_t c = first / CHUNK + 1; c <= end / CHUNK && c <= first / CHUNK + 2; c++)
            QRN_TRY(check_address("state", &a->state, s, 1 + (c & 1), err));
    }
    return QRN_OK;
}

/* S [d_k][d_v] of one head at position: S0 and the open rows, decayed and added up. */
static void state_at(double *S, const struct qrn_gdn_open_chunk_args *a, int64_t s, int64_t h,
                     int64_t kh)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_k = a->q.shape[2],
                  d_v = a->v.shape[2];
    const int32_t position = ((const int32_t *)a->position.data)[s];
    const int64_t n_open = position % CHUNK;
    const float *S0 = (const float *)(uintptr_t)(gdn_address(&a->state, s, 0) + a->state_offset);
    const uint64_t address = gdn_address(&a->rows, s, position / CHUNK & 1) + a->rows_offset;
    const struct gdn_rows rows = gdn_rows_at(address, n_k_heads, n_v_heads, d_k);
    const double *G = rows.G + h * CHUNK;
    const double last = n_open ? G[n_open - 1] : 0.0, decay = exp(last);
    for (int64_t i = 0; i < d_k * d_v; i++) S[i] = decay * (double)S0[h * d_k * d_v + i];
    for (int64_t t = 0; t < n_open; t++)
        for (int64_t i = 0; i < d_k; i++) {
            const double w = exp(last - G[t]) * (double)rows.k[(kh * CHUNK + t) * d_k + i];
            for (int64_t j = 0; j < d_v; j++)
                S[i * d_v + j] += w * (double)rows.u[(h * CHUNK + t) * d_v + j];
        }
}

static void step(double *S, const struct qrn_gdn_open_chunk_args *a, int64_t t, int64_t h,
                 int64_t kh)
{
    const int64_t d_k = a->q.shape[2], d_v = a->v.shape[2];
    const double decay = exp(qrn_ref_get(&a->g, t, h, 0, 0)),
                 beta = qrn_ref_get(&a->beta, t, h, 0, 0);
    for (int64_t j = 0; j < d_v; j++) {
        double predicted = 0.0, o = 0.0;
        for (int64_t i = 0; i < d_k; i++) {
            S[i * d_v + j] *= decay;
            predicted += S[i * d_v + j] * qrn_ref_get(&a->k, t, kh, i, 0);
        }
        const double u = beta * (qrn_ref_get(&a->v, t, h, j, 0) - predicted);
        for (int64_t i = 0; i < d_k; i++) {
            S[i * d_v + j] += u * qrn_ref_get(&a->k, t, kh, i, 0);
            o += S[i * d_v + j] * qrn_ref_get(&a->q, t, kh, i, 0);
        }
        qrn_ref_set(&a->out, t, h, j, 0, (double)a->scale * o);
    }
}

/* The plain recurrence from the state at position; states and rows are only read. */
static void reference(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1];
    const int32_t *begin = a->seq_begin.data;
    double *S = malloc((size_t)a->q.shape[2] * (size_t)a->v.shape[2] * sizeof *S);
    if (!S) { /* no result is no agreement */
        for (int64_t i = 0; i < qrn_tensor_n_elements(&a->out); i++)
            qrn_ref_set_flat(&a->out, i, NAN);
        return;
    }
    for (int64_t s = 0; s < a->position.shape[0]; s++)
        for (int64_t h = 0; h < n_v_heads && begin[s + 1] > begin[s]; h++) {
            const int64_t kh = gdn_key_head(a->head_map, h, n_k_heads, n_v_heads);
            state_at(S, a, s, h, kh);
            for (int64_t t = begin[s]; t < begin[s + 1]; t++) step(S, a, t, h, kh);
        }
    free(S);
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    const double T = (double)a->q.shape[0], Hk = (double)a->q.shape[1], Hv = (double)a->v.shape[1],
                 dk = (double)a->q.shape[2], dv = (double)a->v.shape[2];
    const double n_seqs = (double)a->position.shape[0], open = CHUNK / 2;
    *n_flops = T * (Hv * (6 * dk * dv + 4 * open * dv) + Hk * 4 * open * dk);
    const double chunks = T / CHUNK > n_seqs ? T / CHUNK : n_seqs;
    const double state = Hv * dk * dv, rows = open * (Hk * dk + Hv * dv);
    const double element = a->q.dtype == QRN_BF16 ? 2 : 4;
    *n_bytes = element * T * (2 * Hk * dk + 2 * Hv * dv) +
               4 * (chunks * (state + rows) + T / CHUNK * state);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(gdn_open_chunk, q, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, k, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, v, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, g, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, beta, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, seq_begin, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, position, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, state, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, rows, QRN_READS),
    QRN_OPERAND(gdn_open_chunk, out, QRN_WRITES),
};

const struct qrn_op qrn_op_gdn_open_chunk = {
    .name = "gdn_open_chunk",
    .args_bytes = sizeof(struct qrn_gdn_open_chunk_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
