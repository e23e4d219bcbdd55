/* SPDX-License-Identifier: MIT
 * Many rows of x by vpmaddubsw: four at a time meet a group of weights. */
#ifndef QUERN_MATMUL_TILES_AVX2_H
#define QUERN_MATMUL_TILES_AVX2_H

enum { PANEL_ROWS = 4, N_PANELS = 4 };

#include "backends/cpu/avx2/matmul_panels_avx2.h"

/* Small integers multiply pairs of 16 bits. */
INLINE __m256i tile_factor(const struct matmul_form f, __m256i s)
{
    (void)f;
    return pairs_256(s, s);
}

/* Adds the products of block b with 32 k of the rows, those of the first at x. */
INLINE void tile_block(const struct matmul_form f, const struct weight_panel *w, int64_t b,
                       const int8_t *x, __m256i isum[PANEL_ROWS][2])
{
    enum { NEXT_ROW = sizeof((struct row_panel *)0)->acts[0] };
    const int most = vectors_in_16_bits(f);
    __m256i part[PANEL_ROWS][2];
    UNROLL for (int q = 0; q < 8; q++)
    {
        const __m256i v[2] = {w->codes[b][q][0], w->codes[b][q][1]};
        const __m256i size[2] = {_mm256_abs_epi8(v[0]), _mm256_abs_epi8(v[1])};
        const __m256i *s = w->s[b][matmul_has_halves(&f) ? q / 4 : 0];
        UNROLL for (int r = 0; r < PANEL_ROWS; r++)
        {
            const __m256i four = broadcast_256(x + NEXT_ROW * r + 4 * q);
            UNROLL for (int half = 0; half < 2; half++)
            {
                const __m256i two =
                    is_signed(f) ? _mm256_maddubs_epi16(size[half], _mm256_sign_epi8(four, v[half]))
                                 : _mm256_maddubs_epi16(v[half], four);
                part[r][half] = q % most ? in_order(_mm256_add_epi16(part[r][half], two)) : two;
                if (q % most < most - 1) continue;
                isum[r][half] = add_pairs(isum[r][half], part[r][half],
                                          f.sub == SUB_NONE ? _mm256_set1_epi16(1) : s[half]);
            }
        }
    }
}

/* Where the sums of a run of blocks from b on begin: at what takes the bias off, without small integers. */
INLINE __m256i tile_start(const struct matmul_form f, const struct row_panel *x, int64_t b,
                          const int run, int r)
{
    int32_t start = 0;
    for (int i = 0; i < run && bias_of(f) && f.sub == SUB_NONE; i++) start += x->starts[r][b + i];
    return _mm256_set1_epi32(start);
}

/* The sums of a run of blocks as floats. */
INLINE __m256 tile_sum(const struct matmul_form f, const struct weight_panel *w,
                       const struct row_panel *x, int64_t b, const int run, int r, int half,
                       __m256i isum)
{
    for (int i = 0; i < run && bias_of(f) && f.sub != SUB_NONE; i++)
        isum = add_pairs(isum, broadcast_256(&x->acts[r][b / 4].sum[(b + i) % 4 * 2]),
                         w->pairs[b + i][half].bias);
    return _mm256_cvtepi32_ps(isum);
}

INLINE void tile(const struct matmul_form f, const struct weight_panel *w,
                 const struct row_panel *x, int64_t n_blocks, const int run, bool begin,
                 panel_sums *total)
{
    for (int64_t b = 0; b < n_blocks; b += 4) {
        __m256 p[PANEL_ROWS][2];
        for (int r = 0; r < PANEL_ROWS; r++) p[r][0] = p[r][1] = _mm256_setzero_ps();
        for (int64_t i = b; i < b + 4 && i < n_blocks; i += run) {
            __m256i isum[PANEL_ROWS][2];
            for (int r = 0; r < PANEL_ROWS; r++)
                isum[r][0] = isum[r][1] = tile_start(f, x, i, run, r);
            for (int c = 0; c < run; c++)
                tile_block(f, w, i + c, x->acts[0][b / 4].q + 32 * (i - b + c), isum);
            UNROLL for (int r = 0; r < PANEL_ROWS; r++) UNROLL for (int half = 0; half < 2; half++)
                p[r][half] =
                    panel_finish(f, p[r][half], tile_sum(f, w, x, i, run, r, half, isum[r][half]),
                                 w, x, i, run, r, half);
        }
        panel_end(x, b, begin, p, total);
    }
}

#endif
