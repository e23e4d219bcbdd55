/* SPDX-License-Identifier: MIT
 * What the kernels of the chunk stages share: work by chunk and head, rows as float32 in scratch.
 * The stages themselves are gdn_<stage>.inc, written in a few words that each instruction set gives
 * (gdn_stage_vectors.inc, generic/gdn_stage_scalar.h). */
#ifndef QUERN_BACKENDS_CPU_GDN_STAGE_H
#define QUERN_BACKENDS_CPU_GDN_STAGE_H

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

/* Floats between rows of scratch that are d wide: whole vectors, and not a power of two, so that
 * rows do not push each other out of a cache. */
static inline int64_t stage_width(int64_t d)
{
    return (d + 15) / 16 * 16 + 16;
}

/* Rows of one head of a chunk: width apart, columns c .. c + n - 1 of each. */
static inline void stage_rows(float *out, const struct qrn_tensor *t, struct gdn_chunk k,
                              int64_t head, int64_t c, int64_t n)
{
    for (int64_t i = 0; i < k.n; i++)
        stage_load(out + i * stage_width(n), t, k.begin + i, head, c, n);
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

/* G of a chunk; zeros after it. */
static inline void stage_G_of(double *out, const struct qrn_tensor *G, struct gdn_chunk c,
                              int64_t h)
{
    for (int64_t i = 0; i < STAGE_CHUNK; i++) out[i] = i < c.n ? stage_G(G, c.begin + i, h) : 0.0;
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
