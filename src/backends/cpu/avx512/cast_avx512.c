/* SPDX-License-Identifier: MIT
 * cast with AVX-512: the same bits as in portable C. */
#include "backends/cpu/avx512/round_avx512.h"
#include "backends/cpu/cast_walk.h"

static void to_f16(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 m = first_lanes(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(m, src + i);
        _mm256_mask_storeu_epi16(dst + i, m, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

static void run(void *lane, const void *args)
{
    cast_walk(lane, args, (struct cast_steps){to_f16, to_bf16, to_q8});
}

const struct qrn_kernel qrn_cpu_cast_avx512 = {
    .op = QRN_OP_cast,
    .name = "cpu.cast.avx512",
    .needs = QRN_CPU_AVX512,
    .run = run,
};
