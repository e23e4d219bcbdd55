/* SPDX-License-Identifier: MIT
 * cast with AVX2: the same bits as in portable C, which does the ends and all of bf16. */
#include "backends/cpu/avx2/round_avx2.h"
#include "backends/cpu/cast_walk.h"
#include "base/half.h"

static void to_f16(const float *src, uint16_t *dst, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) dst[i] = qrn_float_to_f16(src[i]);
}

static void run(void *lane, const void *args)
{
    cast_walk(lane, args, (struct cast_steps){to_f16, to_bf16, to_q8});
}

const struct qrn_kernel qrn_cpu_cast_avx2 = {
    .op = QRN_OP_cast,
    .name = "cpu.cast.avx2",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .run = run,
};
