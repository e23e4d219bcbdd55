/* SPDX-License-Identifier: MIT
 * Products of many rounded rows: weights of some groups and columns are unpacked once for some
 * hundreds of rows, which have been laid out before, and a tile of both is multiplied by what includes
 * this.  Sums wait in the lane's own memory, tile by tile, until all columns are in them: rows of out
 * lie far apart, and often a power of two apart.  What includes this says beforehand how many rows and columns
 * a panel has, how many panels stay in the first cache, and how many groups in the second, with MOST_ROWS
 * rows of their sums and one column of panels, how many planes of codes it wants, and whether weights are asked for
 * while those before are multiplied:
 *     enum { PANEL_ROWS = ..., PANEL_K = ..., N_PANELS = ..., PANEL_GROUPS = ..., N_PLANES = ..., ASK_WEIGHTS = ... }; */
#ifndef QUERN_MATMUL_PANELS_AVX512_H
#define QUERN_MATMUL_PANELS_AVX512_H

#include <stddef.h>
#include <string.h>
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

enum { PANEL_BLOCKS = PANEL_K / 32, PANEL_ACTS = PANEL_BLOCKS / 4, MOST_ROWS = 528 };

/* A group: codes of 32 k as v[q] of matmul_image.h, as the product wants them; small integers s, if
 * there are any, of blocks (the first) or their halves; factors t of minima in pairs of 16 bits, those
 * of block b and the next at t[b] where panel_pairs, else of b's halves; where a head begins or goes
 * on, every four blocks at least, its d and m.  Blocks to a multiple of four are zeros.  Where sums may fit into 16 bits
 * (matmul_shorts_avx512vnni.h), the largest sum of squares of weights of one s, for each output. */
struct weight_panel {
    uint8_t codes[N_PLANES][PANEL_BLOCKS][8][64];
    int32_t squares[IMAGE_ROWS];
    int32_t s[PANEL_BLOCKS][2][IMAGE_ROWS], t[PANEL_BLOCKS][IMAGE_ROWS];
    float d[PANEL_BLOCKS][IMAGE_ROWS], m[PANEL_BLOCKS][IMAGE_ROWS];
};

/* Rows of x, then zeros; codes of 64 k side by side.  For each 128 k of a row d and, where there are minima, the eight
 * sums of halves of blocks (or, where panel_pairs, four sums of blocks), or, if there is a bias, -bias times the sums of
 * four blocks or of their eight halves: no type has both.  squares: as in weight_panel, of 16 codes of x. */
struct row_panel {
    int8_t q[PANEL_BLOCKS / 2][PANEL_ROWS][64];
    float d[PANEL_ACTS][PANEL_ROWS];
    int32_t squares;
    union {
        _Alignas(64) int16_t sum[PANEL_ACTS][PANEL_ROWS][8];
        int32_t of_bias[PANEL_ACTS][PANEL_ROWS][4];
        int32_t of_bias_halves[PANEL_ACTS][PANEL_ROWS][8];
    };
};

/* What is used of it, and where the next one begins. */
INLINE size_t panel_bytes(const struct matmul_form f)
{
    return offsetof(struct row_panel, sum) + sizeof(int32_t[PANEL_ACTS][PANEL_ROWS][4]) *
                                                 (matmul_has_halves(&f) && !matmul_has_min(&f) ? 2 : 1);
}

/* The n-th from x on. */
INLINE const struct row_panel *panel_at(const struct matmul_form f, const struct row_panel *x, int n)
{
    return (const void *)((const char *)x + (size_t)n * panel_bytes(f));
}

/* Sums of a panel's rows with a group, an output a lane. */
typedef float panel_sums[PANEL_ROWS][IMAGE_ROWS];

struct panels {
    struct weight_panel w[PANEL_GROUPS];
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
                         const struct ahead ahead, panel_codes codes, struct weight_panel *out)
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
        ask_ahead_by(ahead, w, image_block_bytes(&f));
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
            (__m256i *)(void *)out->of_bias_halves[i][r],
            _mm256_mullo_epi32(_mm256_cvtepi16_epi32(sums), _mm256_set1_epi32(-bias)));
    else if (bias)
        _mm_store_si128((__m128i *)(void *)out->of_bias[i][r],
                        _mm_madd_epi16(sums, _mm_set1_epi16((int16_t)-bias)));
}

