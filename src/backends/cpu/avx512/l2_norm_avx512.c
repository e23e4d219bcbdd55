/* SPDX-License-Identifier: MIT
 * l2_norm with AVX-512: squares are summed in float64. */
#include "backends/cpu/ahead.h"
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/l2_norm_walk.h"

static double squares(const float *x, int64_t d)
{
    __m512d lo = _mm512_setzero_pd(), hi = _mm512_setzero_pd();
    for (int64_t i = 0; i < d; i += 16) {
        ask_ahead(x + i, 64);
        const __m512 v = _mm512_maskz_loadu_ps(first_lanes(d - i), x + i);
        const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        lo = _mm512_fmadd_pd(a, a, lo);
        hi = _mm512_fmadd_pd(b, b, hi);
    }
    return sum_lanes_pd(_mm512_add_pd(lo, hi));
}

static void multiply(const float *x, float factor, float *out, int64_t d)
{
    for (int64_t i = 0; i < d; i += 16) {
        const __mmask16 m = first_lanes(d - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(v, _mm512_set1_ps(factor)));
    }
}

static void run(void *lane, const void *args)
{
    l2_norm_walk(lane, args, (struct l2_norm_steps){squares, multiply});
}

const struct qrn_kernel qrn_cpu_l2_norm_avx512 = {
    .op = QRN_OP_l2_norm, .name = "cpu.l2_norm.avx512", .needs = QRN_CPU_AVX512, .run = run,
};
