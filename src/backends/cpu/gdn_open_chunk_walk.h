/* SPDX-License-Identifier: MIT
 * The walk that the variants of gdn_open_chunk share.
 *
 * A segment (gdn_open_rounds.h) has two phases.  The first one, for each key
 * head: keys join the open rows, all products of keys with keys and queries; for its value heads: G
 * and the decayed products.  The second phase, for each value head and block of columns of S0: u,
 * out, and the new S0 if the chunk is full.
 *
 * Where key heads can be shared evenly, a lane takes whole ones through all tokens and waits for
 * nobody.  Otherwise segments go in rounds, each phase shared by all lanes.  Variants give the
 * arithmetic of one item (gdn_open_steps.h); how items are cut and shared changes no sum. */
#ifndef QUERN_BACKENDS_CPU_GDN_OPEN_CHUNK_WALK_H
#define QUERN_BACKENDS_CPU_GDN_OPEN_CHUNK_WALK_H

#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/gdn_open_reads.h"
#include "backends/cpu/gdn_open_rounds.h"

static inline int64_t gdn_open_scratch_rows(const struct qrn_gdn_open_chunk_args *a)
{
    return a->q.shape[0] < GDN_ROUND_TOKENS ? a->q.shape[0] : GDN_ROUND_TOKENS;
}

/* Each lane the same number of whole key heads, or nearly. */
static inline bool gdn_open_whole_heads(const struct qrn_gdn_open_chunk_args *a, int n_lanes)
{
    const int64_t n = a->q.shape[1];
    return n % n_lanes == 0 || n > 8 * (int64_t)n_lanes;
}

/* What lies in scratch, in floats: of each lane, and of what a round's second phase takes over. */
struct gdn_open_sizes {
    int64_t dots, columns, panel, lane;
    int64_t pairs, coef, decay;
};

static inline struct gdn_open_sizes gdn_open_sizes_of(const struct qrn_gdn_open_chunk_args *a,
                                                      int n_lanes)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_k = a->q.shape[2];
    const bool whole = gdn_open_whole_heads(a, n_lanes);
    const int64_t rows = whole ? GDN_CHUNK : gdn_open_scratch_rows(a);
    struct gdn_open_sizes z = {.dots = 2 * GDN_CHUNK * GDN_CHUNK,
                               .columns = d_k * GDN_CHUNK,
                               .panel = (d_k + GDN_CHUNK) * GDN_PANEL,
                               .pairs = 2 * rows * d_k * (whole ? 1 : n_k_heads),
                               .coef = 2 * rows * GDN_CHUNK * (whole ? 1 : n_v_heads),
                               .decay = rows * (whole ? 1 : n_v_heads)};
    z.lane = z.dots + z.columns + z.panel + (whole ? z.pairs + z.coef + z.decay : 0);
    return z;
}

/* What these kernels take: they sum in float32 whatever acts permits. */
static inline bool gdn_open_chunk_takes(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    return a->q.dtype == QRN_F32;
}

static inline size_t gdn_open_chunk_scratch(const void *args, int n_threads)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    const struct gdn_open_sizes z = gdn_open_sizes_of(a, n_threads);
    const int64_t shared = gdn_open_whole_heads(a, n_threads) ? 0 : z.pairs + z.coef + z.decay;
    return (size_t)(n_threads * z.lane + shared) * sizeof(float);
}

struct gdn_open_scratch {
    float *dots, *columns, *panel;
    float *pairs, *coef, *decay; /* of a segment's head, or of all heads of a round */
    bool asks_far;               /* as gdn_open_asks_far says of this processor */
};

static inline struct gdn_open_scratch gdn_open_scratch_of(const struct qrn_cpu_lane *lane,
                                                          const struct qrn_gdn_open_chunk_args *a)
{
    const struct gdn_open_sizes sizes = gdn_open_sizes_of(a, lane->n);
    struct gdn_open_scratch z;
    z.asks_far = gdn_open_asks_far(lane->features);
    z.dots = (float *)lane->scratch + lane->i * sizes.lane;
    z.columns = z.dots + sizes.dots;
    z.panel = z.columns + sizes.columns;
    z.pairs = gdn_open_whole_heads(a, lane->n) ? z.panel + sizes.panel
                                               : (float *)lane->scratch + lane->n * sizes.lane;
    z.coef = z.pairs + sizes.pairs;
    z.decay = z.coef + sizes.coef;
    return z;
}

