/* SPDX-License-Identifier: MIT
 * The words that the templates of the gated delta net are written in, for AVX-512. */
#ifndef QUERN_GDN_VEC_AVX512_H
#define QUERN_GDN_VEC_AVX512_H

#include "backends/cpu/avx512/vec_avx512.h"

typedef __m512 vec;
enum { LANES = 16 };

static inline vec vzero(void) { return _mm512_setzero_ps(); }
static inline vec vset1(float x) { return _mm512_set1_ps(x); }
static inline vec vload(const float *p) { return _mm512_loadu_ps(p); }
static inline void vstore(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec vexp(vec x) { return exp_ps(x); }
static inline vec vsilu(vec x) { return silu_ps(x); }
static inline float vsum(vec x) { return sum_lanes_ps(x); }
static inline vec vmul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec vfma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec vfnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); }

static inline vec vload_first(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

static inline void vstore_first(float *p, int n, vec v)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

/* bf16, of which only the first n (1 .. LANES) are there. */
static inline vec vload_bf16(const uint16_t *p, int n)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* Rounds to nearest even; what is not a number stays so. */
static inline void vstore_bf16(uint16_t *p, int n, vec v)
{
    const __m512i bits = _mm512_castps_si512(v), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i r = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                             _mm512_set1_epi32(0x400000));
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

#endif
