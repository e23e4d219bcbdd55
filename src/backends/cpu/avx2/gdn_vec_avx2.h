/* SPDX-License-Identifier: MIT
 * The words that the templates of several ops are written in, for AVX2. */
#ifndef QUERN_GDN_VEC_AVX2_H
#define QUERN_GDN_VEC_AVX2_H

#include <stdbool.h>
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

static inline vec vadd(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec vsub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec vlog1p(vec x) { return log1p_ps(x); }
static inline vec vsigmoid(vec x) { return sigmoid_ps(x); }

/* Some lane of x is not at most y. */
static inline bool vabove(vec x, float y)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, vset1(y), _CMP_NLE_UQ)) != 0;
}

/* Lane by lane x > y ? a : b. */
static inline vec vabove_select(vec x, float y, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, vset1(y), _CMP_GT_OQ));
}

/* Neighbours change places. */
static inline vec vswap(vec x) { return _mm256_permute_ps(x, 0xb1); }

static inline void vcos_sin(vec x, vec *cosine, vec *sine)
{
    __m128 c[2], s[2];
    cos_sin_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), &c[0], &s[0]);
    cos_sin_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)), &c[1], &s[1]);
    *cosine = _mm256_insertf128_ps(_mm256_castps128_ps256(c[0]), c[1], 1);
    *sine = _mm256_insertf128_ps(_mm256_castps128_ps256(s[0]), s[1], 1);
}

static inline vec vload_first(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

static inline void vstore_first(float *p, int n, vec v)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* Lane l: exp((float)(G - p[l])). */
static inline vec vdecay(double G, const double *p)
{
    const __m256d g = _mm256_set1_pd(G);
    const __m128 lo = _mm256_cvtpd_ps(_mm256_sub_pd(g, _mm256_loadu_pd(p)));
    const __m128 hi = _mm256_cvtpd_ps(_mm256_sub_pd(g, _mm256_loadu_pd(p + 4)));
    return exp_ps(_mm256_insertf128_ps(_mm256_castps128_ps256(lo), hi, 1));
}

/* Lane l: exp((float)p[l]). */
static inline vec vdecay_to(const double *p)
{
    const __m128 lo = _mm256_cvtpd_ps(_mm256_loadu_pd(p));
    const __m128 hi = _mm256_cvtpd_ps(_mm256_loadu_pd(p + 4));
    return exp_ps(_mm256_insertf128_ps(_mm256_castps128_ps256(lo), hi, 1));
}

/* Rows to columns. */
static inline void vtranspose(vec x[LANES])
{
    vec y[LANES]; /* by four rows: row j of half l is column 4 l + j */
    for (int g = 0; g < LANES; g += 4) {
        const vec a = _mm256_unpacklo_ps(x[g], x[g + 1]), b = _mm256_unpackhi_ps(x[g], x[g + 1]);
        const vec c = _mm256_unpacklo_ps(x[g + 2], x[g + 3]),
                  d = _mm256_unpackhi_ps(x[g + 2], x[g + 3]);
        y[g] = _mm256_shuffle_ps(a, c, 0x44);
        y[g + 1] = _mm256_shuffle_ps(a, c, 0xee);
        y[g + 2] = _mm256_shuffle_ps(b, d, 0x44);
        y[g + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int j = 0; j < 4; j++) {
        x[j] = _mm256_permute2f128_ps(y[j], y[4 + j], 0x20);
        x[4 + j] = _mm256_permute2f128_ps(y[j], y[4 + j], 0x31);
    }
}

/* LANES rows of four: out[k] is column k. */
static inline void vload_turned4(const float *p, vec *out)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const vec a = vload(p), b = vload(p + 8), c = vload(p + 16), d = vload(p + 24);
    const vec ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d);
    const vec AB = _mm256_unpackhi_ps(a, b), CD = _mm256_unpackhi_ps(c, d);
    out[0] = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(ab, cd, 0x44), order);
    out[1] = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(ab, cd, 0xee), order);
    out[2] = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(AB, CD, 0x44), order);
    out[3] = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(AB, CD, 0xee), order);
}

/* bf16, of which only the first n (1 .. LANES) are there. */
static inline vec vload_bf16(const uint16_t *p, int n)
{
    uint16_t h[LANES] = {0};
    const void *from = n < LANES ? memcpy(h, p, (size_t)n * sizeof *h) : p;
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from));
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
    _mm_storeu_si128(n < LANES ? (void *)h : p, _mm256_castsi256_si128(packed));
    if (n < LANES) memcpy(p, h, (size_t)n * sizeof *h);
}

#endif
