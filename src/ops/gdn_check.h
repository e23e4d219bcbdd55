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
    return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s.shape[%d] is %" PRId64 ", wants 1 or more", op, name,
                    dim, t->shape[dim]);
}

static inline enum qrn_status gdn_check_heads(const char *op, enum qrn_head_map map,
                                              int64_t n_k_heads, int64_t n_v_heads,
                                              struct qrn_error *err)
{
    if (map != QRN_HEADS_BLOCK && map != QRN_HEADS_TILED)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: head_map is %d, wants QRN_HEADS_BLOCK (%d) or QRN_HEADS_TILED (%d)", op,
                        (int)map, QRN_HEADS_BLOCK, QRN_HEADS_TILED);
    if (n_k_heads < 1 || n_v_heads < 1 || n_v_heads % n_k_heads != 0)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: %" PRId64 " value heads, wants a multiple of the %" PRId64 " key heads", op,
                        n_v_heads, n_k_heads);
    return QRN_OK;
}

static inline enum qrn_status gdn_check_scale(const char *op, float scale, struct qrn_error *err)
{
    if (isfinite(scale)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: scale is %g, wants a finite number", op, (double)scale);
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
static inline enum qrn_status gdn_check_ragged_data(const char *op, const struct qrn_tensor *seq_begin,
                                                    int64_t n_tokens, struct qrn_error *err)
{
    if (!qrn_tensor_present(seq_begin)) return QRN_OK;
    const int32_t *begin = seq_begin->data;
    const int64_t n_seqs = seq_begin->shape[0] - 1;
    if (begin[0] != 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: seq_begin[0] is %d, wants 0", op, begin[0]);
    for (int64_t s = 0; s < n_seqs; s++)
        if (begin[s + 1] < begin[s])
            return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: seq_begin[%" PRId64 "] is %d, wants %d or more", op,
                            s + 1, begin[s + 1], begin[s]);
    if (begin[n_seqs] != n_tokens)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: seq_begin[%" PRId64 "] is %d, wants %" PRId64 " (the tokens)", op, n_seqs,
                        begin[n_seqs], n_tokens);
    return QRN_OK;
}

/* Positions are 0 or more, and what follows them fits in I32. */
static inline enum qrn_status gdn_check_position_data(const char *op, const struct qrn_tensor *position,
                                                      const struct qrn_tensor *seq_begin,
                                                      struct qrn_error *err)
{
    const int32_t *p = position->data, *begin = seq_begin->data;
    for (int64_t s = 0; s < position->shape[0]; s++)
        if (p[s] < 0 || p[s] > INT32_MAX - (begin[s + 1] - begin[s]))
            return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: position[%" PRId64 "] is %d, wants 0 to %d", op, s,
                            p[s], INT32_MAX - (begin[s + 1] - begin[s]));
    return QRN_OK;
}

/* q, k, v, g, beta and out as the recurrence and the open chunk take them: float32. */
static inline enum qrn_status gdn_check_tokens(const char *op, const struct qrn_tensor *q,
                                               const struct qrn_tensor *k, const struct qrn_tensor *v,
                                               const struct qrn_tensor *g, const struct qrn_tensor *beta,
                                               const struct qrn_tensor *out, struct gdn_sizes *z,
                                               struct qrn_error *err)
{
    static const char *const names[] = {"q", "k", "v", "g", "beta", "out"};
    const struct qrn_tensor *const all[] = {q, k, v, g, beta, out};
    for (int i = 0; i < 6; i++) QRN_TRY(gdn_check_f32(op, names[i], all[i], err));
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

#endif
