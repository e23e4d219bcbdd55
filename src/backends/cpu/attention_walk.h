/* SPDX-License-Identifier: MIT
 * The walk that the variants of attention over plain buffers share: blocks are brought into the
 * form of packed pages (keys in lanes); masks and classes. */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_WALK_H
#define QUERN_BACKENDS_CPU_ATTENTION_WALK_H

#include "backends/cpu/attention_units.h"

struct plain {
    struct attention_work work;
    const struct qrn_attention_args *a;
    struct qrn_tensor q, k, v, mask, out; /* 4 dimensions */
    int64_t n_kv;
    float *bias; /* this lane's [PANEL_ROWS][64] */
};

static inline const struct plain *plain_of(const struct attention_work *w)
{
    return (const struct plain *)w;
}

static inline int64_t plain_n_tokens(const struct attention_work *w, int64_t batch)
{
    (void)batch;
    return plain_of(w)->q.shape[1];
}

static inline void plain_range(const struct attention_work *w, int64_t batch, int64_t token,
                               int64_t *begin, int64_t *end)
{
    const struct plain *p = plain_of(w);
    (void)batch;
    qrn_attention_range(p->a->q_offset + token, p->a->causal, p->a->window, p->n_kv, begin, end);
}

static inline void *plain_at(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t i2,
                             int64_t i3)
{
    const int64_t at = i0 * t->stride[0] + i1 * t->stride[1] + i2 * t->stride[2] + i3;
    return (char *)t->data + at * (t->dtype == QRN_F32 ? 4 : 2);
}

static inline const float *plain_q(const struct attention_work *w, const struct attention_unit *u,
                                   int64_t r)
{
    return plain_at(&plain_of(w)->q, u->seq, u->token + r / u->n_heads, u->head + r % u->n_heads,
                    0);
}

static inline float *plain_out(const struct attention_work *w, const struct attention_unit *u,
                               int64_t r)
{
    return plain_at(&plain_of(w)->out, u->seq, u->token + r / u->n_heads, u->head + r % u->n_heads,
                    0);
}

/* The mask of one row over the block's n keys, with all that masks as -INFINITY. */
static inline const float *plain_bias(const struct plain *p, const struct attention_unit *u,
                                      int64_t r, int64_t first, int64_t n)
{
    const int64_t token = u->token + r / u->n_heads, head = u->head + r % u->n_heads;
    float *bias = p->bias + r * ATTENTION_BLOCK;
    if (r % u->n_heads && p->mask.stride[1] == 0) return bias - r % u->n_heads * ATTENTION_BLOCK;
    p->work.isa->widen(plain_at(&p->mask, u->seq, head, token, first), p->mask.dtype, bias, n);
    for (int64_t j = 0; j < n; j++) bias[j] = bias[j] <= ATTENTION_MASKED ? -INFINITY : bias[j];
    memset(bias + n, 0, (size_t)(ATTENTION_BLOCK - n) * sizeof *bias);
    return bias;
}

/* Of the class tile that a row is in; 1 where there are no classes. */
static inline int plain_class(const struct plain *p, int64_t token, int64_t block)
{
    const struct qrn_tensor *c = &p->a->classes;
    if (c->n_dims == 0) return 1;
    return (
        (const uint8_t *)c->data)[token / ATTENTION_TILE_Q * c->stride[0] + block * c->stride[1]];
}

/* Masks of the rows; false where no row attends to anything. */
static inline bool plain_rows(const struct plain *p, const struct attention_unit *u, int64_t block,
                              int64_t n, struct attention_panel *panel)
{
    bool any = false;
    for (int64_t r = 0; r < u->n_rows; r++) {
        const int class = plain_class(p, u->token + r / u->n_heads, block);
        if (class == 0) panel->begin[r] = panel->end[r] = 0;
        if (panel->begin[r] >= panel->end[r]) continue;
        any = true;
        panel->mask[r] =
            p->mask.n_dims && class != 2 ? plain_bias(p, u, r, block * ATTENTION_BLOCK, n) : NULL;
    }
    return any;
}

static inline bool plain_block(const struct attention_work *w, const struct attention_unit *u,
                               int64_t block, struct attention_panel *panel)
{
    const struct plain *p = plain_of(w);
    const int64_t first = block * ATTENTION_BLOCK, n = at_most(p->n_kv - first, ATTENTION_BLOCK);
    const struct attention_source keys = {plain_at(&p->k, u->seq, first, u->kv_head, 0), p->k.dtype,
                                          p->k.stride[1]},
                                  values = {plain_at(&p->v, u->seq, first, u->kv_head, 0),
                                            p->v.dtype, p->v.stride[1]};
    if (!plain_rows(p, u, block, n, panel)) return false;
    w->isa->pack_key_rows(&keys, n, w->d_k, w->keys);
    w->isa->pack_values(&values, n, w->d_v, w->values);
    panel_is_packed(w, panel);
    return true;
}

static inline int64_t plain_own_floats(const struct qrn_attention_args *a)
{
    return a->mask.n_dims ? PANEL_ROWS * ATTENTION_BLOCK : 0;
}

static inline size_t attention_scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_attention_args *a = args;
    return attention_work_bytes(a->k.shape[a->k.n_dims - 1], a->v.shape[a->v.n_dims - 1],
                                plain_own_floats(a), n_threads);
}

/* The mask as [n_batch, n_heads, n_tokens, n_kv], shared where it has fewer dimensions. */
static inline struct qrn_tensor plain_mask(struct qrn_tensor m)
{
    if (m.n_dims == 0) return m;
    struct qrn_tensor t = m;
    t.n_dims = 4;
    for (int i = 0; i < 4; i++) {
        const int from = i + m.n_dims - 4;
        t.stride[i] = from < 0 ? 0 : m.stride[from];
    }
    return t;
}

static inline void attention_walk(const struct qrn_cpu_lane *lane,
                                  const struct qrn_attention_args *a,
                                  const struct attention_isa *isa)
{
    if (qrn_tensor_n_elements(&a->out) == 0) return;
    struct plain p = {.a = a,
                      .q = attention_batched(a->q),
                      .k = attention_batched(a->k),
                      .v = attention_batched(a->v),
                      .mask = plain_mask(a->mask),
                      .out = attention_batched(a->out)};
    p.n_kv = p.k.shape[1];
    p.work = (struct attention_work){.isa = isa,
                                     .n_seqs = p.q.shape[0],
                                     .n_kv_heads = p.k.shape[2],
                                     .group = p.q.shape[2] / p.k.shape[2],
                                     .d_k = p.k.shape[3],
                                     .d_v = p.v.shape[3],
                                     .scale = a->scale,
                                     .softcap = a->softcap,
                                     .n_tokens = plain_n_tokens,
                                     .range = plain_range,
                                     .q = plain_q,
                                     .out = plain_out,
                                     .block = plain_block};
    p.bias = attention_work_open(&p.work, lane, plain_own_floats(a));
    attention_choose_units(&p.work, lane->n);
    attention_run(lane, &p.work);
}

#endif
