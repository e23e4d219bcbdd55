/* SPDX-License-Identifier: MIT
 * Products of many rounded rows: weights of some groups and columns are unpacked once for all rows,
 * rows are laid out beside them, and a tile of both is multiplied by what includes this.  It says
 * beforehand how many rows a panel has, and how many panels stay in the first cache:
 *     enum { PANEL_ROWS = ..., N_PANELS = ... }; */
#ifndef QUERN_MATMUL_PANELS_AVX512_H
#define QUERN_MATMUL_PANELS_AVX512_H

#include <string.h>
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"

enum { PANEL_K = 512, PANEL_BLOCKS = PANEL_K / 32, PANEL_GROUPS = 32 };

/* A group: codes + bias in bytes, as v[q] of matmul_image.h; scales and minima (to be added) of
 * blocks or of their halves. */
struct weight_panel {
    uint8_t codes[PANEL_BLOCKS][8][64];
    float d[PANEL_BLOCKS][2][IMAGE_ROWS], m[PANEL_BLOCKS][2][IMAGE_ROWS];
};

/* Rows of x.  of_bias: -bias * sum; those and d_sum of blocks (the first) or of their halves. */
struct row_panel {
    int8_t q[PANEL_BLOCKS][PANEL_ROWS][32];
    float d[PANEL_BLOCKS][PANEL_ROWS], d_sum[PANEL_BLOCKS][2][PANEL_ROWS];
    int32_t of_bias[PANEL_BLOCKS][2][PANEL_ROWS];
    float *out[PANEL_ROWS];
    int n_rows; /* the others are zeros, and summed nowhere */
};

struct panels {
    struct weight_panel w[PANEL_GROUPS];
    struct row_panel x[N_PANELS];
    float nowhere[PANEL_GROUPS * IMAGE_ROWS];
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
                      int bias, struct row_panel *out, int c)
{
    static const struct qrn_q8_act none;
    for (int64_t b = 0; b < n_blocks; b++) {
        const struct qrn_q8_act *a = x ? x + b : &none;
        memcpy(out->q[b][c], a->q, 32);
        out->d[b][c] = a->d;
        if (has_halves(f))
            for (int h = 0; h < 2; h++) {
                out->d_sum[b][h][c] = a->d * (float)a->sum[h];
                out->of_bias[b][h][c] = -bias * a->sum[h];
            }
        else {
            out->d_sum[b][0][c] = a->d_sum;
            out->of_bias[b][0][c] = -bias * (a->sum[0] + a->sum[1]);
        }
    }
}

/* Rows r .. of those that matrix i meets, columns k0 .. k0 + k - 1. */
INLINE void panel_rows(const struct matmul_form f, const struct drive *d, int64_t i, int64_t r,
                       int64_t k0, int64_t k, int64_t g, int bias, float *nowhere,
                       struct row_panel *out)
{
    const int64_t n_rows = matmul_n_rows(d->j, i) - r;
    out->n_rows = (int)(n_rows < PANEL_ROWS ? n_rows : PANEL_ROWS);
    for (int c = 0; c < PANEL_ROWS; c++) {
        if (c >= out->n_rows) {
            panel_row(f, NULL, k / 32, bias, out, c);
            out->out[c] = nowhere;
            continue;
        }
        const struct matmul_row row = matmul_row_at(d->j, i, r + c);
        panel_row(f, drive_x(d, &row, k0), k / 32, bias, out, c);
        out->out[c] = row.out + g * IMAGE_ROWS;
    }
}

/* out[first ..] of the rows of x, for a group of n_blocks blocks; new or continued. */
typedef void panel_product(const struct matmul_form f, const struct weight_panel *w,
                           const struct row_panel *x, int64_t n_blocks, int64_t first,
                           __mmask16 mask, bool begin);

/* matmul_unit's many.  Codes enter as codes - less (or levels + bias), so that they are levels +
 * bias. */
INLINE void panel_walk(const struct matmul_form f, int bias, int less, panel_product product,
                       const struct drive *d, int64_t i, int64_t g, int64_t k0,
                       const struct matmul_tile *t, char *memory)
{
    struct panels *own = (struct panels *)(void *)memory;
    const int64_t n_rows = matmul_n_rows(d->j, i);
    for (int c = 0; c < t->n_groups; c++)
        panel_unpack(f, t->w + (size_t)c * t->group_bytes, t->k, t->mlx_blocks, bias, less,
                     &own->w[c]);
    for (int64_t r = 0; r < n_rows;) {
        int n_panels = 0;
        for (; n_panels < N_PANELS && r < n_rows; n_panels++, r += PANEL_ROWS)
            panel_rows(f, d, i, r, k0, t->k, g, bias, own->nowhere, &own->x[n_panels]);
        for (int c = 0; c < t->n_groups; c++) {
            const int64_t left = t->n - c * IMAGE_ROWS;
            const __mmask16 mask = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
            for (int n = 0; n < n_panels; n++)
                product(f, &own->w[c], &own->x[n], t->k / 32, c * IMAGE_ROWS, mask, t->begin);
        }
    }
}

#endif
