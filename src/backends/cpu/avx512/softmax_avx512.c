/* SPDX-License-Identifier: MIT
 * softmax with AVX-512. */
#include <math.h>

#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/softmax_walk.h"

static inline __m512 mask_at(const struct softmax_row *r, int64_t i, __mmask16 lanes)
{
    if (r->mask_type == QRN_F32) return _mm512_maskz_loadu_ps(lanes, (const float *)r->mask + i);
    const __m256i half = _mm256_maskz_loadu_epi16(lanes, (const uint16_t *)r->mask + i);
    if (r->mask_type == QRN_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static void row(const struct softmax_row *r)
{
    const __m512 scale = _mm512_set1_ps(r->scale);
    __m512 most = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < r->n; i += 16) {
        const __mmask16 lanes = first_lanes(r->n - i);
        __m512 s = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, r->x + i), scale);
        if (r->mask) s = _mm512_add_ps(s, mask_at(r, i, lanes));
        most = _mm512_mask_max_ps(most, lanes, s, most);
        _mm512_mask_storeu_ps(r->out + i, lanes, s);
    }
    const float greatest = _mm512_reduce_max_ps(most);
    /* -INFINITY from itself is no number: such a row is nothing. */
    const __m512 m = _mm512_set1_ps(greatest == -INFINITY ? 0.0f : greatest);
    for (int64_t i = 0; i < r->n; i += 16) {
        const __mmask16 lanes = first_lanes(r->n - i);
        const __m512 s = _mm512_maskz_loadu_ps(lanes, r->out + i);
        const __m512 p = _mm512_maskz_mov_ps(lanes, exp_ps(_mm512_sub_ps(s, m)));
        sum = _mm512_add_ps(sum, p);
        _mm512_mask_storeu_ps(r->out + i, lanes, p);
    }
    const float total = sum_lanes_ps(sum);
    for (int64_t i = 0; i < r->n && total != 0.0f; i += 16) {
        const __mmask16 lanes = first_lanes(r->n - i);
        const __m512 p = _mm512_maskz_loadu_ps(lanes, r->out + i);
        _mm512_mask_storeu_ps(r->out + i, lanes, _mm512_div_ps(p, _mm512_set1_ps(total)));
    }
}

static void run(void *lane, const void *args)
{
    softmax_walk(lane, args, row);
}

const struct qrn_kernel qrn_cpu_softmax_avx512 = {
    .op = QRN_OP_softmax,
    .name = "cpu.softmax.avx512",
    .needs = QRN_CPU_AVX512,
    .run = run,
};
