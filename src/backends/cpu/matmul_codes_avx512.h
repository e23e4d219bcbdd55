/* SPDX-License-Identifier: MIT
 * Codes and scales of an image of interleaved rows in AVX-512 registers, for 16 rows and 32 k.  The
 * form is a constant where these are called, so that its branches vanish. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_CODES_AVX512_H
#define QUERN_BACKENDS_CPU_MATMUL_CODES_AVX512_H

#include <immintrin.h>
#include <string.h>
#include "backends/cpu/matmul_image.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load_512(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* (a >> right) & mask, a << -right where right is negative; nothing crosses a byte that mask
 * keeps. */
INLINE __m512i field_512(__m512i a, int right, int mask)
{
    const __m512i s = right > 0   ? _mm512_srli_epi16(a, (unsigned)right)
                      : right < 0 ? _mm512_slli_epi16(a, (unsigned)-right)
                                  : a;
    return _mm512_and_si512(s, _mm512_set1_epi8((char)mask));
}

/* Codes of k = 4 q .. 4 q + 3 of each row: nibbles, then pairs of bits, then bits, as many as the
 * codes want. */
INLINE __m512i load_code_512(const struct matmul_form f, const char *p, const int q)
{
    const int nibbles = f.bits >= 4 ? 4 : 0, n_twos = (f.bits - nibbles) / 2;
    if (f.bits == 8) return load_512(p + 64 * q);
    __m512i v = _mm512_setzero_si512();
    if (nibbles) v = field_512(load_512(p + 64 * (q % 4)), q / 4 * 4, 15);
    p += 64 * nibbles;
    if (n_twos)
        v = _mm512_or_si512(
            v, field_512(load_512(p + 64 * (q % 2)), q / 2 * 2 - nibbles, 3 << nibbles));
    if (f.bits % 2)
        v = _mm512_or_si512(
            v, field_512(load_512(p + 128 * n_twos), q - (f.bits - 1), 1 << (f.bits - 1)));
    return v;
}

/* v[q]: those of q, for all of a block. */
INLINE void load_codes_512(const struct matmul_form f, const char *p, __m512i v[8])
{
    for (int q = 0; q < 8; q++) v[q] = load_code_512(f, p, q);
}

/* Sixteen levels, plus bias, for shuffles. */
INLINE __m512i levels_512(const struct matmul_form f, int bias)
{
    const int8_t *table = f.levels == LEVELS_IQ4 ? qrn_iq4_levels : qrn_fp4_levels;
    const __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8((char)bias)));
}

/* The head's d (i = 0) or m (i = 1). */
INLINE __m512 load_head_512(const struct matmul_form f, const char *p, int i)
{
    if (f.head == HEAD_F32_F32) return _mm512_loadu_ps(p + 64 * i);
    if (f.head == HEAD_E8M0) { /* 2^(e - 128); what is below 2^-126 is 0 */
        const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
        const __m512i less =
            _mm512_max_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), _mm512_setzero_si512());
        return _mm512_castsi512_ps(_mm512_slli_epi32(less, 23));
    }
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * i)));
}

INLINE __m512i load_bytes_512(const char *p, bool is_signed)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return is_signed ? _mm512_cvtepi8_epi32(b) : _mm512_cvtepu8_epi32(b);
}

/* Small integers of one block: s[0] (all), or s[0] and s[1] of its halves, which multiply d; the same
 * for t and m. */
struct subs_512 {
    __m512i s[2], t[2];
};

INLINE struct subs_512 load_subs_512(const struct matmul_form f, const char *p)
{
    const __m512i zero = _mm512_setzero_si512();
    struct subs_512 r = {{zero, zero}, {zero, zero}};
    if (f.sub == SUB_SCALE || f.sub == SUB_HALVES) r.s[0] = load_bytes_512(p, true);
    if (f.sub == SUB_HALVES) r.s[1] = load_bytes_512(p + 16, true);
    if (f.sub == SUB_SCALE_MIN) {
        r.s[0] = load_bytes_512(p, false);
        r.t[0] = load_bytes_512(p + 16, false);
    }
    if (f.sub == SUB_HALVES_MIN)
        for (int h = 0; h < 2; h++) {
            const __m512i wide = load_bytes_512(p + 16 * h, false);
            r.s[h] = _mm512_and_si512(wide, _mm512_set1_epi32(15));
            r.t[h] = _mm512_srli_epi32(wide, 4);
        }
    return r;
}

/* The same as floats. */
struct scales_512 {
    __m512 s[2], t[2];
};

INLINE struct scales_512 load_scales_512(const struct matmul_form f, const char *p)
{
    const struct subs_512 i = load_subs_512(f, p);
    struct scales_512 r;
    for (int h = 0; h < 2; h++) {
        r.s[h] = _mm512_cvtepi32_ps(i.s[h]);
        r.t[h] = _mm512_cvtepi32_ps(i.t[h]);
    }
    return r;
}

/* What m is multiplied by with the two sums of a block of x, as pairs of 16 bits: t, or 1. */
INLINE __m512i min_pairs_512(const struct matmul_form f, const struct subs_512 *w)
{
    if (f.sub == SUB_NONE) return _mm512_set1_epi32(0x10001);
    return _mm512_or_si512(w->t[0], _mm512_slli_epi32(w->t[matmul_has_halves(&f)], 16));
}

INLINE __m512i broadcast_512(const void *four_bytes)
{
    int32_t four;
    memcpy(&four, four_bytes, sizeof four);
    return _mm512_set1_epi32(four);
}

/* A run's minima, whose sums are tsum, to p. */
INLINE __m512 finish_minima(const struct matmul_form f, __m512 p, __m512 tsum, __m512 m)
{
    return f.sub == SUB_NONE ? _mm512_fmadd_ps(tsum, m, p) : _mm512_fnmadd_ps(tsum, m, p);
}

/* A run's sums to p. */
INLINE __m512 finish_run(const struct matmul_form f, __m512 p, __m512 isum, __m512i tsum, __m512 d,
                         __m512 m)
{
    p = _mm512_fmadd_ps(isum, d, p);
    return matmul_has_min(&f) ? finish_minima(f, p, _mm512_cvtepi32_ps(tsum), m) : p;
}

#endif