static inline struct gdn_head_rows gdn_head_of(const struct qrn_tensor *t, int64_t token, int64_t h)
{
    const float *data = (const float *)t->data + token * t->stride[0] + h * t->stride[1];
    return (struct gdn_head_rows){data, t->stride[0]};
}

static inline struct gdn_pairs gdn_open_pairs(const struct gdn_open_segment *g, int64_t kh,
                                              const struct qrn_gdn_open_chunk_args *a,
                                              const float *tiles)
{
    return (struct gdn_pairs){.tiles = tiles,
                              .k = gdn_head_of(&a->k, g->token, kh).data,
                              .q = gdn_head_of(&a->q, g->token, kh).data};
}

/* Keys join the open rows; keys and queries are packed, their products taken. */
static inline void gdn_open_first_phase(const struct gdn_open_segment *g, int64_t kh,
                                        const struct qrn_gdn_open_chunk_args *a, float *tiles,
                                        const struct gdn_open_scratch *z,
                                        struct gdn_open_reads *reads,
                                        const struct gdn_open_steps *steps)
{
    const int64_t d_k = a->q.shape[2];
    const struct gdn_head_rows k = gdn_head_of(&a->k, g->token, kh);
    float *rows = g->rows.k + kh * GDN_CHUNK * d_k;
    for (int t = 0; t < g->n; t++)
        memcpy(rows + (g->open + t) * d_k, k.data + t * k.stride, (size_t)d_k * sizeof *rows);
    if (g->n > 1) steps->pack(tiles, k, gdn_head_of(&a->q, g->token, kh), d_k, g->n);
    const struct gdn_open_dots dots = {.pairs = gdn_open_pairs(g, kh, a, tiles),
                                       .rows = rows,
                                       .columns = z->columns,
                                       .out = z->dots,
                                       .reads = reads,
                                       .d_k = d_k,
                                       .n = g->n,
                                       .open = g->open};
    steps->dots(&dots);
}

/* G and the decayed products of value head h, after the first phase of its key head. */
static inline void gdn_open_decays_of(const struct gdn_open_segment *g, int64_t h,
                                      const struct qrn_gdn_open_chunk_args *a,
                                      const struct gdn_open_scratch *z, float *coef, float *decay,
                                      const struct gdn_open_steps *steps)
{
    double *G = g->rows.G + h * GDN_CHUNK, sum = g->open ? G[g->open - 1] : 0.0;
    const struct gdn_head_rows gate = gdn_head_of(&a->g, g->token, h);
    for (int t = 0; t < g->n; t++) G[g->open + t] = sum += (double)gate.data[t * gate.stride];
    const struct gdn_open_decays decays = {.G = G, .dots = z->dots, .coef = coef, .decay = decay,
                                           .n = g->n, .open = g->open};
    steps->decays(&decays);
}

/* Columns j .. j + n - 1 of value head h. */
static inline void gdn_open_second_phase(const struct gdn_open_segment *g, int64_t h, int64_t j,
                                         int64_t n, const struct qrn_gdn_open_chunk_args *a,
                                         const float *tiles, const float *coef, const float *decay,
                                         const struct gdn_open_scratch *z,
                                         struct gdn_open_reads *reads,
                                         const struct gdn_open_steps *steps)
{
    const int64_t d_k = a->q.shape[2], d_v = a->v.shape[2],
                  kh = gdn_key_head(a->head_map, h, a->q.shape[1], a->v.shape[1]);
    float *u = g->rows.u + h * GDN_CHUNK * d_v + j;
    const int64_t at = h * d_k * d_v + j;
    const struct gdn_open_tokens tokens = {
        .pairs = gdn_open_pairs(g, kh, a, tiles),
        .v = {gdn_head_of(&a->v, g->token, h).data + j, a->v.stride[0]},
        .beta = gdn_head_of(&a->beta, g->token, h), .coef = coef, .decay = decay,
        .out = (float *)a->out.data + g->token * a->out.stride[0] + h * a->out.stride[1] + j,
        .out_stride = a->out.stride[0], .state = g->state + at, .u = u, .panel = z->panel,
        .reads = reads, .d_k = d_k, .d_v = d_v, .n_columns = n, .n = g->n, .open = g->open,
        .scale = a->scale};
    steps->tokens(&tokens);
    if (!g->next) return;
    const struct gdn_open_edge edge = {.G = g->rows.G + h * GDN_CHUNK,
                                       .keys = g->rows.k + kh * GDN_CHUNK * d_k,
                                       .u = u,
                                       .state = g->state + at,
                                       .next = g->next + at,
                                       .decayed_keys = z->columns,
                                       .d_k = d_k,
                                       .d_v = d_v,
                                       .n_columns = n};
    steps->edge(&edge);
}

