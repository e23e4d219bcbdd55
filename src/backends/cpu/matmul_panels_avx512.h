/* SPDX-License-Identifier: MIT
 * Products of many rounded rows: weights of some groups and columns are unpacked once for some
 * hundreds of rows, those are laid out beside them a few at a time, and a tile of both is multiplied by
 * what includes this.  Sums wait in the lane's own memory, tile by tile, until all columns are in
 * them: rows of out lie far apart, and often a power of two apart.  What includes this says
 * beforehand how many rows a panel has, how many panels stay in the first cache, and how many groups
 * in the second, with MOST_ROWS rows of their sums:
 *     enum { PANEL_ROWS = ..., N_PANELS = ..., PANEL_GROUPS = ... }; */
#ifndef QUERN_MATMUL_PANELS_AVX512_H
#define QUERN_MATMUL_PANELS_AVX512_H

#include <string.h>
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"

enum { PANEL_K = 512, PANEL_BLOCKS = PANEL_K / 32, MOST_ROWS = 528 };

/* A group: codes + bias in bytes, as v[q] of matmul_image.h; scales and minima (to be added) of
 * blocks or of their halves. */
struct weight_panel {
    uint8_t codes[PANEL_BLOCKS][8][64];
    float d[PANEL_BLOCKS][2][IMAGE_ROWS], m[PANEL_BLOCKS][2][IMAGE_ROWS];
};

/* Rows of x, then zeros.  of_bias: -bias * sum; those and d_sum of blocks (the first) or of their
 * halves; where the form does not want them they are not there. */
struct row_panel {
    int8_t q[PANEL_BLOCKS][PANEL_ROWS][32];
    float d[PANEL_BLOCKS][PANEL_ROWS], d_sum[PANEL_BLOCKS][2][PANEL_ROWS];
    int32_t of_bias[PANEL_BLOCKS][2][PANEL_ROWS];
};

/* Sums of a panel's rows with a group, an output a lane. */
typedef float panel_sums[PANEL_ROWS][IMAGE_ROWS];

struct panels {
    struct weight_panel w[PANEL_GROUPS];
    struct row_panel x[N_PANELS];
    panel_sums sums[MOST_ROWS / PANEL_ROWS][PANEL_GROUPS];
};

INLINE bool has_halves(const struct matmul_form f)
{
    return f.sub == SUB_HALVES || f.sub == SUB_HALVES_MIN;
}

/* A block's codes, plus bias for tables, less `less` for others. */
INLINE void panel_codes(const struct matmul_form f, const char *image, __m512i table, int less,
                        uint8_t *out)
{
    __m512i v[8];
    load_codes_512(f, image, v);
    for (int q = 0; q < 8; q++) {
        if (f.levels != LEVELS_LINEAR)
            v[q] = _mm512_shuffle_epi8(table, v[q]);
        else if (less)
            v[q] = _mm512_sub_epi8(v[q], _mm512_set1_epi8((char)less));
        _mm512_store_si512(out + 64 * q, v[q]);
    }
}

INLINE void panel_scales(const struct matmul_form f, __m512 head_d, __m512 head_m, const char *sub,
                         struct weight_panel *out, int64_t b)
{
    const struct scales_512 s = load_scales_512(f, sub);
    const __m512 zero = _mm512_setzero_ps();
    for (int h = 0; h <= has_halves(f); h++) {
        _mm512_store_ps(out->d[b][h], f.sub == SUB_NONE ? head_d : _mm512_mul_ps(head_d, s.s[h]));
        if (matmul_has_min(&f))
            _mm512_store_ps(out->m[b][h], f.sub == SUB_NONE
                                              ? head_m
                                              : _mm512_mul_ps(head_m, _mm512_sub_ps(zero, s.t[h])));
    }
}

