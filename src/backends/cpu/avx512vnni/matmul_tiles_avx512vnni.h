/* SPDX-License-Identifier: MIT
 * Many rows of x by vpdpbusd: tiles of a panel of rows by groups of weights, which are unpacked to bytes. */
#ifndef QUERN_MATMUL_TILES_AVX512VNNI_H
#define QUERN_MATMUL_TILES_AVX512VNNI_H

#include <string.h>
#include "backends/cpu/avx512vnni/matmul_sums_avx512vnni.h"

enum { PANEL_ROWS = 12, PANEL_K = 512, N_PANELS = 2, PANEL_GROUPS = 16, N_PLANES = 1, ASK_WEIGHTS = 1 };

#include "backends/cpu/matmul_panels_avx512.h"
#include "backends/cpu/avx512vnni/matmul_shorts_avx512vnni.h"

/* A tile is half of a panel's rows by two groups: what is loaded of x meets both, for a processor that multiplies twice a
 * cycle loads no more often.  Sums of row r and group c are [TILE_ROWS * c + r]. */
enum { TILE_GROUPS = 2, TILE_ROWS = PANEL_ROWS / TILE_GROUPS };

struct panel_tile {
    const struct weight_panel *w[TILE_GROUPS];
    const struct row_panel *x;
    const char *next; /* the panel that comes into the first cache meanwhile, a part with each tile of this one, or NULL */
    int r0;           /* of the panel's rows the first */
    /* Finished sums: rows of the output from the first group on, of which n_rows are there; NULL: sums go on. */
    float *const *out;
    int n_rows;
    bool stream;
    __mmask16 mask[TILE_GROUPS];
};

/* What a tile asks for as it comes to blocks b and on: a step of 128 k. */
INLINE void tile_ask(const struct matmul_form f, const struct panel_tile *t, int64_t b)
{
    enum { STEPS = PANEL_BLOCKS / 4 * TILE_GROUPS };
    const int each = (int)(panel_bytes(f) + STEPS - 1) / STEPS;
    if (!t->next) return;
    const char *at = t->next + (b / 4 * TILE_GROUPS + t->r0 / TILE_ROWS) * each;
    for (int i = 0; i < each; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
}

/* Block b of a tile: integer sums, new or added to; shorts: each fits into 16 bits. */
INLINE void panel_block(const struct matmul_form f, const struct panel_tile *t, int64_t b, const bool shorts, bool first,
                        __m512i *isum)
{
    const bool scaled = f.sub != SUB_NONE;
    const int n_parts = matmul_has_halves(&f) ? 2 : 1, n = 8 / n_parts;
    const int8_t *codes = panel_q(t->x, b, t->r0); /* rows 64 bytes apart */
    const __m512i zero = _mm512_setzero_si512();
    UNROLL
    for (int h = 0; h < n_parts; h++) {
        __m512i dots[PANEL_ROWS];
        const int32_t *of_bias = n_parts == 2 ? &t->x->of_bias_halves[b / 4][t->r0][b % 4 * 2 + h]
                                              : &t->x->of_bias[b / 4][t->r0][b % 4];
        UNROLL_16
        for (int i = 0; i < PANEL_ROWS; i++) {
            dots[i] = bias_of(f) ? _mm512_set1_epi32(of_bias[4 * n_parts * (i % TILE_ROWS)]) : zero;
            if (!scaled && !first) dots[i] = _mm512_add_epi32(dots[i], isum[i]);
        }
        UNROLL
        for (int q = n * h; q < n * h + n; q++) {
            const __m512i v[TILE_GROUPS] = {_mm512_load_si512(t->w[0]->codes[0][b][q]),
                                            _mm512_load_si512(t->w[1]->codes[0][b][q])};
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                const __m512i x = broadcast_512(codes + 64 * r + 4 * q);
                dots[r] = _mm512_dpbusd_epi32(dots[r], v[0], x);
                dots[TILE_ROWS + r] = _mm512_dpbusd_epi32(dots[TILE_ROWS + r], v[1], x);
            }
        }
        UNROLL
        for (int c = 0; c < TILE_GROUPS; c++) {
            const __m512i s = scaled ? load_factor(f, shorts, t->w[c]->s[b][h]) : zero;
            UNROLL
            for (int i = TILE_ROWS * c; i < TILE_ROWS * (c + 1); i++) {
                const __m512i sum = first && h == 0 ? zero : isum[i];
                isum[i] = !scaled ? dots[i] : shorts ? add_short(sum, dots[i], s) : add_scaled(f, sum, dots[i], s);
            }
        }
    }
}

/* A run of blocks of a tile from b on: added to p, or new. */
INLINE void panel_run(const struct matmul_form f, const struct panel_tile *tile, int64_t b, const int run, const bool shorts,
                      const bool first, __m512 *p)
{
    const __m512 zero = _mm512_setzero_ps();
    __m512i isum[PANEL_ROWS];
    UNROLL
    for (int c = 0; c < run; c++) panel_block(f, tile, b + c, shorts, c == 0, isum);
    UNROLL
    for (int c = 0; c < TILE_GROUPS; c++) {
        const struct weight_panel *w = tile->w[c];
        const __m512 d = _mm512_load_ps(w->d[b]), m = _mm512_load_ps(w->m[b]);
        const __m512i *t = (const void *)w->t[b];
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++) {
            const int i = TILE_ROWS * c + r;
            const __m512i tsum = matmul_has_min(&f) ? panel_minima(f, _mm512_setzero_si512(), t, tile->x, b, run,
                                                                   tile->r0 + r)
                                                    : isum[i];
            const __m512 sum = shorts ? _mm512_cvtepi32_ps(isum[i]) : float_sum(f, isum[i]);
            p[i] = finish_run(f, first ? zero : p[i], sum, tsum, d, m);
        }
    }
}

