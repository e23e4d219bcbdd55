/* SPDX-License-Identifier: MIT
 * Products of many rounded rows: weights of some groups and columns are unpacked once for some
 * hundreds of rows, those are laid out beside them a few at a time, and a tile of both is multiplied by
 * what includes this.  Sums wait in the lane's own memory, tile by tile, until all columns are in
 * them: rows of out lie far apart, and often a power of two apart.  What includes this says
 * beforehand how many rows a panel has, how many panels stay in the first cache, and how many groups
 * in the second, with MOST_ROWS rows of their sums, and how many planes of codes it wants:
 *     enum { PANEL_ROWS = ..., N_PANELS = ..., PANEL_GROUPS = ..., N_PLANES = ... }; */
#ifndef QUERN_MATMUL_PANELS_AVX512_H
#define QUERN_MATMUL_PANELS_AVX512_H

#include <string.h>
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

enum { PANEL_K = 512, PANEL_BLOCKS = PANEL_K / 32, MOST_ROWS = 528 };

/* A group: codes of 32 k as v[q] of matmul_image.h, as the product wants them; small integers s, if
 * there are any, of blocks (the first) or their halves; factors t of minima in pairs of 16 bits, those
 * of block b and the next at t[b] where panel_pairs, else of b's halves; where a head begins or goes
 * on, every four blocks at least, its d and m.  Blocks to a multiple of four are zeros. */
struct weight_panel {
    uint8_t codes[N_PLANES][PANEL_BLOCKS][8][64];
    int32_t s[PANEL_BLOCKS][2][IMAGE_ROWS], t[PANEL_BLOCKS][IMAGE_ROWS];
    float d[PANEL_BLOCKS][IMAGE_ROWS], m[PANEL_BLOCKS][IMAGE_ROWS];
};

/* Rows of x, then zeros; for each 128 k of a row d, the eight sums of halves of blocks (or, where
 * panel_pairs, four sums of blocks), and if there is a bias, -bias times the sums of four blocks or
 * of their eight halves; codes of 64 k side by side. */
struct row_panel {
    int8_t q[PANEL_BLOCKS / 2][PANEL_ROWS][64];
    float d[PANEL_BLOCKS / 4][PANEL_ROWS];
    int16_t sum[PANEL_BLOCKS / 4][PANEL_ROWS][8];
    int32_t of_bias[PANEL_BLOCKS / 4][PANEL_ROWS][8];
};

/* Sums of a panel's rows with a group, an output a lane. */
typedef float panel_sums[PANEL_ROWS][IMAGE_ROWS];

struct panels {
    struct weight_panel w[PANEL_GROUPS];
    struct row_panel x[N_PANELS];
    panel_sums sums[MOST_ROWS / PANEL_ROWS][PANEL_GROUPS];
};

/* Codes of block b of a panel's row r. */
INLINE const int8_t *panel_q(const struct row_panel *x, int64_t b, int r)
{
    return x->q[b / 2][r] + b % 2 * 32;
}

/* Puts the codes v of block b, and s if it wants that, where the product wants them. */
typedef void panel_codes(const struct matmul_form f, const struct subs_512 *subs, __m512i v[8],
                         struct weight_panel *out, int64_t b);

/* Whether one product of pairs takes the minima of two blocks; `blocks` have one head. */
INLINE bool panel_pairs(const struct matmul_form f, const int64_t blocks)
{
    return blocks % 2 == 0 && !matmul_has_halves(&f);
}

/* Blocks that are not there. */
INLINE void panel_clear(const struct matmul_form f, struct weight_panel *out, int64_t b)
{
    const __m512i zero = _mm512_setzero_si512();
    for (int plane = 0; plane < N_PLANES; plane++)
        for (int q = 0; q < 8; q++) _mm512_store_si512(out->codes[plane][b][q], zero);
    for (int h = 0; h < 2 && f.sub != SUB_NONE; h++) _mm512_store_si512(out->s[b][h], zero);
    _mm512_store_si512(out->t[b], zero);
    _mm512_store_si512(out->d[b], zero);
    _mm512_store_si512(out->m[b], zero);
}

/* Factors of minima: pairs of halves to those of blocks b and b + 1. */
INLINE void panel_pair(struct weight_panel *out, int64_t b)
{
    const __m512i low = _mm512_load_si512(out->t[b]), high = _mm512_load_si512(out->t[b + 1]);
    _mm512_store_si512(out->t[b], _mm512_mask_blend_epi16(0xaaaaaaaa, low, high));
}

