/* SPDX-License-Identifier: MIT
 * The panel of attention in portable C: products and sums rounded apart. */
#ifndef QUERN_ATTENTION_PANEL_GENERIC_H
#define QUERN_ATTENTION_PANEL_GENERIC_H

#include "backends/cpu/attention_panel.h"
#include "base/half.h"

/* Scores of row i in s; -INFINITY where it does not attend. */
static void scores(const struct attention_panel *panel, int64_t i, float *s)
{
    const float *k = panel->k, *q = panel->q[i], cap = panel->softcap;
    for (int j = 0; j < ATTENTION_BLOCK; j++) s[j] = 0.0f;
    for (int64_t d = 0; d < panel->d_k; d++, k += ATTENTION_BLOCK)
        for (int j = 0; j < ATTENTION_BLOCK; j++) s[j] += q[d] * k[j];
    for (int j = 0; j < ATTENTION_BLOCK; j++) {
        const float mask = panel->mask[i] ? panel->mask[i][j] : 0.0f;
        s[j] *= panel->scale;
        if (cap != 0.0f) s[j] = cap * tanhf(s[j] / cap);
        s[j] += mask;
        if (j < panel->begin[i] || j >= panel->end[i] || mask == -INFINITY) s[j] = -INFINITY;
    }
}

static void panel_generic(const struct attention_panel *panel)
{
    const float *v = panel->v;
    for (int64_t i = 0; i < panel->n_rows; i++) {
        float *s = panel->p, *o = panel->out[i] + PARTIAL_HEAD, m = -INFINITY, l = 0.0f;
        scores(panel, i, s);
        for (int j = 0; j < ATTENTION_BLOCK; j++) m = s[j] > m ? s[j] : m;
        memset(o, 0, (size_t)(partial_stride(panel->d_v) - PARTIAL_HEAD) * sizeof *o);
        for (int j = panel->begin[i]; j < panel->end[i]; j++) {
            if (s[j] == -INFINITY) continue;
            const float p = expf(s[j] - m), *row = v + j * panel->v_stride;
            l += p;
            for (int64_t d = 0; d < panel->d_v; d++) o[d] += p * row[d];
        }
        panel->out[i][0] = m;
        panel->out[i][1] = l;
    }
}

static void merge_generic(float *state, const float *partial, int64_t d_v)
{
    if (partial[1] == 0.0f) return;
    const float m = state[0] > partial[0] ? state[0] : partial[0];
    const float a = expf(state[0] - m), b = expf(partial[0] - m);
    state[0] = m;
    state[1] = state[1] * a + partial[1] * b;
    for (int64_t d = PARTIAL_HEAD; d < PARTIAL_HEAD + d_v; d++)
        state[d] = state[d] * a + partial[d] * b;
}

static void widen_generic(const uint16_t *half, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = qrn_f16_to_float(half[i]);
}

static const struct attention_isa attention_generic = {
    .panel = panel_generic, .merge = merge_generic, .widen = widen_generic};

#endif
