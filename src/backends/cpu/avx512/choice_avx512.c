/* SPDX-License-Identifier: MIT
 * argmax, top_k and sample with AVX-512. */
#include <immintrin.h>
#include "backends/cpu/ranking_walk.h"
#include "backends/cpu/sample_walk.h"

static unsigned above(const float *x, float limit)
{
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_set1_ps(limit), _CMP_GT_OQ);
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

const struct qrn_kernel qrn_cpu_argmax_avx512 = {
    .op = QRN_OP_argmax,
    .name = "cpu.argmax.avx512",
    .needs = QRN_CPU_AVX512,
    .run = argmax_run,
};
const struct qrn_kernel qrn_cpu_top_k_avx512 = {
    .op = QRN_OP_top_k,
    .name = "cpu.top_k.avx512",
    .needs = QRN_CPU_AVX512,
    .run = top_k_run,
};
const struct qrn_kernel qrn_cpu_sample_avx512 = {
    .op = QRN_OP_sample,
    .name = "cpu.sample.avx512",
    .needs = QRN_CPU_AVX512,
    .scratch_bytes = sample_scratch,
    .run = sample_run,
};
