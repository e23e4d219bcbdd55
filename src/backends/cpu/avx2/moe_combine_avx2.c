/* SPDX-License-Identifier: MIT
 * moe_combine with AVX2. */
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/moe_combine_walk.h"

static void part(const struct moe_combine_part *p)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 factor = p->gate ? sigmoid_ps(_mm256_set1_ps(*p->gate)) : one;
    for (int64_t i = 0; i < p->n; i += 8) {
        const __m256i m = first_lanes(p->n - i);
        __m256 y = _mm256_setzero_ps();
        for (int64_t k = 0; k < p->top_k; k++)
            y = _mm256_fmadd_ps(_mm256_set1_ps(p->weights[k]),
                                _mm256_maskload_ps(p->experts + k * p->stride + i, m), y);
        if (p->shared) y = _mm256_fmadd_ps(factor, _mm256_maskload_ps(p->shared + i, m), y);
        _mm256_maskstore_ps(p->out + i, m, y);
    }
}

static void run(void *lane, const void *args)
{
    moe_combine_walk(lane, args, part);
}

const struct qrn_kernel qrn_cpu_moe_combine_avx2 = {
    .op = QRN_OP_moe_combine, .name = "cpu.moe_combine.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C, .run = run,
};
