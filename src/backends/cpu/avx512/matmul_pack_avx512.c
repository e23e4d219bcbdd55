/* SPDX-License-Identifier: MIT
 * matmul_pack in AVX-512: sixteen rows are one vector. */
#include <immintrin.h>
#include <stdint.h>

#define LANES 16
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

/* Rows i, i + 4, i + 8, i + 12 in four quarters. */
static inline __m512i quarters(const uint8_t *const *rows, int i, size_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(rows[i] + at)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(rows[i + 4] + at)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(rows[i + 8] + at)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(rows[i + 12] + at)), 3);
}

static inline void load_four(const uint8_t *const *rows, size_t at, words *out)
{
    const __m512i a = quarters(rows, 0, at), b = quarters(rows, 1, at), c = quarters(rows, 2, at),
                  d = quarters(rows, 3, at);
    const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    const __m512i ab2 = _mm512_unpackhi_epi32(a, b), cd2 = _mm512_unpackhi_epi32(c, d);
    out[0] = (words)_mm512_unpacklo_epi64(ab, cd);
    out[1] = (words)_mm512_unpackhi_epi64(ab, cd);
    out[2] = (words)_mm512_unpacklo_epi64(ab2, cd2);
    out[3] = (words)_mm512_unpackhi_epi64(ab2, cd2);
}

static inline void put_bytes(words w, uint8_t *out)
{
    _mm_storeu_si128((void *)out, _mm512_cvtepi32_epi8((__m512i)w));
}

static inline void put_halves(words w, uint8_t *out)
{
    _mm256_storeu_si256((void *)out, _mm512_cvtepi32_epi16((__m512i)w));
}

#include "backends/cpu/matmul_pack_rows.inc"

const struct qrn_kernel qrn_cpu_matmul_pack_avx512 = {
    .op = QRN_OP_matmul_pack,
    .name = "cpu.matmul_pack.avx512",
    .serves = "16 rows turned in registers; remainders in portable C",
    .needs = QRN_CPU_AVX512 | QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .supports = pack_supports,
    .run = run,
    .output_bytes = pack_output_bytes,
};
