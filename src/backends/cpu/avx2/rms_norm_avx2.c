/* SPDX-License-Identifier: MIT
 * rms_norm with AVX2: squares are summed in float64. */
#include "backends/cpu/avx2/round_avx2.h"
#include "backends/cpu/rms_norm_walk.h"

static inline __m256 value(const struct rms_norm_row *r, int64_t i, __m256i m)
{
    const __m256 x = _mm256_maskload_ps(r->x + i, m);
    return r->residual ? _mm256_add_ps(x, _mm256_maskload_ps(r->residual + i, m)) : x;
}

static double squares(const struct rms_norm_row *r)
{
    __m256d lo = _mm256_setzero_pd(), hi = _mm256_setzero_pd();
    for (int64_t i = 0; i < r->d; i += 8) {
        const __m256 s = value(r, i, first_lanes(r->d - i));
        const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(s));
        const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(s, 1));
        lo = _mm256_fmadd_pd(a, a, lo);
        hi = _mm256_fmadd_pd(b, b, hi);
    }
    return sum_lanes_pd(_mm256_add_pd(lo, hi));
}

static void part(const struct rms_norm_row *r, int64_t i, int64_t n, float *out)
{
    const __m256 scale = _mm256_set1_ps(r->scale);
    for (const int64_t end = i + n; i < end; i += 8, out += 8) {
        const __m256i m = first_lanes(end - i);
        const __m256 s = value(r, i, m);
        __m256 y = _mm256_mul_ps(s, scale);
        if (r->weight) y = _mm256_mul_ps(y, _mm256_maskload_ps(r->weight + i, m));
        if (r->gate) y = _mm256_mul_ps(y, silu_ps(_mm256_maskload_ps(r->gate + i, m)));
        if (r->sum) _mm256_maskstore_ps(r->sum + i, m, s);
        _mm256_maskstore_ps(out, m, y);
    }
}

static void run(void *lane, const void *args)
{
    rms_norm_walk(lane, args, (struct rms_norm_steps){squares, part, &rounding_avx2});
}

const struct qrn_kernel qrn_cpu_rms_norm_avx2 = {
    .op = QRN_OP_rms_norm, .name = "cpu.rms_norm.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C, .run = run,
};
