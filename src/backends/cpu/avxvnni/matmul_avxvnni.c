/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with vpdpbusd on 256-bit vectors, for processors that
 * have it without AVX-512: 8 rows in lanes, exact integer sums. */
#include "backends/cpu/avx2/matmul_codes_avx2.h"
#include "backends/cpu/avx2/q8_act_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/matmul_vnni.h"
#include "backends/cpu/unroll.h"

INLINE __m256i entering(const struct matmul_form f, __m256i v)
{
    (void)f;
    return v;
}

INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_dpwssd_avx_epi32(sum, a, b);
}

/* Block by block from 0, rows inside: long chains of vpdpbusd would wait for each other. */
INLINE void dot(const struct matmul_form f, __m256i *sums, const __m256i v[8], const __m256i s[2],
                const struct qrn_q8_act *const *x, int64_t i, const int n_rows)
{
    const int n = matmul_has_halves(&f) ? 4 : 8;
    __m256i part[MAX_TILE_ROWS];
    UNROLL for (int q = 0; q < 8; q++) UNROLL for (int r = 0; r < n_rows; r++)
    {
        if (q % n == 0) part[r] = _mm256_setzero_si256();
        part[r] = _mm256_dpbusd_avx_epi32(part[r], v[q], broadcast_256(x[r]->q + 32 * i + 4 * q));
        if (q % n < n - 1) continue;
        if (f.sub != SUB_NONE) part[r] = _mm256_mullo_epi32(part[r], s[q / n]);
        sums[r] = _mm256_add_epi32(sums[r], part[r]);
    }
}

#include "backends/cpu/avx2/matmul_q8_avx2.inc"
#include "backends/cpu/avxvnni/matmul_tiles_avxvnni.h"
#include "backends/cpu/avx2/matmul_many_avx2.inc"

static const char serves[] = "rounded activations: vpdpbusd on 256 bits, exact sums";

#define FEATURES (QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C | QRN_CPU_AVX_VNNI)
MATMUL_KERNEL(matmul, avxvnni, FEATURES);
MATMUL_KERNEL(matmul_id, avxvnni, FEATURES);
