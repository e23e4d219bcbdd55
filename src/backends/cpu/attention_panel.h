/* SPDX-License-Identifier: MIT
 * The unit of work of all attention kernels: up to 4 queries against one block of 64 keys.
 *
 * A block gives each row a partial softmax of its own: m the greatest score, l the sum of
 * p_j = exp(s_j - m), o the sum of p_j v_j for j ascending.  Partials are merged into the row's
 * state by one expression, blocks ascending.  Where nothing of a block is attended to, l is 0 and
 * the merge changes nothing: skipped and masked are the same.  No other way to a result exists, so
 * a row has the same bits in whatever tile, call or thread it is computed. */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_PANEL_H
#define QUERN_BACKENDS_CPU_ATTENTION_PANEL_H

#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "ops/attention_row.h"

enum { PANEL_ROWS = 4, PARTIAL_HEAD = 16 };

struct attention_panel {
    int64_t n_rows, d_k, d_v;
    const float *q[PANEL_ROWS];
    /* Keys of the block that a row may attend to: begin .. end - 1 of 0 .. 64. */
    int begin[PANEL_ROWS], end[PANEL_ROWS];
    const float *mask[PANEL_ROWS]; /* 64 values to add, with -INFINITY where masked; or NULL */
    const void *k;                 /* [d_k][64] float, or halves */
    const void *v;                 /* rows of d_v; those outside of begin .. end are not read */
    int64_t v_stride;
    bool half;
    float scale, softcap;
    float *p;               /* room for [4][64] */
    float *out[PANEL_ROWS]; /* m, l, and from PARTIAL_HEAD on o, padded to 16 */
};

struct attention_isa {
    void (*panel)(const struct attention_panel *panel);
    void (*merge)(float *state, const float *partial, int64_t d_v);
    void (*widen)(const uint16_t *half, float *x, int64_t n);
    bool reads_halves; /* panel takes halves as they are */
};

/* Floats from one partial or state to the next. */
static inline int64_t partial_stride(int64_t d_v)
{
    return PARTIAL_HEAD + (d_v + 15) / 16 * 16;
}

static inline void attention_state_clear(float *state, int64_t d_v)
{
    state[0] = -INFINITY;
    memset(state + 1, 0, (size_t)(partial_stride(d_v) - 1) * sizeof *state);
}

static inline void attention_state_finish(const float *state, float *out, int64_t d_v)
{
    const float l = state[1];
    for (int64_t d = 0; d < d_v; d++) out[d] = l == 0.0f ? 0.0f : state[PARTIAL_HEAD + d] / l;
}

/* A key range of a sequence as one of the block that begins at first. */
static inline int within_block(int64_t j, int64_t first)
{
    return j <= first ? 0 : j - first < ATTENTION_BLOCK ? (int)(j - first) : ATTENTION_BLOCK;
}

/* Whether any row may attend to any key; where none may, all partials are set to nothing. */
static inline bool panel_attends(const struct attention_panel *panel)
{
    bool any = false;
    for (int64_t i = 0; i < panel->n_rows; i++) any = any || panel->begin[i] < panel->end[i];
    if (!any)
        for (int64_t i = 0; i < panel->n_rows; i++) panel->out[i][1] = 0.0f;
    return any;
}

#endif