/* Finished sums of a tile to where they belong. */
INLINE void tile_store(const struct panel_tile *t, const __m512 *acc)
{
    UNROLL_16
    for (int i = 0; i < PANEL_ROWS; i++) {
        const int r = i % TILE_ROWS, c = i / TILE_ROWS;
        float *out = t->out[r] + c * IMAGE_ROWS;
        if (t->stream)
            _mm512_stream_ps(out, acc[i]);
        else
            _mm512_mask_storeu_ps(out, r < t->n_rows ? t->mask[c] : 0, acc[i]);
    }
}

/* The same for all blocks; total: of each group, asked for before the first ones are wanted.  Every count is constant, so
 * that no sum of a step goes to memory. */
INLINE void panel_tile_sums(const struct matmul_form f, const struct panel_tile *t, int64_t n_blocks, const int run,
                            const bool shorts, panel_sums *const *total, bool begin)
{
    UNROLL_16
    for (int i = 0; i < PANEL_ROWS && !begin; i++)
        _mm_prefetch((*total[i / TILE_ROWS])[t->r0 + i % TILE_ROWS], _MM_HINT_T0);
    for (int64_t b = 0; b < n_blocks; b += 4) {
        tile_ask(f, t, b);
        __m512 p[PANEL_ROWS];
        UNROLL
        for (int i = 0; i < 4; i += run) panel_run(f, t, b + i, run, shorts, i == 0, p);
        UNROLL_16
        for (int i = 0; i < PANEL_ROWS; i++) {
            const float *sums = (*total[i / TILE_ROWS])[t->r0 + i % TILE_ROWS];
            const __m512 acc = begin && b == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sums);
            const __m512 d = _mm512_set1_ps(t->x->d[b / 4][t->r0 + i % TILE_ROWS]);
            p[i] = _mm512_fmadd_ps(p[i], d, acc);
        }
        if (t->out && b + 4 >= n_blocks) {
            tile_store(t, p);
            return;
        }
        UNROLL_16
        for (int i = 0; i < PANEL_ROWS; i++) _mm512_store_ps((*total[i / TILE_ROWS])[t->r0 + i % TILE_ROWS], p[i]);
    }
}

/* What follows panel n of a job's in the first cache: its second panel with the first groups, the next job's first one with
 * the last ones. */
INLINE const char *panel_next(const struct matmul_form f, const struct panel_job *job, int c, int n)
{
    if (n + 1 < job->n_panels) return c == 0 ? (const char *)panel_at(f, job->x, n + 1) : NULL;
    return c + TILE_GROUPS >= job->n_groups ? job->ahead.x : NULL;
}

/* The last of an odd number of groups goes twice, once in vain. */
INLINE void panel_tiles(const struct matmul_form f, const struct panel_job *job, const int run)
{
    _Alignas(64) panel_sums unused;
    if (job->n_groups % TILE_GROUPS) memset(unused, 0, sizeof unused);
    for (int c = 0; c < job->n_groups; c += TILE_GROUPS) {
        const bool odd = c + 1 == job->n_groups;
        for (int n = 0; n < job->n_panels; n++) {
            panel_sums *total[TILE_GROUPS] = {&job->total[n][c], odd ? &unused : &job->total[n][c + 1]};
            struct panel_tile t = {
                .w = {&job->w[c], &job->w[c + !odd]},
                .x = panel_at(f, job->x, n),
                .next = panel_next(f, job, c, n),
                .stream = job->stream && !odd,
                .mask = {panel_mask(job, c), odd ? 0 : panel_mask(job, c + 1)},
            };
            const bool fits = panel_fits(f, t.x, t.w[0]) && panel_fits(f, t.x, t.w[1]);
            for (int r; t.r0 < PANEL_ROWS && (r = n * PANEL_ROWS + t.r0) < job->n_rows; t.r0 += TILE_ROWS) {
                float *out[TILE_ROWS];
                for (int i = 0; i < TILE_ROWS && job->end; i++) out[i] = job->out[r + i] + c * IMAGE_ROWS;
                t.out = job->end ? out : NULL;
                t.n_rows = job->n_rows - r;
                if (fits)
                    panel_tile_sums(f, &t, job->n_blocks, run, true, total, job->begin);
                else
                    panel_tile_sums(f, &t, job->n_blocks, run, false, total, job->begin);
            }
        }
        for (int part = 0; part < (odd ? 1 : TILE_GROUPS) * ASKED_PARTS; part++)
            panel_ask(f, job, c + part / ASKED_PARTS, part % ASKED_PARTS);
    }
}

/* The codes and factors of a block as they enter. */
INLINE void bias_codes(const struct matmul_form f, const struct subs_512 *subs, __m512i v[8],
                       struct weight_panel *out, int64_t b)
{
    for (int h = 0; h <= matmul_has_halves(&f) && f.sub != SUB_NONE; h++)
        _mm512_store_si512(out->s[b][h], stored_factor(f, subs->s[h]));
    if (short_sums(f) == SHORT_OFTEN) weight_squares(f, v, out, b);
    for (int q = 0; q < 8; q++) {
        if (f.levels != LEVELS_LINEAR) v[q] = _mm512_shuffle_epi8(levels_512(f, bias_of(f)), v[q]);
        _mm512_store_si512(out->codes[0][b][q], v[q]);
    }
}

#endif
