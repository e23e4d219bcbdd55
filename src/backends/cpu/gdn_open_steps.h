/* SPDX-License-Identifier: MIT
 * What variants of gdn_open_chunk give: the arithmetic of one item of gdn_open_chunk_walk.h. */
#ifndef QUERN_BACKENDS_CPU_GDN_OPEN_STEPS_H
#define QUERN_BACKENDS_CPU_GDN_OPEN_STEPS_H

#include "core/gdn_layout.h"

enum {
    GDN_CHUNK = QRN_GDN_CHUNK,
    GDN_PANEL = 32 /* columns that a variant may copy together */
};

/* Rows of one head: row t at data + t * stride. */
struct gdn_head_rows {
    const float *data;
    int64_t stride;
};

/* Keys and queries of a segment, by tiles of tokens (gdn_tile): of tile t .. t + R - 1 at
 * 2 * t * d_k, for each i the R keys, then the R queries.  Of a token alone: the rows themselves. */
struct gdn_pairs {
    const float *tiles, *k, *q;
};

/* Tokens of the next tile when so many are left and a full one has most. */
static inline int gdn_tile(int left, int most)
{
    if (left >= most) return most;
    if (left >= 4 && most > 4) return 4;
    return left >= 2 ? 2 : 1;
}

/* out[t][0][s] = k_s . k_t and out[t][1][s] = k_s . q_t, for s <= open + t; the rest is free. */
struct gdn_open_dots {
    struct gdn_pairs pairs;
    const float *rows; /* open keys [GDN_CHUNK][d_k], those of the segment too */
    float *columns;    /* [d_k][GDN_CHUNK], to turn those in */
    float *out;        /* [n][2][GDN_CHUNK] */
    struct gdn_open_reads *reads; /* NULL, or to ask ahead by: of a token alone */
    int64_t d_k;
    int n, open; /* tokens of the segment, and before it in the chunk */
};

/* coef[t][0][s] = -(exp(G_t - G_s) * dots[t][0][s]) and coef[t][1][s] = exp(G_t - G_s) *
 * dots[t][1][s] for s <= open + t; decay[t] = exp(G_t). */
struct gdn_open_decays {
    const double *G;   /* [GDN_CHUNK] */
    const float *dots; /* [n][2][GDN_CHUNK] */
    float *coef;       /* [n][2][GDN_CHUNK] */
    float *decay;      /* [n] */
    int n, open;
};

/* u and out of n tokens, in n_columns columns. */
struct gdn_open_tokens {
    struct gdn_pairs pairs;
    struct gdn_head_rows v, beta;
    const float *coef, *decay; /* as above */
    float *out;                /* rows out_stride apart */
    const float *state;        /* [d_k] rows d_v apart */
    float *u;                  /* [GDN_CHUNK] rows d_v apart */
    float *panel;              /* [d_k + GDN_CHUNK][GDN_PANEL], to work in */
    struct gdn_open_reads *reads; /* as above */
    int64_t out_stride, d_k, d_v, n_columns;
    int n, open;
    float scale;
};

/* next = exp(G_C) state + sum over s of (exp(G_C - G_s) k_s) u_s^T; next may be state. */
struct gdn_open_edge {
    const double *G;
    const float *keys, *u, *state; /* keys [GDN_CHUNK][d_k] */
    float *next;
    float *decayed_keys; /* as keys, to work in */
    int64_t d_k, d_v, n_columns;
};

struct gdn_open_steps {
    /* Keys and queries of n tokens, to gdn_pairs' tiles. */
    void (*pack)(float *tiles, struct gdn_head_rows k, struct gdn_head_rows q, int64_t d_k, int n);
    void (*dots)(const struct gdn_open_dots *);
    void (*decays)(const struct gdn_open_decays *);
    void (*tokens)(const struct gdn_open_tokens *);
    void (*edge)(const struct gdn_open_edge *);
    int64_t columns_alone; /* of S0, that a token alone takes at once: it asks ahead where rows are as long */
};

#endif
