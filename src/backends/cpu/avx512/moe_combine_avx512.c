/* SPDX-License-Identifier: MIT
 * moe_combine with AVX-512. */
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/moe_combine_walk.h"

static void part(const struct moe_combine_part *p)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 factor = p->gate ? sigmoid_ps(_mm512_set1_ps(*p->gate)) : one;
    for (int64_t i = 0; i < p->n; i += 16) {
        const __mmask16 m = first_lanes(p->n - i);
        __m512 y = _mm512_setzero_ps();
        for (int64_t k = 0; k < p->top_k; k++)
            y = _mm512_fmadd_ps(_mm512_set1_ps(p->weights[k]),
                                _mm512_maskz_loadu_ps(m, p->experts + k * p->stride + i), y);
        if (p->shared) y = _mm512_fmadd_ps(factor, _mm512_maskz_loadu_ps(m, p->shared + i), y);
        _mm512_mask_storeu_ps(p->out + i, m, y);
    }
}

static void run(void *lane, const void *args)
{
    moe_combine_walk(lane, args, part);
}

const struct qrn_kernel qrn_cpu_moe_combine_avx512 = {
    .op = QRN_OP_moe_combine, .name = "cpu.moe_combine.avx512", .needs = QRN_CPU_AVX512, .run = run,
};
