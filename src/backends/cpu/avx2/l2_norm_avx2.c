/* SPDX-License-Identifier: MIT
 * l2_norm with AVX2: squares are summed in float64. */
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/l2_norm_walk.h"

static double squares(const float *x, int64_t d)
{
    __m256d lo = _mm256_setzero_pd(), hi = _mm256_setzero_pd();
    for (int64_t i = 0; i < d; i += 8) {
        const __m256 v = _mm256_maskload_ps(x + i, first_lanes(d - i));
        const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
        const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        lo = _mm256_fmadd_pd(a, a, lo);
        hi = _mm256_fmadd_pd(b, b, hi);
    }
    return sum_lanes_pd(_mm256_add_pd(lo, hi));
}

static void multiply(const float *x, float factor, float *out, int64_t d)
{
    for (int64_t i = 0; i < d; i += 8) {
        const __m256i m = first_lanes(d - i);
        const __m256 v = _mm256_maskload_ps(x + i, m);
        _mm256_maskstore_ps(out + i, m, _mm256_mul_ps(v, _mm256_set1_ps(factor)));
    }
}

static void run(void *lane, const void *args)
{
    l2_norm_walk(lane, args, (struct l2_norm_steps){squares, multiply});
}

const struct qrn_kernel qrn_cpu_l2_norm_avx2 = {
    .op = QRN_OP_l2_norm, .name = "cpu.l2_norm.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C, .run = run,
};
