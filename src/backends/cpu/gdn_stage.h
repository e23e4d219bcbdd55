/* SPDX-License-Identifier: MIT
 * What the kernels of the chunk stages share: work by chunk and head, rows as float32. */
#ifndef QUERN_BACKENDS_CPU_GDN_STAGE_H
#define QUERN_BACKENDS_CPU_GDN_STAGE_H

#include <math.h>

#include "backends/cpu/cpu.h"
#include "base/half.h"
#include "core/gdn_layout.h"

enum { STAGE_CHUNK = QRN_GDN_CHUNK };

/* Columns c .. c + n - 1 of row [i0][i1] of a 3-dimensional f32 or bf16 tensor. */
static inline void stage_load(float *out, const struct qrn_tensor *t, int64_t i0, int64_t i1,
                              int64_t c, int64_t n)
{
    const int64_t at = i0 * t->stride[0] + i1 * t->stride[1] + c;
    const float *f = (const float *)t->data + at;
    const uint16_t *h = (const uint16_t *)t->data + at;
    if (t->dtype == QRN_BF16)
        for (int64_t i = 0; i < n; i++) out[i] = qrn_bf16_to_float(h[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = f[i];
}

static inline void stage_store(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t c,
                               int64_t n, const float *in)
{
    const int64_t at = i0 * t->stride[0] + i1 * t->stride[1] + c;
    float *f = (float *)t->data + at;
    uint16_t *h = (uint16_t *)t->data + at;
    if (t->dtype == QRN_BF16)
        for (int64_t i = 0; i < n; i++) h[i] = qrn_float_to_bf16(in[i]);
    else
        for (int64_t i = 0; i < n; i++) f[i] = in[i];
}

/* Rows of one head of a chunk: [n][width], columns c .. of each. */
static inline void stage_rows(float *out, const struct qrn_tensor *t, struct gdn_chunk k,
                              int64_t head, int64_t c, int64_t width)
{
    for (int64_t i = 0; i < k.n; i++) stage_load(out + i * width, t, k.begin + i, head, c, width);
}

/* [n][width] turned over: [width][STAGE_CHUNK]; what is missing is 0. */
static inline void stage_turn(float *out, const float *rows, int64_t n, int64_t width)
{
    for (int64_t c = 0; c < width; c++)
        for (int64_t i = 0; i < STAGE_CHUNK; i++)
            out[c * STAGE_CHUNK + i] = i < n ? rows[i * width + c] : 0.0f;
}

static inline double stage_G(const struct qrn_tensor *G, int64_t token, int64_t h)
{
    const int64_t at = token * G->stride[0] + h;
    return G->dtype == QRN_F64 ? ((const double *)G->data)[at]
                               : (double)((const float *)G->data)[at];
}

static inline float stage_f32(const struct qrn_tensor *t, int64_t token, int64_t h)
{
    return ((const float *)t->data)[token * t->stride[0] + h];
}

/* G of a chunk, and its decays from token j to token i >= j: the exponent is 0 or less. */
static inline void stage_G_of(double *out, const struct qrn_tensor *G, struct gdn_chunk c,
                              int64_t h)
{
    for (int64_t i = 0; i < c.n; i++) out[i] = stage_G(G, c.begin + i, h);
}

static inline float stage_decay(const double *G, int64_t i, int64_t j)
{
    return expf((float)(G[i] - G[j]));
}

/* sum[0 .. n-1] += x[0 .. m-1] times the rows [m][stride], ascending in m. */
static inline void stage_add_rows(float *sum, int64_t n, const float *x, int64_t m,
                                  const float *rows, int64_t stride)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t c = 0; c < n; c++) sum[c] += x[i] * rows[i * stride + c];
}

/* Runs work on each chunk and head of this lane's share. */
static inline void stage_walk(const struct qrn_cpu_lane *lane, const void *args,
                              const struct qrn_tensor *seq_begin, int64_t n_tokens, int64_t n_heads,
                              int64_t lane_floats,
                              void (*work)(const void *args, int64_t i_chunk, struct gdn_chunk c,
                                           int64_t h, float *scratch))
{
    const int64_t n_chunks = gdn_chunks_before(seq_begin, n_tokens, gdn_n_seqs(seq_begin));
    float *scratch = (float *)lane->scratch + lane->i * lane_floats;
    int64_t begin, end;
    qrn_cpu_share(lane, n_chunks * n_heads, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        work(args, i / n_heads, gdn_chunk_at(seq_begin, n_tokens, i / n_heads), i % n_heads,
             scratch);
}

#endif
