/* SPDX-License-Identifier: MIT
 * Vector vocabulary of the AVX2 kernels.  static inline: a copy built with these flags must never be
 * the one that the linker keeps for others. */
#ifndef QUERN_VEC_AVX2_H
#define QUERN_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

/* The first n lanes, for maskload and maskstore; none if n is negative, all if it is above 8. */
static inline __m256i first_lanes(int64_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n > 8 ? 8 : n)), index);
}

/* e^x, error below 2 units in the last place; the same bits in every lane, also when masked.
 * Flushes below 2^-126; +inf above 88.72; NaN stays. */
static inline __m256 exp_ps(__m256 x)
{
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f); /* Cephes, expf */
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    /* Times 2^n by its exponent, which stays one of a float between the limits below; NaN stays, as n is
     * then 0 in the bits that are added. */
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    const __m256 low = _mm256_cmp_ps(x, _mm256_set1_ps(-87.3365448f), _CMP_LE_OQ);
    const __m256 high = _mm256_cmp_ps(x, _mm256_set1_ps(88.7228394f), _CMP_GE_OQ);
    return _mm256_blendv_ps(_mm256_andnot_ps(low, p), _mm256_set1_ps(__builtin_inff()), high);
}

/* log(1 + x) for x >= 0, error below 3 units in the last place, small x too. */
static inline __m256 log1p_ps(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), u = _mm256_add_ps(x, one);
    /* u = m 2^e with m from 0.7 to 1.4 */
    const __m256 twice = _mm256_mul_ps(u, _mm256_set1_ps(1.41421356f));
    const __m256i i = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(twice), 23),
                                       _mm256_set1_epi32(127));
    const __m256 e = _mm256_cvtepi32_ps(i);
    const __m256i m = _mm256_sub_epi32(_mm256_castps_si256(u), _mm256_slli_epi32(i, 23));
    const __m256 f = _mm256_sub_ps(_mm256_castsi256_ps(m), one);
    __m256 p = _mm256_set1_ps(7.0376836292e-2f); /* Cephes, logf */
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(-1.1514610310e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.1676998740e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(-1.2420140846e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.4249322787e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(-1.6668057665e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.0000714765e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(-2.4999993993e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(3.3333331174e-1f));
    const __m256 f2 = _mm256_mul_ps(f, f);
    p = _mm256_mul_ps(p, _mm256_mul_ps(f2, f));
    p = _mm256_fmadd_ps(e, _mm256_set1_ps(-2.12194440e-4f), p);
    /* what rounding took from 1 + x */
    const __m256 lost = _mm256_div_ps(_mm256_sub_ps(x, _mm256_sub_ps(u, one)), u);
    p = _mm256_add_ps(p, lost);
    p = _mm256_add_ps(f, _mm256_fmadd_ps(f2, _mm256_set1_ps(-0.5f), p));
    return _mm256_fmadd_ps(e, _mm256_set1_ps(0.693359375f), p);
}

/* Cosine and sine of any |x| up to 2^26, as floats within half a unit in the last place but for
 * one in ten thousand: by float64 throughout. */
static inline void cos_sin_pd(__m256d x, __m128 *cosine, __m128 *sine)
{
    const __m256d n = _mm256_round_pd(_mm256_mul_pd(x, _mm256_set1_pd(0.6366197723675814)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(1.5707963267948966), x);
    r = _mm256_fnmadd_pd(n, _mm256_set1_pd(6.123233995736766e-17), r);
    const __m256d r2 = _mm256_mul_pd(r, r);
    __m256d s = _mm256_set1_pd(-2.5050747762857807e-8); /* Cephes, sin and cos */
    s = _mm256_fmadd_pd(s, r2, _mm256_set1_pd(2.7557313621385722e-6));
    s = _mm256_fmadd_pd(s, r2, _mm256_set1_pd(-1.9841269829589539e-4));
    s = _mm256_fmadd_pd(s, r2, _mm256_set1_pd(8.3333333333221186e-3));
    s = _mm256_fmadd_pd(s, r2, _mm256_set1_pd(-1.6666666666666631e-1));
    s = _mm256_fmadd_pd(_mm256_mul_pd(s, r2), r, r);
    __m256d c = _mm256_set1_pd(2.0875723212981748e-9);
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(-2.7557314351390663e-7));
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(2.4801587288851704e-5));
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(-1.3888888888873056e-3));
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(4.1666666666666595e-2));
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(-0.5));
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(1.0));
    /* by the quarter: 0: c, s; 1: -s, c; 2: -c, -s; 3: s, -c */
    const __m256i q = _mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n)), one = _mm256_set1_epi64x(1);
    const __m256d odd = _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_and_si256(q, one), one));
    const __m256i cos_sign = _mm256_slli_epi64(_mm256_add_epi64(q, one), 62);
    const __m256i sin_sign = _mm256_slli_epi64(q, 62), sign = _mm256_set1_epi64x(INT64_MIN);
    const __m256d a = _mm256_blendv_pd(c, s, odd), b = _mm256_blendv_pd(s, c, odd);
    *cosine = _mm256_cvtpd_ps(
        _mm256_xor_pd(a, _mm256_castsi256_pd(_mm256_and_si256(cos_sign, sign))));
    *sine = _mm256_cvtpd_ps(
        _mm256_xor_pd(b, _mm256_castsi256_pd(_mm256_and_si256(sin_sign, sign))));
}

/* 1 / (1 + e^-x) */
static inline __m256 sigmoid_ps(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

/* x / (1 + e^-x) */
static inline __m256 silu_ps(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(x, _mm256_add_ps(one, exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

/* Sums of lanes in one fixed order (a tree). */
static inline float sum_lanes_ps(__m256 v)
{
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

static inline double sum_lanes_pd(__m256d v)
{
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

#endif
