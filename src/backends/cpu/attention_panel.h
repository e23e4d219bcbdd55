/* SPDX-License-Identifier: MIT
 * The inner part of all attention kernels: some rows of queries against one block of 64 keys.
 *
 * A block gives each row a partial softmax of its own: m the greatest score (in base 2), l the sum
 * of p_j = 2^(s_j - m), o the sum of p_j v_j for j ascending.  Partials are merged into the row's
 * state by one expression, blocks ascending.  Where nothing of a block is attended to, l is 0 and
 * the merge changes nothing: skipped and masked are the same.  No other way to a result exists, so
 * a row has the same bits in whatever tile, call or thread it is computed. */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_PANEL_H
#define QUERN_BACKENDS_CPU_ATTENTION_PANEL_H

#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "ops/attention_row.h"

enum { PANEL_ROWS = 128 /* at most */, PANEL_DIMS = 32 /* packed values are padded to these */ };

#define ATTENTION_LOG2_E 1.44269504f

/* Softmaxes of n_rows rows: [n_rows], [n_rows] and [n_rows][stride], each row's o padded to 16. */
struct attention_rows {
    float *m, *l, *o;
    int64_t stride;
};

struct attention_panel {
    int64_t n_rows, d_k, d_v;
    const float *q[PANEL_ROWS];
    /* Keys of the block that a row may attend to: begin .. end - 1 of 0 .. 64. */
    int begin[PANEL_ROWS], end[PANEL_ROWS];
    const float *mask[PANEL_ROWS]; /* 64 values to add, with -INFINITY where masked; or NULL */
    /* Key j in dimension d is k[j / width * k_panel + d * k_dim + j % width], dimension d of value
     * j is v[d / width * v_panel + j * v_key + d % width]: elements, width that of the isa. */
    const void *k, *v; /* values of keys outside of begin .. end are not read */
    int64_t k_panel, k_dim, v_panel, v_key;
    bool half;         /* k and v are halves */
    const char *ahead; /* where k and v are pages: the keys of the block to come; else NULL */
    float scale, softcap;
    float *p; /* room for [n_rows][64] */
    struct attention_rows rows;
    bool apart; /* write the partials into rows, instead of merging them there */
};

/* Rows of keys or values in memory: f32, f16 or bf16. */
struct attention_source {
    const void *data;
    enum qrn_dtype type;
    int64_t stride; /* elements from one row to the next */
};

struct attention_isa {
    int64_t width;     /* keys, or dimensions of v, taken side by side: divides 64 and PANEL_DIMS */
    bool reads_halves; /* panel takes halves as they are */
    void (*panel)(const struct attention_panel *panel);
    /* Partials of n_rows rows into their states; of o, d dimensions. */
    void (*merge)(const struct attention_rows *state, const struct attention_rows *partial,
                  int64_t n_rows, int64_t d);
    void (*finish)(const float *o, float l, float *out, int64_t d);
    /* [d_k] rows of 64 keys; n rows (one a key) of d_k dimensions, the missing keys as 0; n rows of
     * d_v dimensions: to floats, in panels of width. */
    void (*pack_keys)(const struct attention_source *from, int64_t d_k, float *to);
    void (*pack_key_rows)(const struct attention_source *from, int64_t n, int64_t d_k, float *to);
    void (*pack_values)(const struct attention_source *from, int64_t n, int64_t d_v, float *to);
    void (*widen)(const void *from, enum qrn_dtype type, float *to, int64_t n);
};

/* Floats from one row's o to the next. */
static inline int64_t attention_stride(int64_t d_v)
{
    return (d_v + 15) / 16 * 16;
}

static inline int64_t attention_packed_dims(int64_t d_v)
{
    return (d_v + PANEL_DIMS - 1) / PANEL_DIMS * PANEL_DIMS;
}

/* States of n_rows rows that begin at memory, and the floats that they take: a multiple of 16. */
static inline int64_t attention_rows_floats(int64_t n_rows, int64_t d_v)
{
    return 2 * ((n_rows + 15) / 16 * 16) + n_rows * attention_stride(d_v);
}

static inline struct attention_rows attention_rows_at(float *memory, int64_t n_rows, int64_t d_v)
{
    const int64_t padded = (n_rows + 15) / 16 * 16;
    return (struct attention_rows){.m = memory,
                                   .l = memory + padded,
                                   .o = memory + 2 * padded,
                                   .stride = attention_stride(d_v)};
}

static inline void attention_rows_clear(const struct attention_rows *s, int64_t n_rows)
{
    for (int64_t i = 0; i < n_rows; i++) s->m[i] = -INFINITY;
    memset(s->l, 0, (size_t)n_rows * sizeof *s->l);
    memset(s->o, 0, (size_t)(n_rows * s->stride) * sizeof *s->o);
}

/* A key range of a sequence as one of the block that begins at first. */
static inline int within_block(int64_t j, int64_t first)
{
    return j <= first ? 0 : j - first < ATTENTION_BLOCK ? (int)(j - first) : ATTENTION_BLOCK;
}

/* Whether any of rows r .. r + n - 1 may attend to a key of begin .. end - 1. */
static inline bool panel_attends(const struct attention_panel *panel, int64_t r, int64_t n,
                                 int begin, int end)
{
    for (int64_t i = r; i < r + n; i++)
        if (panel->begin[i] < end && panel->end[i] > begin && panel->begin[i] < panel->end[i])
            return true;
    return false;
}

#endif
