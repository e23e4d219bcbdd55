/* SPDX-License-Identifier: MIT
 * Rounding floats with AVX-512: the same bits as in portable C. */
#ifndef QUERN_ROUND_AVX512_H
#define QUERN_ROUND_AVX512_H

#include "backends/cpu/avx512/q8_act_avx512.h"
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/round_out.h"

/* Adds half of the last place that stays, less one where that is even: integers, so that flushing
 * of denormals has no say. */
static inline void to_bf16(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 m = first_lanes(n - i);
        const __m512i v = _mm512_maskz_loadu_epi32(m, src + i), high = _mm512_srli_epi32(v, 16);
        const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
        const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(v, odd), _mm512_set1_epi32(0x7fff));
        const __mmask16 nan = _mm512_cmpgt_epu32_mask(
            _mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff)), _mm512_set1_epi32(0x7f800000));
        const __m512i rounded =
            _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, high, _mm512_set1_epi32(0x40));
        _mm256_mask_storeu_epi16(dst + i, m, _mm512_cvtepi32_epi16(rounded));
    }
}

static inline void to_q8(const float *src, struct qrn_q8_act *dst, int64_t n_blocks)
{
    for (int64_t b = 0; b < n_blocks; b++) q8_act_512(src + QRN_Q8_ACT_BLOCK * b, dst + b);
}

static const struct rounding rounding_avx512 = {to_bf16, to_q8};

#endif
