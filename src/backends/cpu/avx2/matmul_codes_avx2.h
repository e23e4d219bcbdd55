/* SPDX-License-Identifier: MIT
 * Codes and scales of an image of interleaved rows in AVX2 registers, for half a group (8 rows) and
 * 32 k.  The form is a constant where these are called, so that its branches vanish. */
#ifndef QUERN_MATMUL_CODES_AVX2_H
#define QUERN_MATMUL_CODES_AVX2_H

#include <immintrin.h>
#include <string.h>
#include "backends/cpu/matmul_image.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m128i load_64(const void *p)
{
    return _mm_loadl_epi64(p);
}

/* Four bytes, eight times. */
INLINE __m256i broadcast_256(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}

/* (a >> right) & mask, a << -right where right is negative; nothing crosses a byte that mask
 * keeps. */
INLINE __m256i field_256(__m256i a, int right, int mask)
{
    const __m256i s = right > 0   ? _mm256_srli_epi16(a, right)
                      : right < 0 ? _mm256_slli_epi16(a, -right)
                                  : a;
    return _mm256_and_si256(s, _mm256_set1_epi8((char)mask));
}

/* v[q]: codes of k = 4 q .. 4 q + 3 of rows 8 half .. 8 half + 7; p: the block's codes. */
INLINE void load_codes_256(const struct matmul_form f, const char *p, int half, __m256i v[8])
{
    p += 32 * half;
    if (f.bits == 8) {
        for (int q = 0; q < 8; q++) v[q] = load_256(p + 64 * q);
        return;
    }
    int done = 0;
    if (f.bits >= 4) {
        for (int i = 0; i < 4; i++, p += 64) {
            const __m256i a = load_256(p);
            v[i] = field_256(a, 0, 15);
            v[i + 4] = field_256(a, 4, 15);
        }
        done = 4;
    }
    if (f.bits - done >= 2) {
        for (int i = 0; i < 2; i++, p += 64) {
            const __m256i a = load_256(p);
            for (int s = 0; s < 4; s++) {
                const __m256i two = field_256(a, 2 * s - done, 3 << done);
                v[2 * s + i] = done ? _mm256_or_si256(v[2 * s + i], two) : two;
            }
        }
        done += 2;
    }
    if (f.bits - done == 1) {
        const __m256i a = load_256(p);
        for (int q = 0; q < 8; q++) v[q] = _mm256_or_si256(v[q], field_256(a, q - done, 1 << done));
    }
}

/* Sixteen levels, plus bias, for shuffles. */
INLINE __m256i levels_256(const struct matmul_form f, int bias)
{
    const int8_t *table = f.levels == LEVELS_IQ4 ? qrn_iq4_levels : qrn_fp4_levels;
    const __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm256_broadcastsi128_si256(_mm_add_epi8(t, _mm_set1_epi8((char)bias)));
}

/* The head's d (i = 0) or m (i = 1). */
INLINE __m256 load_head_256(const struct matmul_form f, const char *p, int half, int i)
{
    if (f.head == HEAD_F32_F32)
        return _mm256_loadu_ps((const float *)(const void *)(p + 64 * i + 32 * half));
    if (f.head == HEAD_E8M0) { /* 2^(e - 128); what is below 2^-126 is 0 */
        const __m256i e = _mm256_cvtepu8_epi32(load_64(p + 8 * half));
        const __m256i less =
            _mm256_max_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), _mm256_setzero_si256());
        return _mm256_castsi256_ps(_mm256_slli_epi32(less, 23));
    }
    return _mm256_cvtph_ps(
        _mm_loadu_si128((const __m128i *)(const void *)(p + 32 * i + 16 * half)));
}

INLINE __m256i load_bytes_256(const char *p, bool is_signed)
{
    const __m128i b = load_64(p);
    return is_signed ? _mm256_cvtepi8_epi32(b) : _mm256_cvtepu8_epi32(b);
}

/* Small integers of one block: s[0] (all), or s[0] and s[1] of its halves, which multiply d; the
 * same for t and m. */
struct subs_256 {
    __m256i s[2], t[2];
};

INLINE struct subs_256 load_subs_256(const struct matmul_form f, const char *p, int half)
{
    const __m256i zero = _mm256_setzero_si256();
    struct subs_256 r = {{zero, zero}, {zero, zero}};
    p += 8 * half;
    if (f.sub == SUB_SCALE || f.sub == SUB_HALVES) r.s[0] = load_bytes_256(p, true);
    if (f.sub == SUB_HALVES) r.s[1] = load_bytes_256(p + 16, true);
    if (f.sub == SUB_SCALE_MIN) {
        r.s[0] = load_bytes_256(p, false);
        r.t[0] = load_bytes_256(p + 16, false);
    }
    if (f.sub == SUB_HALVES_MIN)
        for (int h = 0; h < 2; h++) {
            const __m256i wide = load_bytes_256(p + 16 * h, false);
            r.s[h] = _mm256_and_si256(wide, _mm256_set1_epi32(15));
            r.t[h] = _mm256_srli_epi32(wide, 4);
        }
    return r;
}

/* The same as floats. */
struct scales_256 {
    __m256 s[2], t[2];
};

INLINE struct scales_256 load_scales_256(const struct matmul_form f, const char *p, int half)
{
    const struct subs_256 i = load_subs_256(f, p, half);
    struct scales_256 r;
    for (int h = 0; h < 2; h++) {
        r.s[h] = _mm256_cvtepi32_ps(i.s[h]);
        r.t[h] = _mm256_cvtepi32_ps(i.t[h]);
    }
    return r;
}

/* Integers of 16 bits in pairs. */
INLINE __m256i pairs_256(__m256i low, __m256i high)
{
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}

/* What d (of[0], of[1]: s) or m (t) is multiplied by with the two sums of a block of x. */
INLINE __m256i sub_pairs_256(const struct matmul_form f, const __m256i of[2])
{
    return f.sub == SUB_NONE ? _mm256_set1_epi16(1) : pairs_256(of[0], of[matmul_has_halves(&f)]);
}

#endif
