/* SPDX-License-Identifier: MIT
 * rms_norm with AVX-512: squares are summed in float64. */
#include "backends/cpu/ahead.h"
#include "backends/cpu/avx512/round_avx512.h"
#include "backends/cpu/rms_norm_walk.h"

static inline __m512 value(const struct rms_norm_row *r, int64_t i, __mmask16 m)
{
    const __m512 x = _mm512_maskz_loadu_ps(m, r->x + i);
    return r->residual ? _mm512_add_ps(x, _mm512_maskz_loadu_ps(m, r->residual + i)) : x;
}

static double squares(const struct rms_norm_row *r)
{
    __m512d lo = _mm512_setzero_pd(), hi = _mm512_setzero_pd();
    for (int64_t i = 0; i < r->d; i += 16) {
        ask_ahead(r->x + i, 64);
        if (r->residual) ask_ahead(r->residual + i, 64);
        if (r->gate) ask_ahead(r->gate + i, 64);
        const __m512 s = value(r, i, first_lanes(r->d - i));
        const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(s));
        const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(s, 1));
        lo = _mm512_fmadd_pd(a, a, lo);
        hi = _mm512_fmadd_pd(b, b, hi);
    }
    return sum_lanes_pd(_mm512_add_pd(lo, hi));
}

static void part(const struct rms_norm_row *r, int64_t i, int64_t n, float *out)
{
    const __m512 scale = _mm512_set1_ps(r->scale);
    for (const int64_t end = i + n; i < end; i += 16, out += 16) {
        const __mmask16 m = first_lanes(end - i);
        const __m512 s = value(r, i, m);
        __m512 y = _mm512_mul_ps(s, scale);
        if (r->weight) y = _mm512_mul_ps(y, _mm512_maskz_loadu_ps(m, r->weight + i));
        if (r->gate) y = _mm512_mul_ps(y, silu_ps(_mm512_maskz_loadu_ps(m, r->gate + i)));
        if (r->sum) _mm512_mask_storeu_ps(r->sum + i, m, s);
        _mm512_mask_storeu_ps(out, m, y);
    }
}

static void run(void *lane, const void *args)
{
    rms_norm_walk(lane, args, (struct rms_norm_steps){squares, part, &rounding_avx512});
}

const struct qrn_kernel qrn_cpu_rms_norm_avx512 = {
    .op = QRN_OP_rms_norm, .name = "cpu.rms_norm.avx512", .needs = QRN_CPU_AVX512, .run = run,
};
