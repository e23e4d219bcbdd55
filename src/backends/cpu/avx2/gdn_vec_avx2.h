/* SPDX-License-Identifier: MIT
 * The words that the templates of the gated delta net are written in, for AVX2. */
#ifndef QUERN_GDN_VEC_AVX2_H
#define QUERN_GDN_VEC_AVX2_H

#include <string.h>

#include "backends/cpu/avx2/vec_avx2.h"

typedef __m256 vec;
enum { LANES = 8 };

static inline vec vzero(void) { return _mm256_setzero_ps(); }
static inline vec vset1(float x) { return _mm256_set1_ps(x); }
static inline vec vload(const float *p) { return _mm256_loadu_ps(p); }
static inline void vstore(float *p, vec v) { _mm256_storeu_ps(p, v); }
static inline vec vexp(vec x) { return exp_ps(x); }
static inline vec vsilu(vec x) { return silu_ps(x); }
static inline float vsum(vec x) { return sum_lanes_ps(x); }
static inline vec vmul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec vfma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec vfnma(vec a, vec b, vec c) { return _mm256_fnmadd_ps(a, b, c); }

static inline vec vload_first(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

static inline void vstore_first(float *p, int n, vec v)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* bf16, of which only the first n (1 .. LANES) are there. */
static inline vec vload_bf16(const uint16_t *p, int n)
{
    uint16_t h[LANES] = {0};
    memcpy(h, p, n < LANES ? (size_t)n * sizeof *h : sizeof h);
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)h));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Rounds to nearest even; what is not a number stays so. */
static inline void vstore_bf16(uint16_t *p, int n, vec v)
{
    uint16_t h[LANES];
    const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i r = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    r = _mm256_srli_epi32(r, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0xd8);
    _mm_storeu_si128((__m128i *)(void *)h, _mm256_castsi256_si128(packed));
    memcpy(p, h, n < LANES ? (size_t)n * sizeof *h : sizeof h);
}

#endif
