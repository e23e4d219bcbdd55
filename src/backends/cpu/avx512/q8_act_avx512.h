/* SPDX-License-Identifier: MIT
 * Rounding activations to 8 bits with AVX-512: qrn_q8_act_block to the bit. */
#ifndef QUERN_Q8_ACT_AVX512_H
#define QUERN_Q8_ACT_AVX512_H

#include <immintrin.h>
#include "formats/q8_act.h"

/* The sum of 16 signed bytes that were moved up by 128, from the sums of their halves. */
static inline int32_t q8_act_sum_512(__m128i eights)
{
    return (int32_t)(_mm_cvtsi128_si64(eights) + _mm_extract_epi64(eights, 1)) - 16 * 128;
}

/* x0: the first 16 of a block, x1: the others. */
static inline void q8_act_512(__m512 x0, __m512 x1, struct qrn_q8_act *out)
{
    const __m512 huge = _mm512_set1_ps(FLT_MAX);
    const __m512 a0 = _mm512_abs_ps(x0), a1 = _mm512_abs_ps(x1);
    const bool finite = (_mm512_cmp_ps_mask(a0, huge, _CMP_LE_OQ) &
                         _mm512_cmp_ps_mask(a1, huge, _CMP_LE_OQ)) == 0xffff;
    const float d = finite ? qrn_q8_scale(_mm512_reduce_max_ps(_mm512_max_ps(a0, a1))) : NAN;
    const __m512 inverse = _mm512_set1_ps(d > 0.0f ? 1.0f / d : 0.0f);
    const __mmask16 keep = finite ? 0xffff : 0;
    const __m512i q0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x0, inverse));
    const __m512i q1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x1, inverse));
    const __m128i b0 = _mm512_cvtepi32_epi8(q0), b1 = _mm512_cvtepi32_epi8(q1);
    _mm_storeu_si128((__m128i *)(void *)out->q, b0);
    _mm_storeu_si128((__m128i *)(void *)(out->q + 16), b1);
    const __m128i up = _mm_set1_epi8(-128), zero = _mm_setzero_si128();
    qrn_q8_act_finish(out, d, q8_act_sum_512(_mm_sad_epu8(_mm_xor_si128(b0, up), zero)),
                      q8_act_sum_512(_mm_sad_epu8(_mm_xor_si128(b1, up), zero)));
}

#endif