/* matmul_unit's lay_out. */
INLINE void panel_rows(const struct drive *d, int64_t i, int64_t r, const int bias)
{
    static const struct qrn_q8_act none;
    const struct matmul_form *f = qrn_matmul_form(d->j->w->dtype);
    const int64_t blocks = image_blocks(f, d->mlx_group), n_rows = matmul_n_rows(d->j, i) - r;
    const int64_t n_acts = matmul_act_blocks(d->j);
    const struct qrn_q8_act *x[PANEL_ROWS];
    for (int c = 0; c < PANEL_ROWS; c++) {
        const struct matmul_row row = matmul_row_at(d->j, i, c < n_rows ? r + c : r);
        x[c] = drive_x(d, &row, 0);
    }
    for (int64_t b0 = 0; b0 < n_acts; b0 += PANEL_ACTS) {
        struct row_panel *out = (void *)drive_panel(d, i, r, b0 * QRN_Q8_ACT_BLOCK);
        const int n = (int)(n_acts - b0 < PANEL_ACTS ? n_acts - b0 : PANEL_ACTS);
        for (int c = 0; c < PANEL_ROWS; c++)
            for (int b = 0; b < n; b++) panel_act(*f, blocks, bias, c < n_rows ? x[c] + b0 + b : &none, out, b, c);
    }
}

/* Outputs of this many bytes and more will have left the caches before they are read: they go to memory by
 * the short way. */
enum { STREAMED_BYTES = 4 << 20 };

/* What a product asks for as it goes, a part of it for each part of a group: the next panels, or NULL, and of each
 * group's weights, of those that come next, bytes w_from to w_end - 1. */
struct panel_ahead {
    const char *x, *w;
    const struct matmul_tile *tile; /* where groups lie */
    size_t w_from, w_end;
};

/* Panels that meet groups: n_blocks blocks, `run` of them under one head; the sums of panel p with
 * group c, new or continued, are total[p][c].  With the last columns they are finished (`end`) and go to n_rows rows
 * of the output, `stream`: past the caches, to 64 aligned bytes at a time.  out: these rows from the first group on, n
 * outputs each; where there are fewer than the panels have, the last one again. */
struct panel_job {
    const struct weight_panel *w;
    const struct row_panel *x;
    int n_panels, n_groups, n_rows;
    int64_t n_blocks, n;
    panel_sums (*total)[PANEL_GROUPS];
    bool begin, end, stream;
    struct panel_ahead ahead;
    float *out[N_PANELS * PANEL_ROWS];
};

enum { ASKED_ROWS = PANEL_ROWS, ASKED_PARTS = N_PANELS };

/* Part `part` of those that group c asks for; rows of the output among them. */
INLINE void panel_ask(const struct matmul_form f, const struct panel_job *j, int c, int part)
{
    enum { PARTS = PANEL_GROUPS * ASKED_PARTS };
    const size_t each = N_PANELS * panel_bytes(f) / PARTS / 64 * 64; /* a line more costs AMX 3 % of a prompt */
    const struct panel_ahead *a = &j->ahead;
    if (part >= ASKED_PARTS) return;
    for (size_t at = 0; at < each && a->x; at += 64)
        _mm_prefetch(a->x + (size_t)(c * ASKED_PARTS + part) * each + at, _MM_HINT_T1);
    if (part == 0 && a->w_from < a->w_end) {
        const char *w = matmul_group(a->tile, a->w, c);
        for (size_t at = a->w_from; at < a->w_end; at += 64) _mm_prefetch(w + at, _MM_HINT_T1);
    }
    for (int r = 0; r < ASKED_ROWS && j->end && !j->stream; r++)
        __builtin_prefetch(j->out[ASKED_ROWS * part + r] + c * IMAGE_ROWS, 1);
}

/* Which outputs of group c there are. */
INLINE __mmask16 panel_mask(const struct panel_job *j, int c)
{
    const int64_t left = j->n - c * IMAGE_ROWS;
    return (__mmask16)(left >= 16 ? 0xffffu : left > 0 ? (1u << left) - 1u : 0u);
}

/* sum and the sums of minima of a row, the run of blocks from b on, whose factors are t. */
INLINE __m512i panel_minima(const struct matmul_form f, __m512i sum, const __m512i *t,
                            const struct row_panel *x, int64_t b, const int run, int r)
{
    const int step = panel_pairs(f, run) ? 2 : 1;
    const int16_t *sums = x->sum[b / 4][r] + b % 4 * 2 / step;
    UNROLL
    for (int i = 0; i < run; i += step)
        sum = _mm512_dpwssd_epi32(sum, t[i], broadcast_512(sums + 2 * i / step));
    return sum;
}

