/* SPDX-License-Identifier: MIT
 * The panel of attention with AVX-512: 4 rows x 64 keys, then 4 rows x 64 dimensions, in registers.
 */
#ifndef QUERN_ATTENTION_PANEL_AVX512_H
#define QUERN_ATTENTION_PANEL_AVX512_H

#include "backends/cpu/attention_panel.h"
#include "backends/cpu/avx512/vec_avx512.h"
#include "base/half.h"

#define V __m512
enum { W = 16, SCORE_VECTORS = 4, VALUE_VECTORS = 4 };

#define vload(p)      _mm512_loadu_ps(p)
#define vload_n(p, n) _mm512_maskz_loadu_ps(first_lanes(n), p)
#define vhalf(p)      _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vhalf_n(p, n) _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))
#define vstore(p, x)  _mm512_storeu_ps(p, x)
#define vset(x)       _mm512_set1_ps(x)
#define vpair(x, y)   _mm512_mask_mov_ps(_mm512_set1_ps(x), 2, _mm512_set1_ps(y))
#define vfma          _mm512_fmadd_ps
#define vmul          _mm512_mul_ps
#define vadd          _mm512_add_ps
#define vsub          _mm512_sub_ps
#define vdiv          _mm512_div_ps
#define vmax          _mm512_max_ps
#define vmax_lanes    _mm512_reduce_max_ps

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

#include "backends/cpu/attention_panel.inc"

#endif
