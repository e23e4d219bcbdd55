/* SPDX-License-Identifier: MIT
 * moe_route with AVX2. */
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/moe_route_walk.h"

static float exps(const float *x, float largest, float *p, int64_t n)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        const __m256i m = first_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, m);
        const __m256 e = exp_ps(_mm256_sub_ps(v, _mm256_set1_ps(largest)));
        _mm256_maskstore_ps(p + i, m, e);
        sum = _mm256_add_ps(sum, _mm256_and_ps(e, _mm256_castsi256_ps(m)));
    }
    return sum_lanes_ps(sum);
}

static void run(void *lane, const void *args)
{
    moe_route_walk(lane, args, exps);
}

const struct qrn_kernel qrn_cpu_moe_route_avx2 = {
    .op = QRN_OP_moe_route, .name = "cpu.moe_route.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = moe_route_scratch, .run = run,
};
