/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul with AVX2. */
#include "backends/cpu/avx2/round_avx2.h"
#include "backends/cpu/elementwise_walk.h"

#define ELEMENTWISE(op, x_, y_, formula)                                              \
    static void op##_row(const float *x, const float *y, float *out, int64_t n)       \
    {                                                                                 \
        for (int64_t i = 0; i < n; i += 8) {                                          \
            const __m256i m = first_lanes(n - i);                                     \
            const __m256 a = _mm256_maskload_ps(x + i, m);                            \
            const __m256 b = _mm256_maskload_ps(y + i, m);                            \
            _mm256_maskstore_ps(out + i, m, formula);                                 \
        }                                                                             \
    }                                                                                 \
    QRN_ELEMENTWISE_KERNEL(op, avx2, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C, x_, y_)

ELEMENTWISE(add, x, y, _mm256_add_ps(a, b))
ELEMENTWISE(mul, x, y, _mm256_mul_ps(a, b))
ELEMENTWISE(silu_mul, gate, up, _mm256_mul_ps(silu_ps(a), b))
ELEMENTWISE(sigmoid_mul, x, gate, _mm256_mul_ps(a, sigmoid_ps(b)))
