/* SPDX-License-Identifier: MIT
 * The walk that the variants of attention over plain buffers share.
 *
 * A unit is a tile of 32 queries with some heads of one group (64 rows at most) of one kv head; it
 * walks its blocks, each brought into the form of a page (keys in lanes), and goes to one lane. */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_WALK_H
#define QUERN_BACKENDS_CPU_ATTENTION_WALK_H

#include "backends/cpu/attention_panel.h"
#include "base/half.h"

enum { PLAIN_ROWS = 64 };

struct plain {
    const struct qrn_attention_args *a;
    const struct attention_isa *isa;
    struct qrn_tensor q, k, v, mask, out; /* 4 dimensions */
    int64_t n_tokens, n_kv, group, d_k, d_v, stride;
    int64_t n_tiles, n_parts, part_heads, n_units; /* of queries; of a group's heads */
    float *keys, *values, *p, *bias, *partial, *state;
};

struct plain_unit {
    int64_t batch, kv_head, head, n_heads, tile, token, n_tokens;
    int64_t first_block, end_block;
};

static inline struct plain_unit plain_unit_at(const struct plain *w, int64_t i)
{
    struct plain_unit u;
    int64_t begin, unused, end;
    u.tile = i % w->n_tiles;
    const int64_t part = i / w->n_tiles % w->n_parts;
    u.kv_head = i / w->n_tiles / w->n_parts % w->k.shape[2];
    u.batch = i / w->n_tiles / w->n_parts / w->k.shape[2];
    u.head = u.kv_head * w->group + part * w->part_heads;
    const int64_t heads_left = w->group - part * w->part_heads;
    u.n_heads = heads_left < w->part_heads ? heads_left : w->part_heads;
    u.token = u.tile * ATTENTION_TILE_Q;
    u.n_tokens =
        w->n_tokens - u.token < ATTENTION_TILE_Q ? w->n_tokens - u.token : ATTENTION_TILE_Q;
    const int64_t p = w->a->q_offset + u.token;
    qrn_attention_range(p, w->a->causal, w->a->window, w->n_kv, &begin, &unused);
    qrn_attention_range(p + u.n_tokens - 1, w->a->causal, w->a->window, w->n_kv, &unused, &end);
    u.first_block = begin / ATTENTION_BLOCK;
    u.end_block = (end + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    if (u.end_block < u.first_block) u.end_block = u.first_block;
    return u;
}

static inline int64_t plain_unit_cost(const struct plain_unit *u)
{
    return (u->end_block - u->first_block) * (u->n_tokens * u->n_heads + 4 * PANEL_ROWS) + 1;
}

/* n elements of a f32, f16 or bf16 row as floats. */
static inline void plain_widen(const struct plain *w, enum qrn_dtype type, const void *from,
                               float *to, int64_t n)
{
    if (type == QRN_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else if (type == QRN_F16)
        w->isa->widen(from, to, n);
    else
        for (int64_t i = 0; i < n; i++) to[i] = qrn_bf16_to_float(((const uint16_t *)from)[i]);
}

static inline const void *plain_at(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t i2,
                                   int64_t i3)
{
    const int64_t at = i0 * t->stride[0] + i1 * t->stride[1] + i2 * t->stride[2] + i3;
    return (const char *)t->data + at * (t->dtype == QRN_F32 ? 4 : 2);
}

/* Keys first .. first + n - 1 as [d_k][64]. */
static inline void plain_pack_keys(const struct plain *w, const struct plain_unit *u, int64_t first,
                                   int64_t n)
{
    enum { PART = 64 };
    float part[PART];
    for (int64_t d = 0; d < w->d_k; d += PART) {
        const int64_t n_part = w->d_k - d < PART ? w->d_k - d : PART;
        float *to = w->keys + d * ATTENTION_BLOCK;
        for (int64_t j = 0; j < n; j++) {
            plain_widen(w, w->k.dtype, plain_at(&w->k, u->batch, first + j, u->kv_head, d), part,
                        n_part);
            for (int64_t i = 0; i < n_part; i++) to[i * ATTENTION_BLOCK + j] = part[i];
        }
        for (int64_t i = 0; i < n_part && n < ATTENTION_BLOCK; i++)
            memset(to + i * ATTENTION_BLOCK + n, 0, (size_t)(ATTENTION_BLOCK - n) * sizeof *to);
    }
}

/* The mask of one row over the block's n keys, with all that masks as -INFINITY. */
static inline const float *plain_bias(const struct plain *w, int64_t i, int64_t batch, int64_t head,
                                      int64_t token, int64_t first, int64_t n)
{
    float *bias = w->bias + i * ATTENTION_BLOCK;
    memset(bias + n, 0, (size_t)(ATTENTION_BLOCK - n) * sizeof *bias);
    plain_widen(w, w->mask.dtype, plain_at(&w->mask, batch, head, token, first), bias, n);
    for (int64_t j = 0; j < n; j++)
        if (bias[j] <= ATTENTION_MASKED) bias[j] = -INFINITY;
    return bias;
}

static inline void plain_block(const struct plain *w, const struct plain_unit *u, int64_t block,
                               bool masked)
{
    const struct qrn_attention_args *a = w->a;
    const int64_t first = block * ATTENTION_BLOCK, left = w->n_kv - first;
    const int64_t n = left < ATTENTION_BLOCK ? left : ATTENTION_BLOCK;
    struct attention_panel panel = {
        .d_k = w->d_k,
        .d_v = w->d_v,
        .scale = a->scale,
        .softcap = a->softcap,
        .p = w->p,
        .k = w->keys,
        .v = plain_at(&w->v, u->batch, first, u->kv_head, 0),
        .v_stride = w->v.stride[1],
    };
    plain_pack_keys(w, u, first, n);
    if (w->v.dtype != QRN_F32) {
        for (int64_t j = 0; j < n; j++)
            plain_widen(w, w->v.dtype, plain_at(&w->v, u->batch, first + j, u->kv_head, 0),
                        w->values + j * w->d_v, w->d_v);
        panel.v = w->values;
        panel.v_stride = w->d_v;
    }
    for (int64_t r = 0; r < u->n_tokens * u->n_heads; r += PANEL_ROWS) {
        const int64_t rows_left = u->n_tokens * u->n_heads - r;
        panel.n_rows = rows_left < PANEL_ROWS ? rows_left : PANEL_ROWS;
        for (int64_t i = 0; i < panel.n_rows; i++) {
            const int64_t token = u->token + (r + i) % u->n_tokens,
                          head = u->head + (r + i) / u->n_tokens;
            int64_t begin, end;
            qrn_attention_range(a->q_offset + token, a->causal, a->window, w->n_kv, &begin, &end);
            panel.begin[i] = within_block(begin, first);
            panel.end[i] = within_block(end, first);
            panel.q[i] = plain_at(&w->q, u->batch, token, head, 0);
            panel.mask[i] = masked ? plain_bias(w, i, u->batch, head, token, first, n) : NULL;
            panel.out[i] = w->partial + i * w->stride;
        }
        if (panel_attends(&panel)) w->isa->panel(&panel);
        for (int64_t i = 0; i < panel.n_rows; i++)
            w->isa->merge(w->state + (r + i) * w->stride, panel.out[i], w->d_v);
    }
}

static inline void plain_unit_run(const struct plain *w, const struct plain_unit *u)
{
    const struct qrn_tensor *classes = &w->a->classes;
    const int64_t n_rows = u->n_tokens * u->n_heads;
    for (int64_t r = 0; r < n_rows; r++) attention_state_clear(w->state + r * w->stride, w->d_v);
    for (int64_t b = u->first_block; b < u->end_block; b++) {
        const uint8_t *row = classes->data;
        const int class = classes->n_dims ? row[u->tile * classes->stride[0] + b] : 1;
        if (class != 0) plain_block(w, u, b, w->mask.n_dims && class != 2);
    }
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t token = u->token + r % u->n_tokens, head = u->head + r / u->n_tokens;
        float *out = (float *)w->out.data + u->batch * w->out.stride[0] + token * w->out.stride[1] +
                     head * w->out.stride[2];
        attention_state_finish(w->state + r * w->stride, out, w->d_v);
    }
}

static inline int64_t plain_lane_floats(const struct qrn_attention_args *a)
{
    const int64_t d_k = a->k.shape[a->k.n_dims - 1], d_v = a->v.shape[a->v.n_dims - 1];
    const int64_t rows =
        2 * PANEL_ROWS * ATTENTION_BLOCK + (PANEL_ROWS + PLAIN_ROWS) * partial_stride(d_v);
    return rows + ATTENTION_BLOCK * (d_k + (a->v.dtype == QRN_F32 ? 0 : d_v));
}

static inline size_t attention_scratch_bytes(const void *args, int n_threads)
{
    return (size_t)(n_threads * plain_lane_floats(args)) * sizeof(float);
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

static inline void plain_open(const struct qrn_cpu_lane *lane, const struct attention_isa *isa,
                              const struct qrn_attention_args *a, struct plain *w)
{
    w->a = a;
    w->isa = isa;
    w->q = attention_batched(a->q);
    w->k = attention_batched(a->k);
    w->v = attention_batched(a->v);
    w->out = attention_batched(a->out);
    w->mask = plain_mask(a->mask);
    w->n_tokens = w->q.shape[1];
    w->n_kv = w->k.shape[1];
    w->group = w->q.shape[2] / w->k.shape[2];
    w->d_k = w->k.shape[3];
    w->d_v = w->v.shape[3];
    w->stride = partial_stride(w->d_v);
    w->n_tiles = attention_n_tiles(w->n_tokens, ATTENTION_TILE_Q);
    w->part_heads = PLAIN_ROWS / (w->n_tokens < ATTENTION_TILE_Q ? w->n_tokens : ATTENTION_TILE_Q);
    w->n_parts = attention_n_tiles(w->group, w->part_heads);
    w->n_units = w->n_tiles * w->n_parts * w->k.shape[2] * w->q.shape[0];
    w->p = (float *)lane->scratch + plain_lane_floats(a) * lane->i;
    w->bias = w->p + PANEL_ROWS * ATTENTION_BLOCK;
    w->partial = w->bias + PANEL_ROWS * ATTENTION_BLOCK;
    w->state = w->partial + PANEL_ROWS * w->stride;
    w->keys = w->state + PLAIN_ROWS * w->stride;
    w->values = w->keys + ATTENTION_BLOCK * w->d_k;
}

static inline void attention_walk(const struct qrn_cpu_lane *lane,
                                  const struct qrn_attention_args *a,
                                  const struct attention_isa *isa)
{
    struct plain w;
    int64_t total = 0, done = 0;
    if (qrn_tensor_n_elements(&a->out) == 0) return;
    plain_open(lane, isa, a, &w);
    for (int64_t i = 0; i < w.n_units; i++) {
        const struct plain_unit u = plain_unit_at(&w, i);
        total += plain_unit_cost(&u);
    }
    for (int64_t i = 0; i < w.n_units; i++) {
        const struct plain_unit u = plain_unit_at(&w, i);
        const int64_t cost = plain_unit_cost(&u);
        if ((2 * done + cost) * lane->n / (2 * total) == lane->i) plain_unit_run(&w, &u);
        done += cost;
    }
}

#endif
