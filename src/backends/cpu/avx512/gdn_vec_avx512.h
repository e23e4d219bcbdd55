/* SPDX-License-Identifier: MIT
 * The words that the templates of several ops are written in, for AVX-512. */
#ifndef QUERN_GDN_VEC_AVX512_H
#define QUERN_GDN_VEC_AVX512_H

#include <stdbool.h>

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

static inline vec vadd(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec vsub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec vlog1p(vec x) { return log1p_ps(x); }
static inline vec vsigmoid(vec x) { return sigmoid_ps(x); }

/* Some lane of x is not at most y. */
static inline bool vabove(vec x, float y)
{
    return _mm512_cmp_ps_mask(x, vset1(y), _CMP_NLE_UQ) != 0;
}

/* Lane by lane x > y ? a : b. */
static inline vec vabove_select(vec x, float y, vec a, vec b)
{
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, vset1(y), _CMP_GT_OQ), a);
}

/* Neighbours change places. */
static inline vec vswap(vec x) { return _mm512_permute_ps(x, 0xb1); }

static inline void vcos_sin(vec x, vec *cosine, vec *sine)
{
    __m256 c[2], s[2];
    cos_sin_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)), &c[0], &s[0]);
    cos_sin_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)), &c[1], &s[1]);
    *cosine = _mm512_insertf32x8(_mm512_castps256_ps512(c[0]), c[1], 1);
    *sine = _mm512_insertf32x8(_mm512_castps256_ps512(s[0]), s[1], 1);
}

static inline vec vload_first(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

static inline void vstore_first(float *p, int n, vec v)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

/* Lane l: exp((float)(G - p[l])). */
static inline vec vdecay(double G, const double *p)
{
    const __m512d g = _mm512_set1_pd(G);
    const __m256 lo = _mm512_cvtpd_ps(_mm512_sub_pd(g, _mm512_loadu_pd(p)));
    const __m256 hi = _mm512_cvtpd_ps(_mm512_sub_pd(g, _mm512_loadu_pd(p + 8)));
    return exp_ps(_mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1));
}

/* Lane l: exp((float)p[l]). */
static inline vec vdecay_to(const double *p)
{
    const __m256 lo = _mm512_cvtpd_ps(_mm512_loadu_pd(p));
    const __m256 hi = _mm512_cvtpd_ps(_mm512_loadu_pd(p + 8));
    return exp_ps(_mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1));
}

/* Rows to columns. */
static inline void vtranspose(vec x[LANES])
{
    vec y[LANES]; /* by four rows: row j of lane l is column 4 l + j */
    for (int g = 0; g < LANES; g += 4) {
        const vec a = _mm512_unpacklo_ps(x[g], x[g + 1]), b = _mm512_unpackhi_ps(x[g], x[g + 1]);
        const vec c = _mm512_unpacklo_ps(x[g + 2], x[g + 3]),
                  d = _mm512_unpackhi_ps(x[g + 2], x[g + 3]);
        y[g] = _mm512_shuffle_ps(a, c, 0x44);
        y[g + 1] = _mm512_shuffle_ps(a, c, 0xee);
        y[g + 2] = _mm512_shuffle_ps(b, d, 0x44);
        y[g + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int j = 0; j < 4; j++) { /* lanes to their places */
        const vec a = _mm512_shuffle_f32x4(y[j], y[4 + j], 0x88);
        const vec b = _mm512_shuffle_f32x4(y[j], y[4 + j], 0xdd);
        const vec c = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0x88);
        const vec d = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0xdd);
        x[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        x[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* LANES rows of four: out[k] is column k. */
static inline void vload_turned4(const float *p, vec *out)
{
    const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
    const vec a = vload(p), b = vload(p + 16), c = vload(p + 32), d = vload(p + 48);
    const vec ab = _mm512_permutex2var_ps(a, low, b), cd = _mm512_permutex2var_ps(c, low, d);
    const vec AB = _mm512_permutex2var_ps(a, high, b), CD = _mm512_permutex2var_ps(c, high, d);
    out[0] = _mm512_shuffle_f32x4(ab, cd, 0x44);
    out[1] = _mm512_shuffle_f32x4(ab, cd, 0xee);
    out[2] = _mm512_shuffle_f32x4(AB, CD, 0x44);
    out[3] = _mm512_shuffle_f32x4(AB, CD, 0xee);
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
