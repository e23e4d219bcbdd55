/* SPDX-License-Identifier: MIT
 * Vector vocabulary of the AVX-512 kernels.  static inline: a copy built with these flags must never
 * be the one that the linker keeps for others. */
#ifndef QUERN_VEC_AVX512_H
#define QUERN_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* The first n lanes; none if n is negative, all if it is above 16. */
static inline __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
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

/* log(1 + x) for x >= 0, error below 3 units in the last place, small x too. */
static inline __m512 log1p_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f), u = _mm512_add_ps(x, one);
    /* u = m 2^e with m from 0.7 to 1.4 */
    const __m512 twice = _mm512_mul_ps(u, _mm512_set1_ps(1.41421356f));
    const __m512 e = _mm512_getexp_ps(twice);
    const __m512 f = _mm512_sub_ps(
        _mm512_scalef_ps(u, _mm512_sub_ps(_mm512_setzero_ps(), e)), one);
    __m512 p = _mm512_set1_ps(7.0376836292e-2f); /* Cephes, logf */
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-1.1514610310e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.1676998740e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-1.2420140846e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.4249322787e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-1.6668057665e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.0000714765e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-2.4999993993e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(3.3333331174e-1f));
    const __m512 f2 = _mm512_mul_ps(f, f);
    p = _mm512_mul_ps(p, _mm512_mul_ps(f2, f));
    p = _mm512_fmadd_ps(e, _mm512_set1_ps(-2.12194440e-4f), p);
    /* what rounding took from 1 + x */
    const __m512 lost = _mm512_div_ps(_mm512_sub_ps(x, _mm512_sub_ps(u, one)), u);
    p = _mm512_add_ps(p, lost);
    p = _mm512_add_ps(f, _mm512_fmadd_ps(f2, _mm512_set1_ps(-0.5f), p));
    return _mm512_fmadd_ps(e, _mm512_set1_ps(0.693359375f), p);
}

/* Cosine and sine of any |x| up to 2^26, as floats within half a unit in the last place but for
 * one in ten thousand: by float64 throughout. */
static inline void cos_sin_pd(__m512d x, __m256 *cosine, __m256 *sine)
{
    const __m512d n = _mm512_roundscale_pd(_mm512_mul_pd(x, _mm512_set1_pd(0.6366197723675814)),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512d r = _mm512_fnmadd_pd(n, _mm512_set1_pd(1.5707963267948966), x);
    r = _mm512_fnmadd_pd(n, _mm512_set1_pd(6.123233995736766e-17), r);
    const __m512d r2 = _mm512_mul_pd(r, r);
    __m512d s = _mm512_set1_pd(-2.5050747762857807e-8); /* Cephes, sin and cos */
    s = _mm512_fmadd_pd(s, r2, _mm512_set1_pd(2.7557313621385722e-6));
    s = _mm512_fmadd_pd(s, r2, _mm512_set1_pd(-1.9841269829589539e-4));
    s = _mm512_fmadd_pd(s, r2, _mm512_set1_pd(8.3333333333221186e-3));
    s = _mm512_fmadd_pd(s, r2, _mm512_set1_pd(-1.6666666666666631e-1));
    s = _mm512_fmadd_pd(_mm512_mul_pd(s, r2), r, r);
    __m512d c = _mm512_set1_pd(2.0875723212981748e-9);
    c = _mm512_fmadd_pd(c, r2, _mm512_set1_pd(-2.7557314351390663e-7));
    c = _mm512_fmadd_pd(c, r2, _mm512_set1_pd(2.4801587288851704e-5));
    c = _mm512_fmadd_pd(c, r2, _mm512_set1_pd(-1.3888888888873056e-3));
    c = _mm512_fmadd_pd(c, r2, _mm512_set1_pd(4.1666666666666595e-2));
    c = _mm512_fmadd_pd(c, r2, _mm512_set1_pd(-0.5));
    c = _mm512_fmadd_pd(c, r2, _mm512_set1_pd(1.0));
    /* by the quarter: 0: c, s; 1: -s, c; 2: -c, -s; 3: s, -c */
    const __m512i q = _mm512_cvtpd_epi64(n), one = _mm512_set1_epi64(1);
    const __mmask8 odd = _mm512_test_epi64_mask(q, one);
    const __m512i cos_sign = _mm512_slli_epi64(_mm512_add_epi64(q, one), 62);
    const __m512i sin_sign = _mm512_slli_epi64(q, 62), sign = _mm512_set1_epi64(INT64_MIN);
    const __m512d a = _mm512_mask_blend_pd(odd, c, s), b = _mm512_mask_blend_pd(odd, s, c);
    *cosine = _mm512_cvtpd_ps(
        _mm512_xor_pd(a, _mm512_castsi512_pd(_mm512_and_si512(cos_sign, sign))));
    *sine = _mm512_cvtpd_ps(
        _mm512_xor_pd(b, _mm512_castsi512_pd(_mm512_and_si512(sin_sign, sign))));
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
