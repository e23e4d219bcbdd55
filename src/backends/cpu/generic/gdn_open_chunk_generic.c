/* SPDX-License-Identifier: MIT
 * gdn_open_chunk in portable C: sixteen columns at a time, so that compilers keep them in
 * registers. */
#include <math.h>

#include "backends/cpu/gdn_open_chunk_walk.h"

enum { COLUMNS = 16 };

/* Tiles of one token. */
static void pack(float *tiles, struct gdn_head_rows k, struct gdn_head_rows q, int64_t d_k, int n)
{
    for (int t = 0; t < n; t++)
        for (int64_t i = 0; i < d_k; i++, tiles += 2) {
            tiles[0] = k.data[t * k.stride + i];
            tiles[1] = q.data[t * q.stride + i];
        }
}

static void turn(float *columns, const float *rows, int64_t d_k, int n)
{
    for (int t = 0; t < n; t++)
        for (int64_t i = 0; i < d_k; i++) columns[i * GDN_CHUNK + t] = rows[t * d_k + i];
}

/* Key and query of token t: element i at i * step. */
struct pair {
    const float *k, *q;
    int64_t step;
};

static struct pair pair_of(const struct gdn_pairs *p, int t, int64_t d_k, int n)
{
    if (n == 1) return (struct pair){p->k, p->q, 1};
    return (struct pair){p->tiles + 2 * t * d_k, p->tiles + 2 * t * d_k + 1, 2};
}

static void dots(const struct gdn_open_dots *p)
{
    turn(p->columns, p->rows, p->d_k, p->open + p->n);
    for (int t = 0; t < p->n; t++) {
        const int n = p->open + t + 1;
        const struct pair pair = pair_of(&p->pairs, t, p->d_k, p->n);
        float *kk = p->out + t * 2 * GDN_CHUNK, *kq = kk + GDN_CHUNK;
        for (int s = 0; s < n; s++) kk[s] = kq[s] = 0.0f;
        for (int64_t i = 0; i < p->d_k; i++) {
            const float *keys = p->columns + i * GDN_CHUNK;
            for (int s = 0; s < n; s++) {
                kk[s] += pair.k[i * pair.step] * keys[s];
                kq[s] += pair.q[i * pair.step] * keys[s];
            }
        }
    }
}

static void decays(const struct gdn_open_decays *p)
{
    for (int t = 0; t < p->n; t++) {
        const double G = p->G[p->open + t];
        const float *kk = p->dots + t * 2 * GDN_CHUNK, *kq = kk + GDN_CHUNK;
        float *nk = p->coef + t * 2 * GDN_CHUNK, *nq = nk + GDN_CHUNK;
        p->decay[t] = expf((float)G);
        for (int s = 0; s <= p->open + t; s++) {
            const float w = expf((float)(G - p->G[s]));
            nk[s] = -(w * kk[s]);
            nq[s] = w * kq[s];
        }
    }
}

/* Token t, columns j .. j + n - 1. */
static inline void token(const struct gdn_open_tokens *p, int t, int64_t j, int n)
{
    const struct pair pair = pair_of(&p->pairs, t, p->d_k, p->n);
    const float *v = p->v.data + t * p->v.stride + j;
    const float *nk = p->coef + t * 2 * GDN_CHUNK, *nq = nk + GDN_CHUNK;
    const float decay = p->decay[t], beta = p->beta.data[t * p->beta.stride];
    const int last = p->open + t;
    float *u = p->u + last * p->d_v + j, *out = p->out + t * p->out_stride + j;
    float a[COLUMNS] = {0}, b[COLUMNS] = {0};
    for (int64_t i = 0; i < p->d_k; i++) {
        const float *S = p->state + i * p->d_v + j;
        for (int c = 0; c < n; c++) {
            a[c] += pair.k[i * pair.step] * S[c];
            b[c] += pair.q[i * pair.step] * S[c];
        }
    }
    for (int c = 0; c < n; c++) {
        a[c] = v[c] - decay * a[c];
        b[c] = decay * b[c];
    }
    for (int s = 0; s < last; s++) {
        const float *us = p->u + s * p->d_v + j;
        for (int c = 0; c < n; c++) {
            a[c] += nk[s] * us[c];
            b[c] += nq[s] * us[c];
        }
    }
    for (int c = 0; c < n; c++) {
        u[c] = beta * a[c];
        out[c] = p->scale * (b[c] + nq[last] * u[c]);
    }
}

static void tokens(const struct gdn_open_tokens *p)
{
    for (int64_t j = 0; j < p->n_columns; j += COLUMNS) {
        const int64_t n = p->n_columns - j;
        for (int t = 0; t < p->n; t++)
            if (n >= COLUMNS)
                token(p, t, j, COLUMNS);
            else
                token(p, t, j, (int)n);
    }
}

static inline void edge_row(const struct gdn_open_edge *p, int64_t i, int64_t j, int n, float decay)
{
    const float *w = p->decayed_keys + i, *S = p->state + i * p->d_v + j;
    float a[COLUMNS], *next = p->next + i * p->d_v + j;
    for (int c = 0; c < n; c++) a[c] = decay * S[c];
    for (int s = 0; s < GDN_CHUNK; s++) {
        const float *u = p->u + s * p->d_v + j;
        for (int c = 0; c < n; c++) a[c] += w[s * p->d_k] * u[c];
    }
    for (int c = 0; c < n; c++) next[c] = a[c];
}

static void edge(const struct gdn_open_edge *p)
{
    const double G = p->G[GDN_CHUNK - 1];
    const float decay = expf((float)G);
    for (int s = 0; s < GDN_CHUNK; s++) {
        const float w = expf((float)(G - p->G[s]));
        for (int64_t i = 0; i < p->d_k; i++)
            p->decayed_keys[s * p->d_k + i] = w * p->keys[s * p->d_k + i];
    }
    for (int64_t j = 0; j < p->n_columns; j += COLUMNS) {
        const int64_t n = p->n_columns - j;
        for (int64_t i = 0; i < p->d_k; i++)
            if (n >= COLUMNS)
                edge_row(p, i, j, COLUMNS, decay);
            else
                edge_row(p, i, j, (int)n, decay);
    }
}

static void run(void *lane, const void *args)
{
    static const struct gdn_open_steps steps = {pack, dots, decays, tokens, edge, 0};
    gdn_open_chunk_walk(lane, args, &steps);
}

const struct qrn_kernel qrn_cpu_gdn_open_chunk_generic = {
    .op = QRN_OP_gdn_open_chunk, .name = "cpu.gdn_open_chunk.generic",
    .serves = "f32 tensors", .supports = gdn_open_chunk_takes,
    .scratch_bytes = gdn_open_chunk_scratch, .run = run,
};
