/* SPDX-License-Identifier: MIT
 * The walk that the variants of gdn_open_chunk share: rounds of segments, each in two phases.
 *
 * A segment is a run of tokens of one sequence inside one chunk; a round has at most one segment of
 * a sequence and GDN_ROUND_TOKENS tokens.  First phase, for each segment and key head: keys join
 * the open rows, all products of keys with keys and queries; for its value heads: G and the decayed
 * products.  Second phase, for each segment, value head and block of columns of S0: u, out, and the
 * new S0 if the chunk is full.  Variants give the arithmetic of one item; how items are cut and
 * shared changes no sum. */
#ifndef QUERN_BACKENDS_CPU_GDN_OPEN_CHUNK_WALK_H
#define QUERN_BACKENDS_CPU_GDN_OPEN_CHUNK_WALK_H

#include "backends/cpu/cpu.h"
#include "core/gdn_layout.h"

enum { GDN_CHUNK = QRN_GDN_CHUNK, GDN_ROUND_TOKENS = 256, GDN_COLUMNS = 64 };

/* Rows of one head: row t at data + t * stride. */
struct gdn_head_rows {
    const float *data;
    int64_t stride;
};

/* out[t][0][s] = k_s . k_t and out[t][1][s] = k_s . q_t, for s <= open + t; the rest is free. */
struct gdn_open_dots {
    struct gdn_head_rows q, k; /* n tokens; open rows before them in the chunk */
    const float *keys;         /* [d_k][GDN_CHUNK], those of the segment too */
    float *out;                /* [n][2][GDN_CHUNK] */
    int64_t d_k;
    int n, open;
};

/* coef[t][0][s] = -(exp(G_t - G_s) * dots[t][0][s]) and coef[t][1][s] = exp(G_t - G_s) *
 * dots[t][1][s] for s <= open + t; decay[t] = exp(G_t). */
struct gdn_open_decays {
    const double *G;   /* [GDN_CHUNK] */
    const float *dots; /* [n][2][GDN_CHUNK] */
    float *coef;       /* token t at t * coef_stride: [2][GDN_CHUNK] */
    float *decay;      /* token t at t * decay_stride */
    int64_t coef_stride, decay_stride;
    int n, open;
};

/* u and out of n tokens, in n_columns columns. */
struct gdn_open_tokens {
    struct gdn_head_rows q, k, v, beta, coef, decay;
    float *out;         /* rows out_stride apart */
    const float *state; /* [d_k] rows d_v apart */
    float *u;           /* [GDN_CHUNK] rows d_v apart */
    int64_t out_stride, d_k, d_v, n_columns;
    int n, open;
    float scale;
};

/* next = exp(G_C) state + sum over s of (exp(G_C - G_s) k_s) u_s^T; next may be state. */
struct gdn_open_edge {
    const double *G;
    const float *keys, *u, *state;
    float *next;
    float *decayed_keys; /* [d_k][GDN_CHUNK], to work in */
    int64_t d_k, d_v, n_columns;
};

struct gdn_open_steps {
    void (*dots)(const struct gdn_open_dots *);
    void (*decays)(const struct gdn_open_decays *);
    void (*tokens)(const struct gdn_open_tokens *);
    void (*edge)(const struct gdn_open_edge *);
};

struct gdn_open_segment {
    int64_t token, row; /* first token in the call; first row of the round's scratch */
    int n, open;
    const float *state;
    float *next; /* NULL: the chunk stays open */
    struct gdn_rows rows;
};

struct gdn_open_round {
    struct gdn_open_segment segments[GDN_ROUND_TOKENS];
    int64_t n_segments;
    int64_t first, end, wave; /* where the walk stands: sequences, and how many chunks into each */
};

/* Segment number wave of sequence s; false past its last. */
static inline bool gdn_open_segment_at(const struct qrn_gdn_open_chunk_args *a, int64_t s,
                                       int64_t wave, struct gdn_open_segment *out)
{
    const int32_t *seq = a->seq_begin.data;
    const int64_t position = ((const int32_t *)a->position.data)[s];
    const int64_t end = position + seq[s + 1] - seq[s], c = position / GDN_CHUNK + wave;
    const int64_t edge = (c + 1) * GDN_CHUNK, from = wave ? c * GDN_CHUNK : position;
    const int64_t to = end < edge ? end : edge;
    if (from >= to) return false;
    const uint64_t state = gdn_address(&a->state, s, wave ? 1 + (c & 1) : 0) + a->state_offset;
    const uint64_t next = gdn_address(&a->state, s, 1 + ((c + 1) & 1)) + a->state_offset;
    *out = (struct gdn_open_segment){
        .token = seq[s] + from - position,
        .n = (int)(to - from),
        .open = (int)(from % GDN_CHUNK),
        .state = (const float *)(uintptr_t)state,
        .next = to == edge ? (float *)(uintptr_t)next : NULL,
        .rows = gdn_rows_at(gdn_address(&a->rows, s, c & 1) + a->rows_offset, a->q.shape[1],
                            a->v.shape[1], a->q.shape[2]),
    };
    return true;
}