/* One key head and its value heads through a segment. */
static inline void gdn_open_whole_head(const struct gdn_open_segment *g, int64_t kh,
                                       const struct qrn_gdn_open_chunk_args *a,
                                       const struct gdn_open_scratch *z,
                                       struct gdn_open_reads *reads,
                                       const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1];
    gdn_open_first_phase(g, kh, a, z->pairs, z, reads, steps);
    for (int64_t h = 0; h < n_v_heads; h++) {
        if (gdn_key_head(a->head_map, h, n_k_heads, n_v_heads) != kh) continue;
        gdn_open_decays_of(g, h, a, z, z->coef, z->decay, steps);
        gdn_open_second_phase(g, h, 0, a->v.shape[2], a, z->pairs, z->coef, z->decay, z, reads,
                              steps);
    }
}

/* A key head of a sequence through all of its tokens: a state stays in a lane's cache. */
static inline void gdn_open_head(int64_t s, int64_t kh, const struct qrn_gdn_open_chunk_args *a,
                                 const struct gdn_open_scratch *z,
                                 const struct gdn_open_steps *steps)
{
    struct gdn_open_segment g;
    for (int64_t wave = 0; gdn_open_segment_at(a, s, wave, &g); wave++)
        gdn_open_whole_head(&g, kh, a, z, NULL, steps);
}

/* Key heads kh .. end - 1 of a sequence whose one token is g. */
static inline void gdn_open_token_heads(const struct gdn_open_segment *g, int64_t kh, int64_t end,
                                        const struct qrn_gdn_open_chunk_args *a,
                                        const struct gdn_open_scratch *z,
                                        const struct gdn_open_steps *steps)
{
    struct gdn_open_reads reads = {
        .a = a, .rows = g->rows, .state = g->state, .n_rows = g->open + 1, .kh = kh, .end = end,
        .far = z->asks_far};
    struct gdn_open_reads *ahead = a->v.shape[2] == steps->columns_alone ? &reads : NULL;
    if (ahead) gdn_open_ask(ahead, GDN_READS_AHEAD);
    for (; kh < end; kh++) gdn_open_whole_head(g, kh, a, z, ahead, steps);
}

/* Part i of n of a sequence's key heads, whose states lie in a row. */
static inline void gdn_open_part(int64_t s, int64_t i, int64_t n, const struct qrn_gdn_open_chunk_args *a,
                                 const struct gdn_open_scratch *z, const struct gdn_open_steps *steps)
{
    const int32_t *seq = a->seq_begin.data;
    const int64_t n_heads = a->q.shape[1], end = n_heads * (i + 1) / n;
    int64_t kh = n_heads * i / n;
    struct gdn_open_segment g;
    if (seq[s + 1] - seq[s] == 1 && gdn_open_segment_at(a, s, 0, &g))
        gdn_open_token_heads(&g, kh, end, a, z, steps);
    else
        for (; kh < end; kh++) gdn_open_head(s, kh, a, z, steps);
}

/* Lanes take key heads of prompts in turns, and parts of sequences with a token each, if there are some for each lane;
 * else a lane has the same part of all. */
