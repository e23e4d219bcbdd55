/* SPDX-License-Identifier: MIT
 * Vector vocabulary of the AVX-512 kernels.  static inline: a copy built with these flags must never
 * be the one that the linker keeps for others. */
#ifndef QUERN_VEC_AVX512_H
#define QUERN_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* The first n (0 .. 16) lanes. */
static inline __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

/* e^x, error below 2 units in the last place, for one rounding of FMAs: the same bits in every
 * lane, also when masked.  Flushes below 2^-126; +inf above 88.72; NaN stays. */
static inline __m512 exp_ps(__m512 x)
{
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f); /* Cephes, expf */
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    p = _mm512_scalef_ps(p, n);
    /* Where n is infinite r is not a number: the ends are set by hand. */
    const __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3365448f), _CMP_LT_OQ);
    const __mmask16 high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(88.7228394f), _CMP_GT_OQ);
    p = _mm512_mask_mov_ps(p, low, _mm512_setzero_ps());
    return _mm512_mask_mov_ps(p, high, _mm512_set1_ps(__builtin_inff()));
}

/* 1 / (1 + e^-x) */
static inline __m512 sigmoid_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(one, _mm512_add_ps(one, exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

/* x / (1 + e^-x) */
static inline __m512 silu_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(x, _mm512_add_ps(one, exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

/* Sum of lanes in one fixed order (a tree). */
static inline float sum_lanes_ps(__m512 v)
{
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

static inline double sum_lanes_pd(__m512d v)
{
    const __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

#endif
