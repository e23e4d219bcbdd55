/* SPDX-License-Identifier: MIT
 * Sums of products of bytes that fit into 16 bits.  One product of pairs multiplies such a sum by its small integer and
 * adds it up; other sums take a product of 32 bits, which is two instructions on a Xeon, and an addition, or a conversion
 * and a multiply-add.
 *
 * Sums of few or small weights always fit.  Of others that is known for a panel of weights and one of rows, from the
 * largest sums of squares of what is added up: no sum of products is above the root of the product of both. */
#ifndef QUERN_MATMUL_SHORTS_AVX512VNNI_H
#define QUERN_MATMUL_SHORTS_AVX512VNNI_H

#include "backends/cpu/avx512vnni/matmul_sums_avx512vnni.h"
#include "backends/cpu/matmul_panels_avx512.h"

enum shorts { SHORT_NEVER, SHORT_OFTEN, SHORT_ALWAYS };

/* Sums of a form's blocks, or of halves of them, that have small integers.  With 5 bits they are too large too often. */
INLINE enum shorts short_sums(const struct matmul_form f)
{
    const int n = matmul_has_halves(&f) ? 16 : 32, above = (1 << f.bits) - 1 - f.offset;
    const int most = n * 128 * (above > f.offset ? above : f.offset);
    if (f.sub == SUB_NONE || f.levels != LEVELS_LINEAR || f.bits == 5) return SHORT_NEVER;
    return most <= INT16_MAX ? SHORT_ALWAYS : SHORT_OFTEN;
}

/* Small integers of a panel as they lie there: beside zeros, for the upper half of a sum. */
INLINE __m512i stored_factor(const struct matmul_form f, __m512i s)
{
    return short_sums(f) == SHORT_NEVER ? as_factor(f, s) : _mm512_maskz_mov_epi16(0x55555555, s);
}

/* For sums that fit, or for others. */
INLINE __m512i load_factor(const struct matmul_form f, const bool shorts, const int32_t *at)
{
    const __m512i s = _mm512_load_si512(at);
    if (shorts || short_sums(f) == SHORT_NEVER) return s;
    return as_factor(f, _mm512_srai_epi32(_mm512_slli_epi32(s, 16), 16));
}

/* sum + dot * s, if dot fits. */
INLINE __m512i add_short(__m512i sum, __m512i dot, __m512i s)
{
    return _mm512_dpwssd_epi32(sum, dot, s);
}

/* Squares of the weights of block b, whose codes are v: c (c - 2 offset) + offset^2 each. */
INLINE void weight_squares(const struct matmul_form f, const __m512i v[8], struct weight_panel *out,
                           int64_t b)
{
    const int n_parts = matmul_has_halves(&f) ? 2 : 1, n = 8 / n_parts;
    __m512i most = b ? _mm512_load_si512(out->squares) : _mm512_setzero_si512();
    for (int h = 0; h < n_parts; h++) {
        __m512i sum = _mm512_set1_epi32(4 * n * f.offset * f.offset);
        for (int q = n * h; q < n * h + n; q++)
            sum = _mm512_dpbusd_epi32(
                sum, v[q], _mm512_sub_epi8(v[q], _mm512_set1_epi8((char)(2 * f.offset))));
        most = _mm512_max_epi32(most, sum);
    }
    _mm512_store_si512(out->squares, most);
}

/* The largest sum of squares of 16 of 64 codes, and `most`. */
INLINE __m512i row_squares(const int8_t *q, __m512i most)
{
    for (int i = 0; i < 64; i += 32) {
        const __m512i wide = _mm512_cvtepi8_epi16(_mm256_load_si256((const void *)(q + i)));
        const __m512i two = _mm512_madd_epi16(wide, wide);
        const __m512i four = _mm512_add_epi32(two, _mm512_shuffle_epi32(two, _MM_PERM_CDAB));
        const __m512i eight = _mm512_add_epi32(four, _mm512_shuffle_epi32(four, _MM_PERM_BADC));
        most = _mm512_max_epi32(most,
                                _mm512_add_epi32(eight, _mm512_shuffle_i64x2(eight, eight, 0xb1)));
    }
    return most;
}

/* A laid out panel's, of n acts. */
INLINE void panel_squares(struct row_panel *x, int n)
{
    __m512i most = _mm512_setzero_si512();
    for (int i = 0; i < 2 * n; i++)
        for (int r = 0; r < PANEL_ROWS; r++) most = row_squares(x->q[i][r], most);
    x->squares = _mm512_reduce_max_epi32(most);
}

/* Whether all sums of a panel of rows and one of weights fit. */
INLINE bool panel_fits(const struct matmul_form f, const struct row_panel *x,
                       const struct weight_panel *w)
{
    if (short_sums(f) != SHORT_OFTEN) return short_sums(f) == SHORT_ALWAYS;
    const int64_t of_x =
        (int64_t)x->squares * (matmul_has_halves(&f) ? 1 : 2); /* of two times 16 */
    return of_x * _mm512_reduce_max_epi32(_mm512_load_si512(w->squares)) <=
           (int64_t)INT16_MAX * INT16_MAX;
}

#endif