/* Sequences first .. end - 1 go together: their first segments are a round, then their second
 * ... */
static inline void gdn_open_next_group(struct gdn_open_round *r,
                                       const struct qrn_gdn_open_chunk_args *a)
{
    const int32_t *seq = a->seq_begin.data;
    const int64_t n_seqs = a->position.shape[0];
    int64_t tokens = 0;
    r->first = r->end;
    r->wave = 0;
    for (; r->end < n_seqs; r->end++) {
        const int64_t n = seq[r->end + 1] - seq[r->end];
        tokens += n < GDN_CHUNK ? n : GDN_CHUNK;
        if (tokens > GDN_ROUND_TOKENS) break;
    }
}

/* The next round, the same for every lane; false when there is none.  Begins with zeros. */
static inline bool gdn_open_next_round(struct gdn_open_round *r,
                                       const struct qrn_gdn_open_chunk_args *a)
{
    for (;;) {
        int64_t row = 0;
        r->n_segments = 0;
        for (int64_t s = r->first; s < r->end; s++) {
            struct gdn_open_segment *g = &r->segments[r->n_segments];
            if (!gdn_open_segment_at(a, s, r->wave, g)) continue;
            g->row = row;
            row += g->n;
            r->n_segments++;
        }
        r->wave++;
        if (r->n_segments) return true;
        if (r->end == a->position.shape[0]) return false;
        gdn_open_next_group(r, a);
    }
}

static inline int64_t gdn_open_scratch_rows(const struct qrn_gdn_open_chunk_args *a)
{
    return a->q.shape[0] < GDN_ROUND_TOKENS ? a->q.shape[0] : GDN_ROUND_TOKENS;
}

/* A lane's own part: products of keys, later decayed keys. */
static inline int64_t gdn_open_lane_floats(const struct qrn_gdn_open_chunk_args *a)
{
    const int64_t n = a->q.shape[2] > 2 * GDN_CHUNK ? a->q.shape[2] : 2 * GDN_CHUNK;
    return n * GDN_CHUNK;
}

/* coef [rows][n_v_heads][2][GDN_CHUNK], the lanes' parts, decay [rows][n_v_heads]. */
static inline size_t gdn_open_chunk_scratch(const void *args, int n_threads)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    const size_t heads = (size_t)gdn_open_scratch_rows(a) * (size_t)a->v.shape[1];
    return (heads * (2 * GDN_CHUNK + 1) + (size_t)n_threads * (size_t)gdn_open_lane_floats(a)) *
           sizeof(float);
}

struct gdn_open_scratch {
    float *coef, *lane, *decay;
};

static inline struct gdn_open_scratch gdn_open_scratch_of(const struct qrn_cpu_lane *lane,
                                                          const struct qrn_gdn_open_chunk_args *a)
{
    struct gdn_open_scratch z;
    z.coef = lane->scratch;
    z.lane = z.coef + gdn_open_scratch_rows(a) * a->v.shape[1] * 2 * GDN_CHUNK;
    z.decay = z.lane + lane->n * gdn_open_lane_floats(a);
    z.lane += lane->i * gdn_open_lane_floats(a);
    return z;
}

static inline struct gdn_head_rows gdn_head_of(const struct qrn_tensor *t, int64_t token, int64_t h)
{
    const float *data = (const float *)t->data + token * t->stride[0] + h * t->stride[1];
    return (struct gdn_head_rows){data, t->stride[0]};
}

/* Keys of a segment into the columns of the open rows. */
static inline void gdn_open_put_keys(float *keys, struct gdn_head_rows k, int64_t d_k, int n,
                                     int open)
{
    for (int64_t i = 0; i < d_k; i += 16) {
        const int64_t m = d_k - i < 16 ? d_k - i : 16;
        for (int t = 0; t < n; t++)
            for (int64_t j = 0; j < m; j++)
                keys[(i + j) * GDN_CHUNK + open + t] = k.data[t * k.stride + i + j];
    }
}

