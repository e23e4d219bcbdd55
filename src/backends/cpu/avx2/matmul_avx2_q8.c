/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with AVX2: 8 rows in lanes, for each 32 k an exact
 * integer sum from vpmaddubsw (kept below what saturates), then the sums in matmul_drive.h. */
#include <string.h>

#include "backends/cpu/avx2/matmul_codes_avx2.h"
#include "backends/cpu/avx2/q8_act_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_drive.h"

/* Weights of 8 bits enter as magnitudes, with their signs moved to x: 128 * 127 * 2 does not
 * saturate, 255 * 127 * 2 would. */
INLINE bool is_signed(const struct matmul_form f)
{
    return f.bits == 8 || f.levels == LEVELS_IQ4;
}

/* Weights as they enter are levels + bias. */
INLINE int bias_of(const struct matmul_form f)
{
    if (f.levels != LEVELS_LINEAR) return f.levels == LEVELS_FP4 ? 12 : 0;
    return f.bits == 8 ? f.offset - 128 : f.offset;
}

/* Products of two pairs that may be added in 16 bits. */
INLINE int pairs_in_16_bits(const struct matmul_form f)
{
    return is_signed(f) ? 1 : f.bits == 6 ? 2 : f.bits == 5 ? 4 : 8;
}

INLINE __m256i entering(const struct matmul_form f, __m256i v)
{
    return f.bits == 8 ? _mm256_xor_si256(v, _mm256_set1_epi8(-128)) : v;
}

INLINE __m256i dot(const struct matmul_form f, const __m256i *v, const int8_t *q, int n)
{
    const int most = pairs_in_16_bits(f);
    __m256i sum = _mm256_setzero_si256(), part = sum;
    for (int i = 0; i < n; i++) {
        int32_t four;
        memcpy(&four, q + 4 * i, sizeof four);
        __m256i x = _mm256_set1_epi32(four), w = v[i];
        if (is_signed(f)) {
            x = _mm256_sign_epi8(x, w);
            w = _mm256_abs_epi8(w);
        }
        const __m256i two = _mm256_maddubs_epi16(w, x);
        part = i % most ? _mm256_add_epi16(part, two) : two;
        if (i % most == most - 1 || i == n - 1)
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
    }
    return sum;
}

#include "backends/cpu/avx2/matmul_q8_avx2.inc"

static const char serves[] = "rounded activations: products of bytes, widened; exact sums";

MATMUL_KERNEL(matmul, avx2_q8, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
MATMUL_KERNEL(matmul_id, avx2_q8, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
