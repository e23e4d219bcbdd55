/* SPDX-License-Identifier: MIT
 * kv_append_paged with AVX-512: the conversion keeps subnormal halves in every float mode, as the
 * portable one does. */
#include <immintrin.h>

#include "backends/cpu/kv_append_paged_walk.h"
#include "base/half.h"

static void round_to_half(const float *x, uint16_t *half, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(half + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), 0));
    for (; i < n; i++) half[i] = qrn_float_to_f16(x[i]);
}

static void run(void *lane, const void *args)
{
    kv_append_paged_walk(lane, args, round_to_half);
}

const struct qrn_kernel qrn_cpu_kv_append_paged_avx512 = {
    .op = QRN_OP_kv_append_paged,
    .name = "cpu.kv_append_paged.avx512",
    .needs = QRN_CPU_AVX512,
    .run = run,
};
