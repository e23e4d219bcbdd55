/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul with AVX-512. */
#include "backends/cpu/ahead.h"
#include "backends/cpu/avx512/round_avx512.h"
#include "backends/cpu/elementwise_walk.h"

#define ELEMENTWISE(op, x_, y_, formula)                                              \
    static void op##_row(const float *x, const float *y, float *out, int64_t n)       \
    {                                                                                 \
        for (int64_t i = 0; i < n; i += 16) {                                         \
            const __mmask16 m = first_lanes(n - i);                                   \
            ask_ahead(x + i, 64);                                                     \
            ask_ahead(y + i, 64);                                                     \
            const __m512 a = _mm512_maskz_loadu_ps(m, x + i);                         \
            const __m512 b = _mm512_maskz_loadu_ps(m, y + i);                         \
            _mm512_mask_storeu_ps(out + i, m, formula);                               \
        }                                                                             \
    }                                                                                 \
    QRN_ELEMENTWISE_KERNEL(op, avx512, QRN_CPU_AVX512, x_, y_)

ELEMENTWISE(add, x, y, _mm512_add_ps(a, b))
ELEMENTWISE(mul, x, y, _mm512_mul_ps(a, b))
ELEMENTWISE(silu_mul, gate, up, _mm512_mul_ps(silu_ps(a), b))
ELEMENTWISE(sigmoid_mul, x, gate, _mm512_mul_ps(a, sigmoid_ps(b)))
