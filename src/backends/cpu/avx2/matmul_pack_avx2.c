/* SPDX-License-Identifier: MIT
 * matmul_pack in AVX2: sixteen rows are two vectors. */
#include <immintrin.h>
#include <stdint.h>

#define LANES 8
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

/* Rows i and i + 4 in two halves. */
static inline __m256i halves(const uint8_t *const *rows, int i, size_t at)
{
    const __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(rows[i] + at)));
    return _mm256_inserti128_si256(v, _mm_loadu_si128((const void *)(rows[i + 4] + at)), 1);
}

static inline void load_four(const uint8_t *const *rows, size_t at, words *out)
{
    const __m256i a = halves(rows, 0, at), b = halves(rows, 1, at), c = halves(rows, 2, at),
                  d = halves(rows, 3, at);
    const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    const __m256i ab2 = _mm256_unpackhi_epi32(a, b), cd2 = _mm256_unpackhi_epi32(c, d);
    out[0] = (words)_mm256_unpacklo_epi64(ab, cd);
    out[1] = (words)_mm256_unpackhi_epi64(ab, cd);
    out[2] = (words)_mm256_unpacklo_epi64(ab2, cd2);
    out[3] = (words)_mm256_unpackhi_epi64(ab2, cd2);
}

/* The 16-bit parts of lanes, in order. */
static inline __m128i narrowed(words w)
{
    const __m256i low = _mm256_and_si256((__m256i)w, _mm256_set1_epi32(0xffff));
    return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}

static inline void put_halves(words w, uint8_t *out)
{
    _mm_storeu_si128((void *)out, narrowed(w));
}

static inline void put_bytes(words w, uint8_t *out)
{
    const __m128i bytes = narrowed(w & 0xffu);
    _mm_storel_epi64((void *)out, _mm_packus_epi16(bytes, bytes));
}

#include "backends/cpu/matmul_pack_rows.inc"

const struct qrn_kernel qrn_cpu_matmul_pack_avx2 = {
    .op = QRN_OP_matmul_pack,
    .name = "cpu.matmul_pack.avx2",
    .serves = "16 rows turned in registers; remainders in portable C",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .supports = pack_supports,
    .run = run,
    .output_bytes = pack_output_bytes,
};
