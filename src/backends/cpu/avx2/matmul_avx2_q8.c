/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with AVX2: 8 rows in lanes, exact integer sums
 * from vpmaddubsw (kept below what saturates), then the sums in matmul_drive.h. */
#include "backends/cpu/avx2/matmul_codes_avx2.h"
#include "backends/cpu/avx2/q8_act_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

/* Weights of 8 bits enter as magnitudes, with their signs moved to x: 128 * 127 * 2 does not
 * saturate, 255 * 127 * 2 would. */
INLINE bool is_signed(const struct matmul_form f)
{
    return f.bits == 8 || f.levels == LEVELS_IQ4;
}

/* Weights as they enter are levels + bias. */
INLINE int bias_of(const struct matmul_form f)
{
    if (f.levels != LEVELS_LINEAR) return f.levels == LEVELS_FP4 ? 12 : 0;
    return f.bits == 8 ? f.offset - 128 : f.offset;
}

/* Vectors whose products, each the sum of two, may be added in 16 bits; those of one half at most,
 * where halves have scales. */
INLINE int vectors_in_16_bits(const struct matmul_form f)
{
    if (is_signed(f)) return 1;
    if (f.bits == 6) return 2;
    return f.bits == 5 || f.levels == LEVELS_FP4 || matmul_has_halves(&f) ? 4 : 8;
}

INLINE __m256i entering(const struct matmul_form f, __m256i v)
{
    return f.bits == 8 ? _mm256_xor_si256(v, _mm256_set1_epi8(-128)) : v;
}

INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* Sums stay in the order in which they stand: gcc would make trees of them, which want more registers
 * than there are. */
INLINE __m256i in_order(__m256i sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

/* Where 16 bits are widened they meet the scale. */
INLINE void dot(const struct matmul_form f, __m256i *sums, const __m256i v[8], const __m256i s[2],
                const struct qrn_q8_act *const *x, int64_t i, const int n_rows)
{
    const int most = vectors_in_16_bits(f);
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        __m256i part = _mm256_setzero_si256();
        UNROLL for (int q = 0; q < 8; q++)
        {
            __m256i a = broadcast_256(x[r]->q + 32 * i + 4 * q), w = v[q];
            if (is_signed(f)) {
                a = _mm256_sign_epi8(a, w);
                w = _mm256_abs_epi8(w);
            }
            const __m256i two = _mm256_maddubs_epi16(w, a),
                          scale = s[matmul_has_halves(&f) ? q / 4 : 0];
            part = q % most ? in_order(_mm256_add_epi16(part, two)) : two;
            if (q % most == most - 1)
                sums[r] =
                    add_pairs(sums[r], part,
                              f.sub == SUB_NONE ? _mm256_set1_epi16(1) : pairs_256(scale, scale));
        }
    }
}

#include "backends/cpu/avx2/matmul_q8_avx2.inc"
#include "backends/cpu/avx2/matmul_tiles_avx2.h"
#include "backends/cpu/avx2/matmul_many_avx2.inc"

static const char serves[] = "rounded activations: products of bytes, widened; exact sums";

MATMUL_KERNEL(matmul, avx2_q8, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
MATMUL_KERNEL(matmul_id, avx2_q8, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
