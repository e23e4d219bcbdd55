/* SPDX-License-Identifier: MIT
 * gdn_open_chunk with AVX2: three tokens, their keys and queries, by 16 columns in registers. */
#include "backends/cpu/avx2/gdn_vec_avx2.h"

enum { MOST = 3, WIDE = 2, WIDE_ONE = 4 };

static inline vec vdecay(double G, const double *p)
{
    const __m256d g = _mm256_set1_pd(G);
    const __m128 lo = _mm256_cvtpd_ps(_mm256_sub_pd(g, _mm256_loadu_pd(p)));
    const __m128 hi = _mm256_cvtpd_ps(_mm256_sub_pd(g, _mm256_loadu_pd(p + 4)));
    return exp_ps(_mm256_insertf128_ps(_mm256_castps128_ps256(lo), hi, 1));
}

static inline vec vdecay_to(const double *p)
{
    const __m128 lo = _mm256_cvtpd_ps(_mm256_loadu_pd(p));
    const __m128 hi = _mm256_cvtpd_ps(_mm256_loadu_pd(p + 4));
    return exp_ps(_mm256_insertf128_ps(_mm256_castps128_ps256(lo), hi, 1));
}

#include "backends/cpu/gdn_open_chunk_tiles.inc"

static void run(void *lane, const void *args)
{
    static const struct gdn_open_steps steps = {MOST, turn, dots, decays, tokens, edge};
    gdn_open_chunk_walk(lane, args, &steps);
}

const struct qrn_kernel qrn_cpu_gdn_open_chunk_avx2 = {
    .op = QRN_OP_gdn_open_chunk, .name = "cpu.gdn_open_chunk.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = gdn_open_chunk_scratch, .run = run,
};
