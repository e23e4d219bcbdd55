/* SPDX-License-Identifier: MIT
 * What the ops of the gated delta net check alike. */
#ifndef QUERN_OPS_GDN_CHECK_H
#define QUERN_OPS_GDN_CHECK_H

#include <inttypes.h>
#include <math.h>
#include "core/gdn_layout.h"
#include "core/op.h"

struct gdn_sizes {
    int64_t n_tokens, n_seqs, n_k_heads, n_v_heads, d_k, d_v;
};

static inline enum qrn_status gdn_check_f32(const char *op, const char *name,
                                            const struct qrn_tensor *t, struct qrn_error *err)
{
    return qrn_check_dtype(op, name, t, err, 1, QRN_F32);
}

static inline enum qrn_status gdn_check_f32_or_bf16(const char *op, const char *name,
                                                    const struct qrn_tensor *t,
                                                    struct qrn_error *err)
{
    return qrn_check_dtype(op, name, t, err, 2, QRN_F32, QRN_BF16);
}

/* shape[dim] of a tensor is 1 or more. */
static inline enum qrn_status gdn_check_not_empty(const char *op, const char *name,
                                                  const struct qrn_tensor *t, int dim,
                                                  struct qrn_error *err)
{
    if (t->shape[dim] >= 1) return QRN_OK;
    return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s.shape[%d] is %" PRId64 ", wants 1 or more", op,
                    name, dim, t->shape[dim]);
}

static inline enum qrn_status gdn_check_heads(const char *op, enum qrn_head_map map,
                                              int64_t n_k_heads, int64_t n_v_heads,
                                              struct qrn_error *err)
{
    if (map != QRN_HEADS_BLOCK && map != QRN_HEADS_TILED)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: head_map is %d, wants QRN_HEADS_BLOCK (%d) or QRN_HEADS_TILED (%d)",
                        op, (int)map, QRN_HEADS_BLOCK, QRN_HEADS_TILED);
    if (n_k_heads < 1 || n_v_heads < 1 || n_v_heads % n_k_heads != 0)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: %" PRId64 " value heads, wants a multiple of the %" PRId64
                        " key heads",
                        op, n_v_heads, n_k_heads);
    return QRN_OK;
}

static inline enum qrn_status gdn_check_scale(const char *op, float scale, struct qrn_error *err)
{
    if (isfinite(scale)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: scale is %g, wants a finite number", op,
                    (double)scale);
}

/* The type and shape of seq_begin; n_seqs is what it says, or 1 when it is absent. */
static inline enum qrn_status gdn_check_ragged(const char *op, const struct qrn_tensor *seq_begin,
                                               int64_t *n_seqs, struct qrn_error *err)
{
    *n_seqs = 1;
    if (!qrn_tensor_present(seq_begin)) return QRN_OK;
    QRN_TRY(qrn_check_dtype(op, "seq_begin", seq_begin, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(op, "seq_begin", seq_begin, err, 1, (int64_t)-1));
    QRN_TRY(gdn_check_not_empty(op, "seq_begin", seq_begin, 0, err));
    *n_seqs = seq_begin->shape[0] - 1;
    return QRN_OK;
}

/* The numbers in seq_begin. */
static inline enum qrn_status gdn_check_ragged_data(const char *op,
                                                    const struct qrn_tensor *seq_begin,
                                                    int64_t n_tokens, struct qrn_error *err)
{
    if (!qrn_tensor_present(seq_begin)) return QRN_OK;
    const int32_t *begin = seq_begin->data;
    const int64_t n_seqs = seq_begin->shape[0] - 1;
    if (begin[0] != 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: seq_begin[0] is %d, wants 0", op, begin[0]);
    for (int64_t s = 0; s < n_seqs; s++)
        if (begin[s + 1] < begin[s])
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "%s: seq_begin[%" PRId64 "] is %d, wants %d or more", op, s + 1,
                            begin[s + 1], begin[s]);
    if (begin[n_seqs] != n_tokens)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: seq_begin[%" PRId64 "] is %d, wants %" PRId64 " (the tokens)", op,
                        n_seqs, begin[n_seqs], n_tokens);
    return QRN_OK;
}

/* Positions are 0 or more, and what follows them fits in I32. */
static inline enum qrn_status gdn_check_position_data(const char *op,
                                                      const struct qrn_tensor *position,
                                                      const struct qrn_tensor *seq_begin,
                                                      struct qrn_error *err)
{
    const int32_t *p = position->data, *begin = seq_begin->data;
    for (int64_t s = 0; s < position->shape[0]; s++)
        if (p[s] < 0 || p[s] > INT32_MAX - (begin[s + 1] - begin[s]))
            return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: position[%" PRId64 "] is %d, wants 0 to %d",
                            op, s, p[s], INT32_MAX - (begin[s + 1] - begin[s]));
    return QRN_OK;
}

/* q, k, v, g, beta and out as the recurrence and the open chunk take them: g and beta are float32,
 * the others of one type. */