/* One group of an image; k in whole heads, or in whole halves of heads of 8 blocks. */
INLINE void panel_unpack(const struct matmul_form f, const char *w, int64_t k, const int64_t blocks,
                         panel_codes codes, struct weight_panel *out)
{
    __m512 d = _mm512_setzero_ps(), m = d;
    int64_t b = 0;
    for (; b < k / 32; b++, w += image_block_bytes(&f)) {
        __m512i v[8];
        if (b % blocks == 0) {
            d = load_head_512(f, w, 0);
            m = matmul_has_min(&f) ? load_head_512(f, w, 1) : d;
            w += image_head_bytes(&f);
        }
        for (size_t at = 0; at < image_block_bytes(&f); at += 64)
            _mm_prefetch(w + AHEAD_BYTES + at, _MM_HINT_T0);
        const struct subs_512 subs = load_subs_512(f, w);
        load_codes_512(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, v);
        codes(f, &subs, v, out, b);
        _mm512_store_ps(out->d[b], d);
        if (!matmul_has_min(&f)) continue;
        _mm512_store_si512(out->t[b], min_pairs_512(f, &subs));
        _mm512_store_ps(out->m[b], m);
    }
    for (; b % 4; b++) panel_clear(f, out, b);
    for (int64_t i = 0; i < b && panel_pairs(f, blocks) && matmul_has_min(&f); i += 2)
        panel_pair(out, i);
}

/* 128 k of a row of x as those from 128 i on of row r of a panel. */
INLINE void panel_act(const struct matmul_form f, const int64_t blocks, const int bias,
                      const struct qrn_q8_act *x, struct row_panel *out, int64_t i, int r)
{
    const __m128i sums = _mm_loadu_si128((const __m128i *)(const void *)x->sum);
    memcpy(out->q[2 * i][r], x->q, 64);
    memcpy(out->q[2 * i + 1][r], x->q + 64, 64);
    out->d[i][r] = x->d;
    if (matmul_has_min(&f) && panel_pairs(f, blocks)) {
        const __m128i of_blocks = _mm_madd_epi16(sums, _mm_set1_epi16(1));
        _mm_storel_epi64((__m128i *)(void *)out->sum[i][r], _mm_packs_epi32(of_blocks, of_blocks));
    } else if (matmul_has_min(&f)) {
        _mm_store_si128((__m128i *)(void *)out->sum[i][r], sums);
    }
    if (bias && matmul_has_halves(&f))
        _mm256_store_si256(
            (__m256i *)(void *)out->of_bias[i][r],
            _mm256_mullo_epi32(_mm256_cvtepi16_epi32(sums), _mm256_set1_epi32(-bias)));
    else if (bias)
        _mm_store_si128((__m128i *)(void *)out->of_bias[i][r],
                        _mm_madd_epi16(sums, _mm_set1_epi16((int16_t)-bias)));
}

/* Rows r .. of those that matrix i meets, columns k0 .. k0 + k - 1. */
INLINE void panel_rows(const struct matmul_form f, const int64_t blocks, const int bias,
                       const struct drive *d, int64_t i, int64_t r, int64_t k0, int64_t k,
                       struct row_panel *out)
{
    static const struct qrn_q8_act none;
    const int64_t n_rows = matmul_n_rows(d->j, i) - r;
    for (int c = 0; c < PANEL_ROWS; c++) {
        const struct matmul_row row = matmul_row_at(d->j, i, c < n_rows ? r + c : r);
        const struct qrn_q8_act *x = drive_x(d, &row, k0);
        for (int64_t b = 0; b * QRN_Q8_ACT_BLOCK < k; b++)
            panel_act(f, blocks, bias, c < n_rows ? x + b : &none, out, b, c);
    }
}

/* Asks for what panel_rows will read: a row's columns are few, and far from those of the next row. */
INLINE void panel_ask(const struct drive *d, int64_t i, int64_t r, int64_t k0, int64_t k)
{
    const int64_t n_rows = matmul_n_rows(d->j, i) - r;
    const int64_t bytes =
        (k + QRN_Q8_ACT_BLOCK - 1) / QRN_Q8_ACT_BLOCK * (int64_t)sizeof(struct qrn_q8_act);
    for (int c = 0; c < PANEL_ROWS && c < n_rows; c++) {
        const struct matmul_row row = matmul_row_at(d->j, i, r + c);
        const char *x = drive_x(d, &row, k0);
        for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(x + at, _MM_HINT_T1);
    }
}

