/* SPDX-License-Identifier: MIT
 * Rounding activations to 8 bits with AVX2: qrn_q8_act_block to the bit. */
#ifndef QUERN_Q8_ACT_AVX2_H
#define QUERN_Q8_ACT_AVX2_H

#include <immintrin.h>
#include "formats/q8_act.h"

static inline float max_lanes_256(__m256 v)
{
    const __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 b = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* 32 values times inverse to codes, and the sums of their halves. */
static inline void q8_act_codes_256(const float *x, __m256 inverse, int8_t *out, int16_t *sum)
{
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    /* Packing works on halves of vectors: put their quarters in order. */
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i codes = _mm256_permutevar8x32_epi32(bytes, order);
    _mm256_storeu_si256((__m256i *)(void *)out, codes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m256i eights = _mm256_hadd_epi32(fours, fours),
                  sums = _mm256_hadd_epi32(eights, eights);
    sum[0] = (int16_t)_mm256_extract_epi32(sums, 0);
    sum[1] = (int16_t)_mm256_extract_epi32(sums, 4);
}

/* 128 values, of any alignment. */
static inline void q8_act_256(const float *x, struct qrn_q8_act *out)
{
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 huge = _mm256_set1_ps(FLT_MAX);
    __m256 max = _mm256_setzero_ps(), good = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (int i = 0; i < 16; i++) {
        const __m256 a = _mm256_and_ps(_mm256_loadu_ps(x + 8 * i), no_sign);
        good = _mm256_and_ps(good, _mm256_cmp_ps(a, huge, _CMP_LE_OQ));
        max = _mm256_max_ps(max, a);
    }
    if (_mm256_movemask_ps(good) != 255) {
        *out = (struct qrn_q8_act){.d = NAN};
        return;
    }
    out->d = qrn_q8_scale(max_lanes_256(max));
    const __m256 inverse = _mm256_set1_ps(out->d > 0.0f ? 1.0f / out->d : 0.0f);
    for (int i = 0; i < 4; i++)
        q8_act_codes_256(x + 32 * i, inverse, out->q + 32 * i, out->sum + 2 * i);
}

#endif
