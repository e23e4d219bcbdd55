/* SPDX-License-Identifier: MIT
 * kv_append_paged with AVX2: the conversion keeps subnormal halves in every float mode, as the
 * portable one does. */
#include <immintrin.h>

#include "backends/cpu/kv_append_paged_walk.h"
#include "base/half.h"

static void round_to_half(const float *x, uint16_t *half, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(half + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
    for (; i < n; i++) half[i] = qrn_float_to_f16(x[i]);
}

static void run(void *lane, const void *args)
{
    kv_append_paged_walk(lane, args, round_to_half);
}

const struct qrn_kernel qrn_cpu_kv_append_paged_avx2 = {
    .op = QRN_OP_kv_append_paged,
    .name = "cpu.kv_append_paged.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = run,
};
