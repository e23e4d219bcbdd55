/* SPDX-License-Identifier: MIT
 * Many rows of x by vpdpbusd on 256-bit vectors: six at a time meet a group of weights, so that twelve sums are under way
 * and what is loaded of either is used often. */
#ifndef QUERN_MATMUL_TILES_AVXVNNI_H
#define QUERN_MATMUL_TILES_AVXVNNI_H

enum { PANEL_ROWS = 6, N_PANELS = 4 };

#include "backends/cpu/avx2/matmul_panels_avx2.h"

/* Small integers multiply sums of 32 bits, or floats that hold those. */
INLINE __m256i tile_factor(const struct matmul_form f, __m256i s)
{
    return float_sums(f) ? _mm256_castps_si256(_mm256_cvtepi32_ps(s)) : s;
}

/* sum + dot * s; sum: integers, or floats where those hold them. */
INLINE __m256i add_scaled(const struct matmul_form f, __m256i sum, __m256i dot, __m256i s)
{
    if (!float_sums(f)) return _mm256_add_epi32(sum, _mm256_mullo_epi32(dot, s));
    return _mm256_castps_si256(
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_castsi256_ps(s), _mm256_castsi256_ps(sum)));
}

/* Block b of a panel: sums of codes, new or added to. */
INLINE void tile_block(const struct matmul_form f, const struct weight_panel *w,
                       const struct row_panel *x, int64_t b, bool first,
                       __m256i isum[PANEL_ROWS][2])
{
    const bool scaled = f.sub != SUB_NONE;
    const int n_parts = matmul_has_halves(&f) ? 2 : 1, n = 8 / n_parts;
    const __m256i zero = _mm256_setzero_si256();
    UNROLL
    for (int h = 0; h < n_parts; h++) {
        __m256i dots[PANEL_ROWS][2];
        UNROLL
        for (int r = 0; r < PANEL_ROWS; r++) UNROLL
        for (int half = 0; half < 2; half++) {
            dots[r][half] = bias_of(f) ? _mm256_set1_epi32(x->starts[r][n_parts * b + h]) : zero;
            if (!scaled && !first) dots[r][half] = _mm256_add_epi32(dots[r][half], isum[r][half]);
        }
        UNROLL
        for (int q = n * h; q < n * h + n; q++) {
            const __m256i *v = w->codes[b][q];
            UNROLL
            for (int r = 0; r < PANEL_ROWS; r++) {
                const __m256i four = broadcast_256(x->acts[r][b / 4].q + b % 4 * 32 + 4 * q);
                UNROLL
                for (int half = 0; half < 2; half++)
                    dots[r][half] = _mm256_dpbusd_avx_epi32(dots[r][half], v[half], four);
            }
        }
        UNROLL
        for (int r = 0; r < PANEL_ROWS; r++) UNROLL
        for (int half = 0; half < 2; half++)
            isum[r][half] = scaled ? add_scaled(f, first && h == 0 ? zero : isum[r][half],
                                                dots[r][half], w->s[b][h][half])
                                   : dots[r][half];
    }
}

INLINE void tile(const struct matmul_form f, const struct weight_panel *w,
                 const struct row_panel *x, int64_t n_blocks, const int run, bool begin,
                 panel_sums *total)
{
    const __m256 zero = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b += 4) {
        __m256 p[PANEL_ROWS][2];
        UNROLL
        for (int i = 0; i < 4; i += run) {
            __m256i isum[PANEL_ROWS][2];
            if (i > 0 && b + i >= n_blocks) break;
            UNROLL
            for (int c = 0; c < run; c++) {
                tile_block(f, w, x, b + i + c, c == 0, isum);
                if (f.sub != SUB_NONE)
                    __asm__("" : "+m"(isum)); /* registers are for the next sums */
            }
            UNROLL
            for (int r = 0; r < PANEL_ROWS; r++) UNROLL
            for (int half = 0; half < 2; half++)
                p[r][half] = panel_finish(f, i ? p[r][half] : zero,
                                          float_sums(f) ? _mm256_castsi256_ps(isum[r][half])
                                                        : _mm256_cvtepi32_ps(isum[r][half]),
                                          w, x, b + i, run, r, half);
            __asm__("" : "+m"(p));
        }
        panel_end(x, b, begin, p, total);
    }
}

#endif