/* The sums of minima of a row, the run of blocks from b on. */
INLINE __m512i panel_minima(const struct matmul_form f, const struct weight_panel *w,
                            const struct row_panel *x, int64_t b, const int run, int r)
{
    const int step = panel_pairs(f, run) ? 2 : 1;
    const int16_t *sums = x->sum[b / 4][r] + b % 4 * 2 / step;
    __m512i sum = _mm512_setzero_si512();
    UNROLL
    for (int i = 0; i < run; i += step)
        sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(w->t[b + i]),
                                  broadcast_512(sums + 2 * i / step));
    return sum;
}

/* Sums of all rows of n_panels panels with a group, n_blocks blocks, `run` of them under one head;
 * new or continued; those of panel n are total[n * PANEL_GROUPS]. */
typedef void panel_product(const struct matmul_form f, const struct weight_panel *w,
                           const struct row_panel *x, int n_panels, int64_t n_blocks, const int run,
                           panel_sums *total, bool begin);

/* Finished sums to the rows they belong to: n_rows rows from r on. */
INLINE void panel_store(const struct drive *d, int64_t i, int64_t g, int64_t r, int64_t n_rows,
                        const struct matmul_tile *t, const struct panels *own)
{
    for (int64_t n = 0; n < n_rows; n++) {
        float *out = matmul_row_at(d->j, i, r + n).out + g * IMAGE_ROWS;
        const panel_sums *sums = own->sums[n / PANEL_ROWS];
        for (int c = 0; c < t->n_groups; c++) {
            const int64_t left = t->n - c * IMAGE_ROWS;
            const __mmask16 mask = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
            _mm512_mask_storeu_ps(out + c * IMAGE_ROWS, mask,
                                  _mm512_load_ps(sums[c][n % PANEL_ROWS]));
        }
    }
}

/* A walk with as many blocks under a head. */
INLINE void panel_walk_of(const struct matmul_form f, const int64_t blocks, const int bias,
                          panel_codes codes, panel_product product, const struct drive *d,
                          int64_t i, int64_t g, int64_t r, int64_t n_rows, int64_t k0,
                          const struct matmul_tile *t, struct panels *own)
{
    const int n_panels = (int)((n_rows + PANEL_ROWS - 1) / PANEL_ROWS);
    for (int c = 0; c < t->n_groups; c++)
        panel_unpack(f, t->w + (size_t)c * t->group_bytes, t->k, blocks, codes, &own->w[c]);
    for (int p = 0; p < n_panels; p += N_PANELS) {
        const int n = n_panels - p < N_PANELS ? n_panels - p : N_PANELS;
        for (int s = 0; s < n; s++)
            panel_rows(f, blocks, bias, d, i, r + (p + s) * PANEL_ROWS, k0, t->k, &own->x[s]);
        for (int s = 0; s < n; s++) panel_ask(d, i, r + (p + N_PANELS + s) * PANEL_ROWS, k0, t->k);
        for (int c = 0; c < t->n_groups; c++)
            product(f, &own->w[c], own->x, n, t->k / 32, blocks < 4 ? (int)blocks : 4,
                    &own->sums[p][c], t->begin);
    }
    if (k0 + t->k == d->j->k) panel_store(d, i, g, r, n_rows, t, own);
}

/* matmul_unit's many; bias: what codes have too much of. */
INLINE void panel_walk(const struct matmul_form f, const int bias, panel_codes codes,
                       panel_product product, const struct drive *d, int64_t i, int64_t g,
                       int64_t r, int64_t n_rows, int64_t k0, const struct matmul_tile *t,
                       char *memory)
{
    struct panels *own = (struct panels *)(void *)memory;
    if (f.blocks)
        panel_walk_of(f, f.blocks, bias, codes, product, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 1)
        panel_walk_of(f, 1, bias, codes, product, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 2)
        panel_walk_of(f, 2, bias, codes, product, d, i, g, r, n_rows, k0, t, own);
    else
        panel_walk_of(f, 4, bias, codes, product, d, i, g, r, n_rows, k0, t, own);
}

#endif