/* A product of all; finished sums are where they belong. */
typedef void panel_product(const struct matmul_form f, const struct panel_job *job, const int run);

/* Whether rows of the output may go past the caches: a whole lot of them, aligned. */
INLINE bool panel_streams(const struct panel_job *job)
{
    bool aligned = true;
    for (int r = 0; r < job->n_rows; r++) aligned = aligned && (uintptr_t)job->out[r] % 64 == 0;
    return aligned && job->n_rows == job->n_panels * PANEL_ROWS && job->n == (int64_t)job->n_groups * IMAGE_ROWS;
}

/* Weights that come after t's, `bytes` of each group, a part of them with each of n_parts. */
INLINE void panel_ask_weights(struct panel_ahead *a, const struct matmul_tile *t, size_t bytes, size_t part, size_t n_parts)
{
    const size_t each = (bytes / n_parts / 64 + 1) * 64, from = part * each;
    a->w = t->next_w;
    a->tile = t;
    a->w_from = from;
    a->w_end = from + each < bytes ? from + each : bytes;
}

/* silu_mul of a job's finished sums, whose first half are gates and whose second ups, rows r0 and on: to middle, from its group g
 * on. */
typedef void panel_middle(const struct panel_job *job, const struct qrn_tensor *middle, int64_t r0,
                          int64_t g);

/* A walk with as many blocks under a head. */
INLINE void panel_walk_of(const struct matmul_form f, const int64_t blocks, panel_codes codes,
                          panel_product product, panel_middle silu, const struct drive *d,
                          int64_t i, int64_t g, int64_t r, int64_t n_rows, int64_t k0,
                          const struct matmul_tile *t, struct panels *own)
{
    const int n_panels = (int)((n_rows + PANEL_ROWS - 1) / PANEL_ROWS);
    for (int c = 0; c < t->n_groups; c++)
        panel_unpack(f, matmul_group(t, t->w, c), t->k, blocks, t->ahead, codes, &own->w[c]);
    const bool last = k0 + t->k == d->j->k, end = last && !d->middle;
    const bool stream = d->j->n * matmul_n_rows(d->j, i) >= STREAMED_BYTES / (int)sizeof(float);
    for (int p = 0; p < n_panels; p += N_PANELS) {
        const int64_t r0 = r + p * PANEL_ROWS, left = n_rows - p * PANEL_ROWS;
        const char *x = drive_panel(d, i, r0, k0);
        struct panel_job job = {
            .w = own->w,
            .x = (const void *)x,
            .n_panels = n_panels - p < N_PANELS ? n_panels - p : N_PANELS,
            .n_groups = t->n_groups,
            .n_rows = (int)(left < N_PANELS * PANEL_ROWS ? left : N_PANELS * PANEL_ROWS),
            .n_blocks = t->k / 32,
            .n = t->n,
            .total = &own->sums[p],
            .begin = t->begin,
            .end = end,
            .ahead = {.x = p + N_PANELS < n_panels ? x + N_PANELS * panel_bytes(f) : NULL},
        };
        if (ASK_WEIGHTS && t->next_w)
            panel_ask_weights(&job.ahead, t, image_group_bytes(d->j->w->dtype, t->k, d->mlx_group),
                              (size_t)(p / N_PANELS), (size_t)((n_panels + N_PANELS - 1) / N_PANELS));
        for (int64_t n = 0; n < N_PANELS * PANEL_ROWS && end; n++)
            job.out[n] = matmul_row_at(d->j, i, r0 + (n < left ? n : left - 1)).out + g * IMAGE_ROWS;
        job.stream = end && stream && panel_streams(&job);
        product(f, &job, blocks < 4 ? (int)blocks : 4);
        if (job.stream) _mm_sfence();
        if (last && d->middle) silu(&job, d->middle, r0, g);
    }
}

/* matmul_unit's many. */
INLINE void panel_walk(const struct matmul_form f, panel_codes codes, panel_product product,
                       panel_middle silu, const struct drive *d, int64_t i, int64_t g, int64_t r,
                       int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *memory)
{
    struct panels *own = (struct panels *)(void *)memory;
    if (f.blocks)
        panel_walk_of(f, f.blocks, codes, product, silu, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 1)
        panel_walk_of(f, 1, codes, product, silu, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 2)
        panel_walk_of(f, 2, codes, product, silu, d, i, g, r, n_rows, k0, t, own);
    else
        panel_walk_of(f, 4, codes, product, silu, d, i, g, r, n_rows, k0, t, own);
}

#endif