static inline void gdn_open_by_heads(const struct qrn_cpu_lane *lane,
                                     const struct qrn_gdn_open_chunk_args *a,
                                     const struct gdn_open_scratch *z,
                                     const struct gdn_open_steps *steps)
{
    enum { TURNS_FROM_SEQS = 4 };
    const int64_t n_seqs = a->position.shape[0];
    const bool tokens_alone = a->q.shape[0] <= n_seqs;
    const int64_t n_parts = tokens_alone ? lane->n : a->q.shape[1];
    if (tokens_alone && n_seqs < TURNS_FROM_SEQS) {
        for (int64_t s = 0; s < n_seqs; s++) gdn_open_part(s, lane->i, n_parts, a, z, steps);
        return;
    }
    for (int64_t i; (i = qrn_cpu_take(lane)) < n_seqs * n_parts;)
        gdn_open_part(i / n_parts, i % n_parts, n_parts, a, z, steps);
}

/* Columns of an item of the second phase: all, or fewer when there are few heads for the lanes. */
static inline int64_t gdn_open_block_columns(int64_t n_heads, int64_t d_v, int n_lanes)
{
    int64_t width = (d_v + GDN_PANEL - 1) / GDN_PANEL * GDN_PANEL;
    while (width > 16 && n_heads * ((d_v + width - 1) / width) < 4 * n_lanes)
        width = (width / 2 + 15) / 16 * 16;
    return width;
}

static inline void gdn_open_round_first(const struct gdn_open_segment *g, int64_t kh,
                                        const struct qrn_gdn_open_chunk_args *a,
                                        const struct gdn_open_scratch *z,
                                        const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_k = a->q.shape[2];
    gdn_open_first_phase(g, kh, a, z->pairs + (g->row * n_k_heads + kh * g->n) * 2 * d_k, z, NULL,
                         steps);
    for (int64_t h = 0; h < n_v_heads; h++) {
        const int64_t row = g->row * n_v_heads + h * g->n;
        if (gdn_key_head(a->head_map, h, n_k_heads, n_v_heads) == kh)
            gdn_open_decays_of(g, h, a, z, z->coef + row * 2 * GDN_CHUNK, z->decay + row, steps);
    }
}

static inline void gdn_open_round_second(const struct gdn_open_segment *g, int64_t h, int64_t j,
                                         int64_t n, const struct qrn_gdn_open_chunk_args *a,
                                         const struct gdn_open_scratch *z,
                                         const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_k = a->q.shape[2],
                  kh = gdn_key_head(a->head_map, h, n_k_heads, n_v_heads);
    const int64_t row = g->row * n_v_heads + h * g->n;
    gdn_open_second_phase(g, h, j, n, a, z->pairs + (g->row * n_k_heads + kh * g->n) * 2 * d_k,
                          z->coef + row * 2 * GDN_CHUNK, z->decay + row, z, NULL, steps);
}

static inline void gdn_open_by_rounds(const struct qrn_cpu_lane *lane,
                                      const struct qrn_gdn_open_chunk_args *a,
                                      const struct gdn_open_scratch *z,
                                      const struct gdn_open_steps *steps)
{
    const int64_t n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1], d_v = a->v.shape[2];
    struct gdn_open_round r;
    r.first = r.end = r.wave = 0;
    for (bool again = false; gdn_open_next_round(&r, a); again = true) {
        int64_t begin, end;
        if (again) qrn_cpu_lane_wait(lane);
        qrn_cpu_share(lane, r.n_segments * n_k_heads, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            gdn_open_round_first(&r.segments[i / n_k_heads], i % n_k_heads, a, z, steps);
        qrn_cpu_lane_wait(lane);
        const int64_t n_heads = r.n_segments * n_v_heads;
        const int64_t width = gdn_open_block_columns(n_heads, d_v, lane->n);
        const int64_t n_blocks = (d_v + width - 1) / width;
        qrn_cpu_share(lane, n_heads * n_blocks, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            const int64_t head = i / n_blocks, j = i % n_blocks * width;
            gdn_open_round_second(&r.segments[head / n_v_heads], head % n_v_heads, j,
                                  d_v - j < width ? d_v - j : width, a, z, steps);
        }
    }
}

static inline void gdn_open_chunk_walk(const struct qrn_cpu_lane *lane,
                                       const struct qrn_gdn_open_chunk_args *a,
                                       const struct gdn_open_steps *steps)
{
    const struct gdn_open_scratch z = gdn_open_scratch_of(lane, a);
    if (gdn_open_whole_heads(a, lane->n))
        gdn_open_by_heads(lane, a, &z, steps);
    else
        gdn_open_by_rounds(lane, a, &z, steps);
}

#endif