/* One group of an image; k in whole heads. */
INLINE void panel_unpack(const struct matmul_form f, const char *w, int64_t k, int64_t mlx_blocks,
                         int bias, int less, struct weight_panel *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    const __m512i table = levels_512(f, bias);
    for (int64_t b = 0; b < k / 32;) {
        const __m512 head_d = load_head_512(f, w, 0);
        const __m512 head_m = matmul_has_min(&f) ? load_head_512(f, w, 1) : head_d;
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, b++, w += image_block_bytes(&f)) {
            for (size_t at = 0; at < image_block_bytes(&f); at += 64)
                _mm_prefetch(w + AHEAD_BYTES + at, _MM_HINT_T0);
            panel_scales(f, head_d, head_m, w, out, b);
            panel_codes(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, table, less,
                        out->codes[b][0]);
        }
    }
}

/* A row of x, or zeros for NULL, as row c of a panel. */
INLINE void panel_row(const struct matmul_form f, const struct qrn_q8_act *x, int64_t n_blocks,
                      const int bias, struct row_panel *out, int c)
{
    static const struct qrn_q8_act none;
    for (int64_t b = 0; b < n_blocks; b++) {
        const struct qrn_q8_act *a = x ? x + b : &none;
        memcpy(out->q[b][c], a->q, 32);
        out->d[b][c] = a->d;
        for (int h = 0; h <= has_halves(f); h++) {
            const int32_t sum = has_halves(f) ? a->sum[h] : a->sum[0] + a->sum[1];
            if (matmul_has_min(&f))
                out->d_sum[b][h][c] = has_halves(f) ? a->d * (float)sum : a->d_sum;
            if (bias) out->of_bias[b][h][c] = -bias * sum;
        }
    }
}

/* Rows r .. of those that matrix i meets, columns k0 .. k0 + k - 1. */
INLINE void panel_rows(const struct matmul_form f, const struct drive *d, int64_t i, int64_t r,
                       int64_t k0, int64_t k, const int bias, struct row_panel *out)
{
    const int64_t n_rows = matmul_n_rows(d->j, i) - r;
    for (int c = 0; c < PANEL_ROWS; c++) {
        const struct qrn_q8_act *x = NULL;
        if (c < n_rows) {
            const struct matmul_row row = matmul_row_at(d->j, i, r + c);
            x = drive_x(d, &row, k0);
        }
        panel_row(f, x, k / 32, bias, out, c);
    }
}

/* Sums of all rows of a panel with a group, n_blocks blocks; new or continued. */
typedef void panel_product(const struct matmul_form f, const struct weight_panel *w,
                           const struct row_panel *x, int64_t n_blocks, panel_sums *sums,
                           bool begin);

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

/* matmul_unit's many.  Codes enter as codes - less (or levels + bias), so that they are levels +
 * bias. */
INLINE void panel_walk(const struct matmul_form f, const int bias, int less, panel_product product,
                       const struct drive *d, int64_t i, int64_t g, int64_t r, int64_t n_rows,
                       int64_t k0, const struct matmul_tile *t, char *memory)
{
    struct panels *own = (struct panels *)(void *)memory;
    for (int c = 0; c < t->n_groups; c++)
        panel_unpack(f, t->w + (size_t)c * t->group_bytes, t->k, t->mlx_blocks, bias, less,
                     &own->w[c]);
    const int n_panels = (int)((n_rows + PANEL_ROWS - 1) / PANEL_ROWS);
    for (int p = 0; p < n_panels; p += N_PANELS) {
        const int n = n_panels - p < N_PANELS ? n_panels - p : N_PANELS;
        for (int s = 0; s < n; s++)
            panel_rows(f, d, i, r + (p + s) * PANEL_ROWS, k0, t->k, bias, &own->x[s]);
        for (int c = 0; c < t->n_groups; c++)
            for (int s = 0; s < n; s++)
                product(f, &own->w[c], &own->x[s], t->k / 32, &own->sums[p + s][c], t->begin);
    }
    if (k0 + t->k == d->j->k) panel_store(d, i, g, r, n_rows, t, own);
}

#endif
