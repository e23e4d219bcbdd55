/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with vpdpbusd on 256-bit vectors, for processors that
 * have it without AVX-512: 8 rows in lanes, for each 32 k an exact integer sum. */
#include <string.h>

#include "backends/cpu/avx2/matmul_codes_avx2.h"
#include "backends/cpu/avx2/q8_act_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_drive.h"

/* vpdpbusd wants weights unsigned. */
INLINE int bias_of(const struct matmul_form f)
{
    return f.levels == LEVELS_IQ4 ? 128 : f.levels == LEVELS_FP4 ? 12 : f.offset;
}

INLINE __m256i entering(const struct matmul_form f, __m256i v)
{
    (void)f;
    return v;
}

INLINE __m256i dot(const struct matmul_form f, const __m256i *v, const int8_t *q, int n)
{
    (void)f;
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < n; i++) {
        int32_t four;
        memcpy(&four, q + 4 * i, sizeof four);
        sum = _mm256_dpbusd_avx_epi32(sum, v[i], _mm256_set1_epi32(four));
    }
    return sum;
}

#include "backends/cpu/avx2/matmul_q8_avx2.inc"

static const char serves[] = "rounded activations: vpdpbusd on 256 bits, exact sums";

#define FEATURES (QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C | QRN_CPU_AVX_VNNI)
MATMUL_KERNEL(matmul, avxvnni, FEATURES);
MATMUL_KERNEL(matmul_id, avxvnni, FEATURES);
