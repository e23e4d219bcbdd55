/* SPDX-License-Identifier: MIT
 * Codes of weights as tiles multiply them: levels, or levels times the small integers of their block,
 * whose bits go to two planes. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_CODES_AMX_H
#define QUERN_BACKENDS_CPU_MATMUL_CODES_AMX_H

#include "backends/cpu/matmul_panels_avx512.h"

/* Q4_K, Q5_K: small integers of 6 bits, three to a plane.  Q3_K, Q6_K, IQ4_XS: products of up to 15
 * bits and a sign, a byte to a plane.  Q2_K: products fit in one. */
INLINE bool splits_scale(const struct matmul_form f)
{
    return f.sub == SUB_SCALE_MIN;
}

INLINE int n_planes(const struct matmul_form f)
{
    return f.sub == SUB_NONE || f.sub == SUB_HALVES_MIN ? 1 : 2;
}

/* The second plane counts 2 to this. */
INLINE unsigned plane_shift(const struct matmul_form f)
{
    return splits_scale(f) ? 3 : 8;
}

INLINE bool is_unsigned(const struct matmul_form f, int plane)
{
    if (f.sub != SUB_NONE) return plane == 0 || splits_scale(f);
    return f.levels == LEVELS_LINEAR && f.bits == 8 && f.offset == 0;
}

/* Both words of each lane. */
INLINE __m512i words_512(__m512i lane)
{
    return _mm512_or_si512(_mm512_and_si512(lane, _mm512_set1_epi32(0xffff)),
                           _mm512_slli_epi32(lane, 16));
}

/* Codes v, small and not negative, times s, which leaves them in their bytes. */
INLINE __m512i times_bytes(__m512i v, __m512i s)
{
    return _mm512_mullo_epi16(v, words_512(s));
}

/* Levels v times s: low bytes and high ones. */
INLINE void times_words(__m512i v, __m512i s, __m512i *low, __m512i *high)
{
    const __m512i words = words_512(s), even_bytes = _mm512_set1_epi16(0xff);
    const __m512i even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8), words);
    const __m512i odd = _mm512_mullo_epi16(_mm512_srai_epi16(v, 8), words);
    /* even where the mask is, else odd */
    *low = _mm512_ternarylogic_epi32(even_bytes, even, _mm512_slli_epi16(odd, 8), 0xca);
    *high = _mm512_ternarylogic_epi32(even_bytes, _mm512_srli_epi16(even, 8), odd, 0xca);
}

/* panel_codes of tiles. */
INLINE void tile_codes(const struct matmul_form f, const struct subs_512 *subs, __m512i v[8],
                       struct weight_panel *out, int64_t b)
{
    for (int q = 0; q < 8; q++) {
        const __m512i s = subs->s[matmul_has_halves(&f) ? q / 4 : 0];
        __m512i low = v[q], high = v[q];
        if (f.levels != LEVELS_LINEAR)
            low = _mm512_shuffle_epi8(levels_512(f, 0), v[q]);
        else if (f.offset)
            low = _mm512_sub_epi8(v[q], _mm512_set1_epi8((char)f.offset));
        if (splits_scale(f)) {
            low = times_bytes(v[q], _mm512_and_si512(s, _mm512_set1_epi32(7)));
            high = times_bytes(v[q], _mm512_srli_epi32(s, 3));
        } else if (n_planes(f) > 1) {
            times_words(low, s, &low, &high);
        } else if (f.sub != SUB_NONE) {
            low = times_bytes(low, s);
        }
        _mm512_store_si512(out->codes[0][b][q], low);
        if (n_planes(f) > 1) _mm512_store_si512(out->codes[1][b][q], high);
    }
}

#endif
