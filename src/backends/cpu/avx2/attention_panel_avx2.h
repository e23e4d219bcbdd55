/* SPDX-License-Identifier: MIT
 * The panel of attention with AVX2: 4 rows x 16 keys, then 4 rows x 16 dimensions, in registers. */
#ifndef QUERN_ATTENTION_PANEL_AVX2_H
#define QUERN_ATTENTION_PANEL_AVX2_H

#include "backends/cpu/attention_panel.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "base/half.h"

#define V __m256
enum { W = 8, SCORE_VECTORS = 2, VALUE_VECTORS = 2 };

#define vload(p)      _mm256_loadu_ps(p)
#define vload_n(p, n) _mm256_maskload_ps(p, first_lanes(n))
#define vhalf(p)      _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vstore(p, x)  _mm256_storeu_ps(p, x)
#define vset(x)       _mm256_set1_ps(x)
#define vpair(x, y)   _mm256_blend_ps(_mm256_set1_ps(x), _mm256_set1_ps(y), 2)
#define vfma          _mm256_fmadd_ps
#define vmul          _mm256_mul_ps
#define vadd          _mm256_add_ps
#define vsub          _mm256_sub_ps
#define vdiv          _mm256_div_ps
#define vmax          _mm256_max_ps

static inline __m256 vhalf_n(const uint16_t *p, int64_t n)
{
    uint16_t some[8] = {0};
    memcpy(some, p, (size_t)n * sizeof *p);
    return vhalf(some);
}

static inline float vmax_lanes(__m256 v)
{
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static inline __m256 vmasked(__m256 s, __m256 mask)
{
    const __m256 nothing = _mm256_set1_ps(-INFINITY);
    return _mm256_blendv_ps(s, nothing, _mm256_cmp_ps(mask, nothing, _CMP_EQ_OQ));
}

static inline __m256 vkeep(__m256 s, int begin, int end)
{
    const __m256i before = first_lanes(begin > 0 ? begin : 0),
                  until = first_lanes(end > 0 ? end : 0);
    const __m256 kept = _mm256_castsi256_ps(_mm256_andnot_si256(before, until));
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, kept);
}

static inline uint32_t vattended(__m256 s)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(s, _mm256_set1_ps(-INFINITY), _CMP_NEQ_UQ));
}

static inline __m256 vtanh(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign_bit = _mm256_set1_ps(-0.0f);
    const __m256 size = _mm256_andnot_ps(sign_bit, x), z = _mm256_mul_ps(x, x);
    const __m256 e = exp_ps(_mm256_add_ps(size, size));
    const __m256 far =
        _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
    __m256 near = _mm256_set1_ps(-5.70498872745e-3f); /* Cephes, tanhf: up to 0.625 */
    near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(2.06390887954e-2f));
    near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(-5.37397155531e-2f));
    near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(1.33314422036e-1f));
    near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(-3.33332819422e-1f));
    near = _mm256_fmadd_ps(_mm256_mul_ps(near, z), x, x);
    const __m256 signed_far = _mm256_or_ps(far, _mm256_and_ps(x, sign_bit));
    return _mm256_blendv_ps(signed_far, near,
                            _mm256_cmp_ps(size, _mm256_set1_ps(0.625f), _CMP_LT_OQ));
}

#include "backends/cpu/attention_panel.inc"

#endif
