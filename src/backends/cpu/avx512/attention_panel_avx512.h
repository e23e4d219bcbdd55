/* SPDX-License-Identifier: MIT
 * The panel of attention with AVX-512: 8 rows x 32 keys, then 8 rows x 32 dimensions, in registers.
 */
#ifndef QUERN_ATTENTION_PANEL_AVX512_H
#define QUERN_ATTENTION_PANEL_AVX512_H

#include "backends/cpu/attention_panel.h"
#include "backends/cpu/avx512/vec_avx512.h"

#define V            __m512
#define EACH_TILE(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
enum { W = 16, TILE_ROWS = 8 };

#define vload(p)          _mm512_loadu_ps(p)
#define vload_n(p, n)     _mm512_maskz_loadu_ps(first_lanes(n), p)
#define vhalf(p)          _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vhalf_n(p, n)     _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))
#define vbf16(p)          bf16_floats(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vbf16_n(p, n)     bf16_floats(_mm256_maskz_loadu_epi16(first_lanes(n), p))
#define vstore(p, x)      _mm512_storeu_ps(p, x)
#define vstore_n(p, x, n) _mm512_mask_storeu_ps(p, first_lanes(n), x)
#define vset(x)           _mm512_set1_ps(x)
#define vfma              _mm512_fmadd_ps
#define vmul              _mm512_mul_ps
#define vadd              _mm512_add_ps
#define vsub              _mm512_sub_ps
#define vdiv              _mm512_div_ps
#define vmax              _mm512_max_ps
#define vmax_lanes        _mm512_reduce_max_ps

static inline __m512 bf16_floats(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

static inline __m512 vblend(__m512 at, __m512 x, __m512 y)
{
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(at, _mm512_setzero_ps(), _CMP_NEQ_UQ), y);
}

static inline __m512 vmasked(__m512 s, __m512 mask)
{
    const __m512 nothing = _mm512_set1_ps(-INFINITY);
    return _mm512_mask_mov_ps(s, _mm512_cmp_ps_mask(mask, nothing, _CMP_EQ_OQ), nothing);
}

static inline __m512 vkeep(__m512 s, int begin, int end)
{
    const __mmask16 before = first_lanes(begin > 0 ? begin : 0),
                    until = first_lanes(end > 0 ? end : 0);
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(until & ~before), s);
}

static inline uint32_t vattended(__m512 s)
{
    return _mm512_cmp_ps_mask(s, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
}

/* 2^x for x <= 0, error below a unit in the last place; NaN stays. */
static inline __m512 vexp2(__m512 x)
{
    const __m512 y = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);
    const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(y, n);
    __m512 p = _mm512_set1_ps(1.535336196e-04f); /* minimax of 2^r, |r| <= 1/2, with 2^0 = 1 */
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.339887502e-03f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.618436918e-03f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550332367e-02f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402264774e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931471825e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

static inline __m512 vtanh(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f), size = _mm512_abs_ps(x), z = _mm512_mul_ps(x, x);
    const __m512 e = exp_ps(_mm512_add_ps(size, size));
    const __m512 far =
        _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
    __m512 near = _mm512_set1_ps(-5.70498872745e-3f); /* Cephes, tanhf: up to 0.625 */
    near = _mm512_fmadd_ps(near, z, _mm512_set1_ps(2.06390887954e-2f));
    near = _mm512_fmadd_ps(near, z, _mm512_set1_ps(-5.37397155531e-2f));
    near = _mm512_fmadd_ps(near, z, _mm512_set1_ps(1.33314422036e-1f));
    near = _mm512_fmadd_ps(near, z, _mm512_set1_ps(-3.33332819422e-1f));
    near = _mm512_fmadd_ps(_mm512_mul_ps(near, z), x, x);
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
    const __m512 signed_far = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(far), sign));
    const __mmask16 is_near = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.625f), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(signed_far, is_near, near);
}

static inline __attribute__((always_inline)) void vtranspose(__m512 *x)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int c = 0; c < 2; c++) {
            const __m512d lo = _mm512_castps_pd(a[i + c]), hi = _mm512_castps_pd(a[i + c + 2]);
            b[i + 2 * c] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
            b[i + 2 * c + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
        }
    for (int i = 0; i < 4; i++) { /* columns i, i + 4, i + 8, i + 12 of each 4 rows */
        const __m512 low = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88),
                     low2 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88),
                     high = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd),
                     high2 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
        x[i] = _mm512_shuffle_f32x4(low, low2, 0x88);
        x[i + 4] = _mm512_shuffle_f32x4(high, high2, 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        x[i + 12] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
}

#include "backends/cpu/attention_panel.inc"

#endif
