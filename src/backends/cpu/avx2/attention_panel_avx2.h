/* SPDX-License-Identifier: MIT
 * The panel of attention with AVX2: 4 rows x 16 keys, then 4 rows x 16 dimensions, in registers. */
#ifndef QUERN_ATTENTION_PANEL_AVX2_H
#define QUERN_ATTENTION_PANEL_AVX2_H

#include "backends/cpu/attention_panel.h"
#include "backends/cpu/avx2/vec_avx2.h"

#define V            __m256
#define EACH_TILE(X) X(1) X(2) X(3) X(4)
enum { W = 8, TILE_ROWS = 4 };

#define vload(p)          _mm256_loadu_ps(p)
#define vload_n(p, n)     _mm256_maskload_ps(p, first_lanes(n))
#define vhalf(p)          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vbf16(p)          bf16_floats(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vstore(p, x)      _mm256_storeu_ps(p, x)
#define vstore_n(p, x, n) _mm256_maskstore_ps(p, first_lanes(n), x)
#define vset(x)           _mm256_set1_ps(x)
#define vfma              _mm256_fmadd_ps
#define vmul              _mm256_mul_ps
#define vadd              _mm256_add_ps
#define vsub              _mm256_sub_ps
#define vdiv              _mm256_div_ps
#define vmax              _mm256_max_ps

static inline __m256 bf16_floats(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

static inline __m256 vhalf_n(const uint16_t *p, int64_t n)
{
    uint16_t some[8] = {0};
    memcpy(some, p, (size_t)n * sizeof *p);
    return vhalf(some);
}

static inline __m256 vbf16_n(const uint16_t *p, int64_t n)
{
    uint16_t some[8] = {0};
    memcpy(some, p, (size_t)n * sizeof *p);
    return vbf16(some);
}

static inline __m256 vblend(__m256 at, __m256 x, __m256 y)
{
    return _mm256_blendv_ps(x, y, _mm256_cmp_ps(at, _mm256_setzero_ps(), _CMP_NEQ_UQ));
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

/* 2^x for x <= 0, error below a unit in the last place; NaN stays. */
static inline __m256 vexp2(__m256 x)
{
    const __m256 y = _mm256_max_ps(_mm256_set1_ps(-200.0f), x);
    const __m256 n = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 r = _mm256_sub_ps(y, n);
    __m256 p = _mm256_set1_ps(1.535336196e-04f); /* minimax of 2^r, |r| <= 1/2, with 2^0 = 1 */
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.339887502e-03f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(9.618436918e-03f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.550332367e-02f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(2.402264774e-01f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(6.931471825e-01f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    /* 2^n in two factors: 2^-200 is no float. */
    const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
    p = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
    return _mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
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

static inline __attribute__((always_inline)) void vtranspose(__m256 *x)
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int c = 0; c < 2; c++) {
            b[i + 2 * c] = _mm256_shuffle_ps(a[i + c], a[i + c + 2], 0x44);
            b[i + 2 * c + 1] = _mm256_shuffle_ps(a[i + c], a[i + c + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

#include "backends/cpu/attention_panel.inc"

#endif
