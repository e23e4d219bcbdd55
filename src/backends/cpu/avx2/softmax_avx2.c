/* SPDX-License-Identifier: MIT
 * softmax with AVX2. */
#include <math.h>
#include <string.h>

#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/softmax_walk.h"

static inline __m256 mask_at(const struct softmax_row *r, int64_t i, __m256i lanes)
{
    if (r->mask_type == QRN_F32) return _mm256_maskload_ps((const float *)r->mask + i, lanes);
    uint16_t some[8] = {0};
    memcpy(some, (const uint16_t *)r->mask + i,
           (size_t)(r->n - i < 8 ? r->n - i : 8) * sizeof *some);
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)some);
    if (r->mask_type == QRN_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static inline float max_lanes(__m256 v)
{
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

static void row(const struct softmax_row *r)
{
    const __m256 scale = _mm256_set1_ps(r->scale), nothing = _mm256_set1_ps(-INFINITY);
    __m256 most = nothing, sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < r->n; i += 8) {
        const __m256i lanes = first_lanes(r->n - i);
        __m256 s = _mm256_mul_ps(_mm256_maskload_ps(r->x + i, lanes), scale);
        if (r->mask) s = _mm256_add_ps(s, mask_at(r, i, lanes));
        most = _mm256_max_ps(_mm256_blendv_ps(nothing, s, _mm256_castsi256_ps(lanes)), most);
        _mm256_maskstore_ps(r->out + i, lanes, s);
    }
    const float greatest = max_lanes(most);
    /* -INFINITY from itself is no number: such a row is nothing. */
    const __m256 m = _mm256_set1_ps(greatest == -INFINITY ? 0.0f : greatest);
    for (int64_t i = 0; i < r->n; i += 8) {
        const __m256i lanes = first_lanes(r->n - i);
        const __m256 s = _mm256_maskload_ps(r->out + i, lanes);
        const __m256 p = _mm256_and_ps(exp_ps(_mm256_sub_ps(s, m)), _mm256_castsi256_ps(lanes));
        sum = _mm256_add_ps(sum, p);
        _mm256_maskstore_ps(r->out + i, lanes, p);
    }
    const float total = sum_lanes_ps(sum);
    for (int64_t i = 0; i < r->n && total != 0.0f; i += 8) {
        const __m256i lanes = first_lanes(r->n - i);
        const __m256 p = _mm256_maskload_ps(r->out + i, lanes);
        _mm256_maskstore_ps(r->out + i, lanes, _mm256_div_ps(p, _mm256_set1_ps(total)));
    }
}

static void run(void *lane, const void *args)
{
    softmax_walk(lane, args, row);
}

const struct qrn_kernel qrn_cpu_softmax_avx2 = {
    .op = QRN_OP_softmax,
    .name = "cpu.softmax.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = run,
};
