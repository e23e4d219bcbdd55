/* SPDX-License-Identifier: MIT
 * cast with AVX2: the same bits as in portable C, which does the ends and all of bf16. */
#include "backends/cpu/avx2/q8_act_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
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

static void to_bf16(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = qrn_float_to_bf16(src[i]); /* compilers see vectors */
}

static void to_q8(const float *src, struct qrn_q8_act *dst, int64_t n_blocks)
{
    for (int64_t b = 0; b < n_blocks; b++) q8_act_256(src + 32 * b, dst + b);
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
