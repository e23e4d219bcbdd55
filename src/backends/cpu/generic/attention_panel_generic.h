/* SPDX-License-Identifier: MIT
 * The panel of attention in portable C: products and sums rounded apart. */
#ifndef QUERN_ATTENTION_PANEL_GENERIC_H
#define QUERN_ATTENTION_PANEL_GENERIC_H

#include "backends/cpu/attention_panel.h"
#include "base/half.h"

enum { GENERIC_WIDTH = 16 };

/* Scores of row i in s, in base 2; -INFINITY where it does not attend. */
static void scores(const struct attention_panel *panel, int64_t i, float *s)
{
    const float *q = panel->q[i], cap = panel->softcap;
    const float scale = cap != 0.0f ? panel->scale : panel->scale * ATTENTION_LOG2_E;
    for (int j = 0; j < ATTENTION_BLOCK; j++) s[j] = 0.0f;
    for (int first = 0; first < ATTENTION_BLOCK; first += GENERIC_WIDTH) {
        const float *k = (const float *)panel->k + first / GENERIC_WIDTH * panel->k_panel;
        for (int64_t d = 0; d < panel->d_k; d++, k += panel->k_dim)
            for (int j = 0; j < GENERIC_WIDTH; j++) s[first + j] += q[d] * k[j];
    }
    for (int j = 0; j < ATTENTION_BLOCK; j++) {
        const float mask = panel->mask[i] ? panel->mask[i][j] : 0.0f;
        s[j] *= scale;
        if (cap != 0.0f) s[j] = cap * tanhf(s[j] / cap) * ATTENTION_LOG2_E;
        s[j] += mask * ATTENTION_LOG2_E;
        if (j < panel->begin[i] || j >= panel->end[i] || mask == -INFINITY) s[j] = -INFINITY;
    }
}

/* Scores become p, with m and l; -1 where a key is not attended to. */
static void softmax_row(float *s, float *m, float *l)
{
    *m = -INFINITY;
    *l = 0.0f;
    for (int j = 0; j < ATTENTION_BLOCK; j++) *m = s[j] > *m ? s[j] : *m;
    for (int j = 0; j < ATTENTION_BLOCK; j++) {
        s[j] = s[j] == -INFINITY ? -1.0f : exp2f(s[j] - *m);
        if (!(s[j] < 0.0f)) *l += s[j];
    }
}

/* The m and l of a partial into those of a state, with the factors of both o. */
static void merge_sums(float *state_m, float *state_l, float m, float l, float *a, float *b)
{
    const float most = *state_m > m ? *state_m : m;
    *a = exp2f(*state_m - most);
    *b = exp2f(m - most);
    *state_l = *state_l * *a + l * *b;
    *state_m = most;
}

static void merge_o(float *state, const float *o, float a, float b, int64_t d)
{
    for (int64_t i = 0; i < d; i++) state[i] = state[i] * a + o[i] * b;
}

/* o of row i from its p: GENERIC_WIDTH dimensions at once. */
static void values_row(const struct attention_panel *panel, int64_t i, float a, float b)
{
    const float *p = panel->p + i * ATTENTION_BLOCK;
    float *to = panel->rows.o + i * panel->rows.stride;
    for (int64_t d = 0; d < panel->d_v; d += GENERIC_WIDTH) {
        const int64_t n = panel->d_v - d < GENERIC_WIDTH ? panel->d_v - d : GENERIC_WIDTH;
        const float *v = (const float *)panel->v + d / GENERIC_WIDTH * panel->v_panel;
        float o[GENERIC_WIDTH] = {0};
        for (int j = panel->begin[i]; j < panel->end[i]; j++)
            if (!(p[j] < 0.0f))
                for (int64_t c = 0; c < n; c++) o[c] += p[j] * v[j * panel->v_key + c];
        if (panel->apart)
            memcpy(to + d, o, sizeof o);
        else
            merge_o(to + d, o, a, b, n);
    }
}

static void panel_generic(const struct attention_panel *panel)
{
    const struct attention_rows *rows = &panel->rows;
    for (int64_t i = 0; i < panel->n_rows; i++) {
        float *s = panel->p + i * ATTENTION_BLOCK, m = -INFINITY, l = 0.0f, a = 0.0f, b = 0.0f;
        if (panel->begin[i] < panel->end[i]) {
            scores(panel, i, s);
            softmax_row(s, &m, &l);
        }
        if (panel->apart) {
            rows->m[i] = m;
            rows->l[i] = l;
        }
        if (l == 0.0f) continue;
        if (!panel->apart) merge_sums(&rows->m[i], &rows->l[i], m, l, &a, &b);
        values_row(panel, i, a, b);
    }
}

static void merge_generic(const struct attention_rows *state, const struct attention_rows *partial,
                          int64_t n_rows, int64_t d)
{
    for (int64_t i = 0; i < n_rows; i++) {
        float a, b;
        if (partial->l[i] == 0.0f) continue;
        merge_sums(&state->m[i], &state->l[i], partial->m[i], partial->l[i], &a, &b);
        merge_o(state->o + i * state->stride, partial->o + i * partial->stride, a, b, d);
    }
}

static void finish_generic(const float *o, float l, float *out, int64_t d)
{
    for (int64_t i = 0; i < d; i++) out[i] = l == 0.0f ? 0.0f : o[i] / l;
}

static void widen_generic(const void *from, enum qrn_dtype type, float *to, int64_t n)
{
    const uint16_t *bits = from;
    if (type == QRN_F32) memcpy(to, from, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < n && type == QRN_F16; i++) to[i] = qrn_f16_to_float(bits[i]);
    for (int64_t i = 0; i < n && type == QRN_BF16; i++) to[i] = qrn_bf16_to_float(bits[i]);
}

static const char *source_at(const struct attention_source *from, int64_t element)
{
    return (const char *)from->data + element * (from->type == QRN_F32 ? 4 : 2);
}

static void pack_keys_generic(const struct attention_source *from, int64_t d_k, float *to)
{
    for (int64_t first = 0; first < ATTENTION_BLOCK; first += GENERIC_WIDTH)
        for (int64_t d = 0; d < d_k; d++, to += GENERIC_WIDTH)
            widen_generic(source_at(from, d * from->stride + first), from->type, to, GENERIC_WIDTH);
}

static void pack_key_rows_generic(const struct attention_source *from, int64_t n, int64_t d_k,
                                  float *to)
{
    for (int64_t j = 0; j < ATTENTION_BLOCK; j++)
        for (int64_t d = 0; d < d_k; d++) {
            float x = 0.0f;
            if (j < n) widen_generic(source_at(from, j * from->stride + d), from->type, &x, 1);
            to[(j / GENERIC_WIDTH * d_k + d) * GENERIC_WIDTH + j % GENERIC_WIDTH] = x;
        }
}

static void pack_values_generic(const struct attention_source *from, int64_t n, int64_t d_v,
                                float *to)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t d = 0; d < d_v; d += GENERIC_WIDTH)
            widen_generic(source_at(from, j * from->stride + d), from->type,
                          to + (d / GENERIC_WIDTH * ATTENTION_BLOCK + j) * GENERIC_WIDTH,
                          d_v - d < GENERIC_WIDTH ? d_v - d : GENERIC_WIDTH);
}

static const struct attention_isa attention_generic = {
    .width = GENERIC_WIDTH,
    .panel = panel_generic,
    .merge = merge_generic,
    .finish = finish_generic,
    .pack_keys = pack_keys_generic,
    .pack_key_rows = pack_key_rows_generic,
    .pack_values = pack_values_generic,
    .widen = widen_generic,
};

#endif
