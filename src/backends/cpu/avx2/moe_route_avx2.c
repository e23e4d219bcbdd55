/* SPDX-License-Identifier: MIT
 * moe_route with AVX2. */
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/moe_route_walk.h"

static float largest(const float *x, int64_t n)
{
    __m256 most = _mm256_set1_ps(-INFINITY);
    float best = -INFINITY;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) /* of a NaN and a number max takes the second */
        most = _mm256_max_ps(_mm256_loadu_ps(x + i), most);
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    float eight[8];
    _mm256_storeu_ps(eight, most);
    for (int j = 0; j < 8; j++) best = eight[j] > best ? eight[j] : best;
    return best;
}

static unsigned above(const float *x, float limit)
{
    const __m256 l = _mm256_set1_ps(limit);
    const int a = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), l, _CMP_GT_OQ));
    const int b = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + 8), l, _CMP_GT_OQ));
    return (unsigned)a | (unsigned)b << 8;
}

static float exps(const float *x, float most, float *p, int64_t n)
{
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        const __m256i m = first_lanes(n - i);
        const __m256 v = _mm256_maskload_ps(x + i, m);
        const __m256 e = exp_ps(_mm256_sub_ps(v, _mm256_set1_ps(most)));
        _mm256_maskstore_ps(p + i, m, e);
        sum = _mm256_add_ps(sum, _mm256_and_ps(e, _mm256_castsi256_ps(m)));
    }
    return sum_lanes_ps(sum);
}

static void run(void *lane, const void *args)
{
    moe_route_walk(lane, args, (struct moe_route_steps){largest, exps, above});
}

const struct qrn_kernel qrn_cpu_moe_route_avx2 = {
    .op = QRN_OP_moe_route, .name = "cpu.moe_route.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = moe_route_scratch, .run = run,
};
