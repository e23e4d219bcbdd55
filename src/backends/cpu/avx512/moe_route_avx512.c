/* SPDX-License-Identifier: MIT
 * moe_route with AVX-512. */
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/moe_route_walk.h"

static float exps(const float *x, float largest, float *p, int64_t n)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 m = first_lanes(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        const __m512 e = exp_ps(_mm512_sub_ps(v, _mm512_set1_ps(largest)));
        _mm512_mask_storeu_ps(p + i, m, e);
        sum = _mm512_mask_add_ps(sum, m, sum, e);
    }
    return sum_lanes_ps(sum);
}

static void run(void *lane, const void *args)
{
    moe_route_walk(lane, args, exps);
}

const struct qrn_kernel qrn_cpu_moe_route_avx512 = {
    .op = QRN_OP_moe_route, .name = "cpu.moe_route.avx512", .needs = QRN_CPU_AVX512,
    .scratch_bytes = moe_route_scratch, .run = run,
};