static inline void gdn_open_first_phase(const struct gdn_open_segment *g, int64_t kh,
                                        const struct qrn_gdn_open_chunk_args *a,
                                        const struct gdn_open_scratch *z,
                                        const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_k = a->q.shape[2];
    float *keys = g->rows.k + kh * d_k * GDN_CHUNK;
    const struct gdn_open_dots dots = {
        .q = gdn_head_of(&a->q, g->token, kh), .k = gdn_head_of(&a->k, g->token, kh), .keys = keys,
        .out = z->lane, .d_k = d_k, .n = g->n, .open = g->open};
    gdn_open_put_keys(keys, dots.k, d_k, g->n, g->open);
    steps->dots(&dots);
    for (int64_t h = 0; h < n_v_heads; h++) {
        if (gdn_key_head(a->head_map, h, n_k_heads, n_v_heads) != kh) continue;
        double *G = g->rows.G + h * GDN_CHUNK, sum = g->open ? G[g->open - 1] : 0.0;
        const struct gdn_head_rows gate = gdn_head_of(&a->g, g->token, h);
        for (int t = 0; t < g->n; t++) G[g->open + t] = sum += (double)gate.data[t * gate.stride];
        const struct gdn_open_decays decays = {
            .G = G, .dots = dots.out, .n = g->n, .open = g->open,
            .coef = z->coef + (g->row * n_v_heads + h) * 2 * GDN_CHUNK,
            .coef_stride = n_v_heads * 2 * GDN_CHUNK,
            .decay = z->decay + g->row * n_v_heads + h, .decay_stride = n_v_heads};
        steps->decays(&decays);
    }
}

/* Columns j .. j + n - 1 of value head h. */
static inline void gdn_open_second_phase(const struct gdn_open_segment *g, int64_t h, int64_t j,
                                         int64_t n, const struct qrn_gdn_open_chunk_args *a,
                                         const struct gdn_open_scratch *z,
                                         const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_k = a->q.shape[2],
                  d_v = a->v.shape[2], kh = gdn_key_head(a->head_map, h, n_k_heads, n_v_heads);
    float *u = g->rows.u + h * GDN_CHUNK * d_v + j;
    const int64_t at = h * d_k * d_v + j;
    const struct gdn_open_tokens tokens = {
        .q = gdn_head_of(&a->q, g->token, kh), .k = gdn_head_of(&a->k, g->token, kh),
        .v = {gdn_head_of(&a->v, g->token, h).data + j, a->v.stride[0]},
        .beta = gdn_head_of(&a->beta, g->token, h),
        .coef = {z->coef + (g->row * n_v_heads + h) * 2 * GDN_CHUNK, n_v_heads * 2 * GDN_CHUNK},
        .decay = {z->decay + g->row * n_v_heads + h, n_v_heads},
        .out = (float *)a->out.data + g->token * a->out.stride[0] + h * a->out.stride[1] + j,
        .out_stride = a->out.stride[0], .state = g->state + at, .u = u, .d_k = d_k, .d_v = d_v,
        .n_columns = n, .n = g->n, .open = g->open, .scale = a->scale};
    steps->tokens(&tokens);
    if (!g->next) return;
    const struct gdn_open_edge edge = {.G = g->rows.G + h * GDN_CHUNK,
                                       .keys = g->rows.k + kh * d_k * GDN_CHUNK,
                                       .u = u,
                                       .state = g->state + at,
                                       .next = g->next + at,
                                       .decayed_keys = z->lane,
                                       .d_k = d_k,
                                       .d_v = d_v,
                                       .n_columns = n};
    steps->edge(&edge);
}

/* Columns of an item of the second phase: all, or fewer when there are few heads for the lanes. */
static inline int64_t gdn_open_block_columns(int64_t n_heads, int64_t d_v, int n_lanes)
{
    int64_t width = (d_v + GDN_COLUMNS - 1) / GDN_COLUMNS * GDN_COLUMNS;
    while (width > 16 && n_heads * ((d_v + width - 1) / width) < 2 * n_lanes && n_lanes > 1)
        width = (width / 2 + 15) / 16 * 16;
    return width;
}

static inline void gdn_open_chunk_walk(const struct qrn_cpu_lane *lane,
                                       const struct qrn_gdn_open_chunk_args *a,
                                       const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_v = a->v.shape[2];
    const struct gdn_open_scratch z = gdn_open_scratch_of(lane, a);
    struct gdn_open_round r;
    r.first = r.end = r.wave = 0;
    for (bool again = false; gdn_open_next_round(&r, a); again = true) {
        int64_t begin, end;
        if (again) qrn_cpu_lane_wait(lane);
        qrn_cpu_share(lane, r.n_segments * n_k_heads, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            gdn_open_first_phase(&r.segments[i / n_k_heads], i % n_k_heads, a, &z, steps);
        qrn_cpu_lane_wait(lane);
        const int64_t n_heads = r.n_segments * n_v_heads;
        const int64_t width = gdn_open_block_columns(n_heads, d_v, lane->n);
        const int64_t n_blocks = (d_v + width - 1) / width;
        qrn_cpu_share(lane, n_heads * n_blocks, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            const int64_t head = i / n_blocks, j = i % n_blocks * width;
            gdn_open_second_phase(&r.segments[head / n_v_heads], head % n_v_heads, j,
                                  d_v - j < width ? d_v - j : width, a, &z, steps);
        }
    }
}

#endif
