/* SPDX-License-Identifier: MIT
 * moe_route with AVX-512. */
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/moe_route_walk.h"

static float largest(const float *x, int64_t n)
{
    const __m512 least = _mm512_set1_ps(-INFINITY);
    __m512 most = least;
    for (int64_t i = 0; i < n; i += 16) /* of a NaN and a number max takes the second */
        most = _mm512_max_ps(_mm512_mask_loadu_ps(least, first_lanes(n - i), x + i), most);
    return _mm512_reduce_max_ps(most);
}

static unsigned above(const float *x, float limit)
{
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_set1_ps(limit), _CMP_GT_OQ);
}

static float exps(const float *x, float most, float *p, int64_t n)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 m = first_lanes(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        const __m512 e = exp_ps(_mm512_sub_ps(v, _mm512_set1_ps(most)));
        _mm512_mask_storeu_ps(p + i, m, e);
        sum = _mm512_mask_add_ps(sum, m, sum, e);
    }
    return sum_lanes_ps(sum);
}

static void run(void *lane, const void *args)
{
    moe_route_walk(lane, args, (struct moe_route_steps){largest, exps, above});
}

const struct qrn_kernel qrn_cpu_moe_route_avx512 = {
    .op = QRN_OP_moe_route, .name = "cpu.moe_route.avx512", .needs = QRN_CPU_AVX512,
    .scratch_bytes = moe_route_scratch, .run = run,
};