static inline enum qrn_status
gdn_check_tokens(const char *op, const struct qrn_tensor *q, const struct qrn_tensor *k,
                 const struct qrn_tensor *v, const struct qrn_tensor *g,
                 const struct qrn_tensor *beta, const struct qrn_tensor *out, enum qrn_dtype type,
                 struct gdn_sizes *z, struct qrn_error *err)
{
    static const char *const names[] = {"q", "k", "v", "g", "beta", "out"};
    const struct qrn_tensor *const all[] = {q, k, v, g, beta, out};
    for (int i = 0; i < 6; i++)
        QRN_TRY(qrn_check_dtype(op, names[i], all[i], err, 1, i == 3 || i == 4 ? QRN_F32 : type));
    QRN_TRY(qrn_check_shape(op, "q", q, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    z->n_tokens = q->shape[0];
    z->n_k_heads = q->shape[1];
    z->d_k = q->shape[2];
    QRN_TRY(qrn_check_same_shape(op, "k", k, "q", q, err));
    QRN_TRY(qrn_check_shape(op, "v", v, err, 3, z->n_tokens, (int64_t)-1, (int64_t)-1));
    z->n_v_heads = v->shape[1];
    z->d_v = v->shape[2];
    QRN_TRY(gdn_check_not_empty(op, "q", q, 2, err));
    QRN_TRY(gdn_check_not_empty(op, "v", v, 2, err));
    QRN_TRY(qrn_check_shape(op, "g", g, err, 2, z->n_tokens, z->n_v_heads));
    QRN_TRY(qrn_check_shape(op, "beta", beta, err, 2, z->n_tokens, z->n_v_heads));
    return qrn_check_same_shape(op, "out", out, "v", v, err);
}

/* --- the chunk stages --- */

/* Keys (or queries) of a stage, and values of the same type; v may be NULL. */
static inline enum qrn_status gdn_check_stage(const char *op, const char *k_name,
                                              const struct qrn_tensor *k, const char *v_name,
                                              const struct qrn_tensor *v, struct gdn_sizes *z,
                                              struct qrn_error *err)
{
    QRN_TRY(gdn_check_f32_or_bf16(op, k_name, k, err));
    QRN_TRY(qrn_check_shape(op, k_name, k, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    QRN_TRY(gdn_check_not_empty(op, k_name, k, 2, err));
    z->n_tokens = k->shape[0];
    z->n_k_heads = k->shape[1];
    z->d_k = k->shape[2];
    if (v) {
        QRN_TRY(qrn_check_dtype(op, v_name, v, err, 1, k->dtype));
        QRN_TRY(qrn_check_shape(op, v_name, v, err, 3, z->n_tokens, (int64_t)-1, (int64_t)-1));
        QRN_TRY(gdn_check_not_empty(op, v_name, v, 2, err));
        z->n_v_heads = v->shape[1];
        z->d_v = v->shape[2];
    }
    return QRN_OK;
}

/* Another tensor of the stage: the type and shape given. */
static inline enum qrn_status gdn_check_stage_tensor(const char *op, const char *name,
                                                     const struct qrn_tensor *t,
                                                     enum qrn_dtype type, int64_t n0, int64_t n1,
                                                     int64_t n2, struct qrn_error *err)
{
    QRN_TRY(qrn_check_dtype(op, name, t, err, 1, type));
    return qrn_check_shape(op, name, t, err, 3, n0, n1, n2);
}

/* beta (may be NULL) and G, [n_tokens, n_v_heads]. */
static inline enum qrn_status gdn_check_stage_gates(const char *op, const struct qrn_tensor *beta,
                                                    const struct qrn_tensor *G,
                                                    const struct gdn_sizes *z,
                                                    struct qrn_error *err)
{
    if (beta) {
        QRN_TRY(gdn_check_f32(op, "beta", beta, err));
        QRN_TRY(qrn_check_shape(op, "beta", beta, err, 2, z->n_tokens, z->n_v_heads));
    }
    QRN_TRY(qrn_check_dtype(op, "G", G, err, 2, QRN_F32, QRN_F64));
    return qrn_check_shape(op, "G", G, err, 2, z->n_tokens, z->n_v_heads);
}

/* h has a place for each chunk. */
static inline enum qrn_status gdn_check_chunks_data(const char *op, const struct qrn_tensor *h,
                                                    const struct qrn_tensor *seq_begin,
                                                    int64_t n_tokens, struct qrn_error *err)
{
    QRN_TRY(gdn_check_ragged_data(op, seq_begin, n_tokens, err));
    const int64_t n = gdn_chunks_before(seq_begin, n_tokens, gdn_n_seqs(seq_begin));
    if (h->shape[0] >= n) return QRN_OK;
    return qrn_fail(err, QRN_ERR_SHAPE,
                    "%s: h.shape[0] is %" PRId64 ", wants the %" PRId64 " chunks or more", op,
                    h->shape[0], n);
}

/* exp(G_i - G_j) of two tokens, for references. */
static inline double gdn_ref_decay(const struct qrn_tensor *G, int64_t h, int64_t i, int64_t j)
{
    return exp(qrn_ref_get(G, i, h, 0, 0) - qrn_ref_get(G, j, h, 0, 0));
}

static inline double gdn_ref_dot(const struct qrn_tensor *a, int64_t i, const struct qrn_tensor *b,
                                 int64_t j, int64_t head)
{
    double sum = 0.0;
    for (int64_t c = 0; c < a->shape[2]; c++)
        sum += qrn_ref_get(a, i, head, c, 0) * qrn_ref_get(b, j, head, c, 0);
    return sum;
}

#endif
