/* SPDX-License-Identifier: MIT
 * argmax, top_k and sample with AVX2. */
#include <immintrin.h>
#include "backends/cpu/ranking_walk.h"
#include "backends/cpu/sample_walk.h"

static unsigned above(const float *x, float limit)
{
    const __m256 l = _mm256_set1_ps(limit);
    const int a = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), l, _CMP_GT_OQ));
    const int b = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + 8), l, _CMP_GT_OQ));
    return (unsigned)a | (unsigned)b << 8;
}

static void argmax_run(void *lane, const void *args)
{
    argmax_walk(lane, args);
}

static void top_k_run(void *lane, const void *args)
{
    top_k_walk(lane, args, above);
}

static void sample_run(void *lane, const void *args)
{
    sample_walk(lane, args, above);
}

const struct qrn_kernel qrn_cpu_argmax_avx2 = {
    .op = QRN_OP_argmax,
    .name = "cpu.argmax.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = argmax_run,
};
const struct qrn_kernel qrn_cpu_top_k_avx2 = {
    .op = QRN_OP_top_k,
    .name = "cpu.top_k.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = top_k_run,
};
const struct qrn_kernel qrn_cpu_sample_avx2 = {
    .op = QRN_OP_sample,
    .name = "cpu.sample.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .scratch_bytes = sample_scratch,
    .run = sample_run,
};
