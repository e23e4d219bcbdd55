/* SPDX-License-Identifier: MIT
 * Rounding activations to 8 bits with AVX-512: qrn_q8_act_block to the bit. */
#ifndef QUERN_Q8_ACT_AVX512_H
#define QUERN_Q8_ACT_AVX512_H

#include <immintrin.h>
#include "formats/q8_act.h"

/* The sum of 16 signed bytes that were moved up by 128, from the sums of their halves. */
static inline int16_t q8_act_sum_512(__m128i eights)
{
    return (int16_t)(_mm_cvtsi128_si64(eights) + _mm_extract_epi64(eights, 1)) - 16 * 128;
}

/* 128 values, of any alignment. */
static inline void q8_act_512(const float *x, struct qrn_q8_act *out)
{
    const __m512 huge = _mm512_set1_ps(FLT_MAX);
    __mmask16 good = 0xffff;
    __m512 max = _mm512_setzero_ps();
    for (int i = 0; i < 8; i++) {
        const __m512 a = _mm512_abs_ps(_mm512_loadu_ps(x + 16 * i));
        good &= _mm512_cmp_ps_mask(a, huge, _CMP_LE_OQ);
        max = _mm512_max_ps(max, a);
    }
    const bool finite = good == 0xffff;
    const float d = finite ? qrn_q8_scale(_mm512_reduce_max_ps(max)) : NAN;
    const __m512 inverse = _mm512_set1_ps(d > 0.0f ? 1.0f / d : 0.0f);
    const __m128i up = _mm_set1_epi8(-128), zero = _mm_setzero_si128();
    out->d = d;
    for (int i = 0; i < 8; i++) {
        const __m512i q = _mm512_maskz_cvtps_epi32(
            finite ? 0xffff : 0, _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), inverse));
        const __m128i bytes = _mm512_cvtepi32_epi8(q);
        _mm_storeu_si128((__m128i *)(void *)(out->q + 16 * i), bytes);
        out->sum[i] = q8_act_sum_512(_mm_sad_epu8(_mm_xor_si128(bytes, up), zero));
    }
}

#endif
