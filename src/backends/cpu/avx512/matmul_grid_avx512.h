/* SPDX-License-Identifier: MIT
 * Types without integer form to floats, 16 rows at a time, a row a lane: fields are gathered from the
 * rows' blocks, points of grids from their tables, levels come by permutation.  The values are those
 * of the decoders (formats/decode_iq.c, decode_codebook.c), operation by operation. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_GRID_AVX512_H
#define QUERN_BACKENDS_CPU_MATMUL_GRID_AVX512_H

#include <immintrin.h>
#include "backends/cpu/matmul_image.h"
#include "backends/cpu/unroll.h"
#include "formats/block_tables.h"

#define GRID_INLINE static inline __attribute__((always_inline))

/* One block of each of 16 rows. */
struct grid_rows {
    const char *base;
    __m512i at[2]; /* bytes from base to the blocks of rows 0 .. 7 and 8 .. 15 */
};

/* The 4 bytes at an offset into each block. */
GRID_INLINE __m512i grid_u32(const struct grid_rows *b, int offset)
{
    const char *p = b->base + offset;
    const __m256i low = _mm512_i64gather_epi32(b->at[0], p, 1);
    const __m256i high = _mm512_i64gather_epi32(b->at[1], p, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

GRID_INLINE __m512i grid_bits(__m512i v, int shift, int mask)
{
    const __m512i s = shift ? _mm512_srli_epi32(v, (unsigned)shift) : v;
    return _mm512_and_si512(s, _mm512_set1_epi32(mask));
}

GRID_INLINE __m512 grid_f16(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* Entries of a table of an even number of 16-bit words. */
GRID_INLINE __m512i grid_points(const uint16_t *table, __m512i i)
{
    const __m512i two = _mm512_i32gather_epi32(_mm512_srli_epi32(i, 1), table, 4);
    const __m512i odd = _mm512_slli_epi32(_mm512_and_si512(i, _mm512_set1_epi32(1)), 4);
    return _mm512_and_si512(_mm512_srlv_epi32(two, odd), _mm512_set1_epi32(0xffff));
}

/* Levels by the low bits of a code, plus shift, repeated to sixteen. */
GRID_INLINE __m512 grid_levels(const int8_t *levels, int n, int n_codes, float shift)
{
    float table[16];
    for (int i = 0; i < 16; i++)
        table[i] = i % n_codes < n ? (float)levels[i % n_codes] + shift : 0.0f;
    return _mm512_loadu_ps(table);
}

/* Eight signs from seven bits: as qrn_iq_signs. */
GRID_INLINE __m512i grid_signs(__m512i seven)
{
    __m512i parity = _mm512_xor_si512(seven, _mm512_srli_epi32(seven, 4));
    parity = _mm512_xor_si512(parity, _mm512_srli_epi32(parity, 2));
    parity = _mm512_xor_si512(parity, _mm512_srli_epi32(parity, 1));
    return _mm512_or_si512(seven, _mm512_slli_epi32(grid_bits(parity, 0, 1), 7));
}

/* Eight columns: scale * level, negated where signs say so; codes of `bits` bits. */
GRID_INLINE void grid_put_signed(__m512i points, int bits, __m512 levels, __m512 scale,
                                 __m512i signs, float *out)
{
    const __m512i top = _mm512_set1_epi32((int)0x80000000u);
    UNROLL for (int j = 0; j < 8; j++)
    {
        const __m512i code = _mm512_srli_epi32(points, (unsigned)(bits * j));
        const __m512 y = _mm512_mul_ps(scale, _mm512_permutexvar_ps(code, levels));
        const __m512i sign = _mm512_slli_epi32(signs, (unsigned)(31 - j));
        _mm512_storeu_ps(out + j * IMAGE_ROWS,
                         _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
                             _mm512_castps_si512(y), sign, top, 0x78))); /* y ^ (sign & top) */
    }
}

/* d * (code + 1/2) * step */
GRID_INLINE __m512 grid_half_scale(__m512 d, __m512i code, float step)
{
    const __m512 c = _mm512_add_ps(_mm512_set1_ps(0.5f), _mm512_cvtepi32_ps(code));
    return _mm512_mul_ps(_mm512_mul_ps(d, c), _mm512_set1_ps(step));
}

/* d * (2 * code + 1) */
GRID_INLINE __m512 grid_odd_scale(__m512 d, __m512i code)
{
    const __m512i odd = _mm512_add_epi32(_mm512_slli_epi32(code, 1), _mm512_set1_epi32(1));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(odd));
}

enum { GRID_RUN = 8 * IMAGE_ROWS };

static void grid_IQ2_XXS(const struct grid_rows *b, float *out)
{
    const __m512 levels = grid_levels(qrn_iq2_levels, 3, 4, 0.0f), d = grid_f16(grid_u32(b, 0));
    for (int h = 0; h < 8; h++) {
        const __m512i q = grid_u32(b, 2 + 8 * h), packed = grid_u32(b, 6 + 8 * h);
        const __m512 scale = grid_half_scale(d, _mm512_srli_epi32(packed, 28), 0.25f);
        for (int i = 0; i < 4; i++, out += GRID_RUN)
            grid_put_signed(grid_points(qrn_iq2_xxs_grid, grid_bits(q, 8 * i, 255)), 2, levels,
                            scale, grid_signs(grid_bits(packed, 7 * i, 127)), out);
    }
}

static void grid_IQ2_XS(const struct grid_rows *b, float *out)
{
    const __m512 levels = grid_levels(qrn_iq2_levels, 3, 4, 0.0f), d = grid_f16(grid_u32(b, 0));
    for (int p = 0; p < 16; p++) {
        const __m512i q = grid_u32(b, 2 + 4 * p);
        const __m512i code = grid_bits(grid_u32(b, 66 + p / 8 * 4), p % 8 * 4, 15);
        const __m512 scale = grid_half_scale(d, code, 0.25f);
        for (int i = 0; i < 2; i++, out += GRID_RUN)
            grid_put_signed(grid_points(qrn_iq2_xs_grid, grid_bits(q, 16 * i, 511)), 2, levels,
                            scale, grid_signs(grid_bits(q, 16 * i + 9, 127)), out);
    }
}

static void grid_IQ2_S(const struct grid_rows *b, float *out)
{
    const __m512 levels = grid_levels(qrn_iq2_levels, 3, 4, 0.0f), d = grid_f16(grid_u32(b, 0));
    for (int h = 0; h < 8; h++) {
        const __m512i q = grid_u32(b, 2 + 4 * h), signs = grid_u32(b, 34 + 4 * h);
        const __m512i high = grid_bits(grid_u32(b, 66 + h / 4 * 4), h % 4 * 8, 255);
        const __m512i codes = grid_bits(grid_u32(b, 74 + h / 4 * 4), h % 4 * 8, 255);
        for (int i = 0; i < 4; i++, out += GRID_RUN) {
            const __m512i at = _mm512_or_si512(grid_bits(q, 8 * i, 255),
                                               _mm512_slli_epi32(grid_bits(high, 2 * i, 3), 8));
            const __m512 scale = grid_half_scale(d, grid_bits(codes, i / 2 * 4, 15), 0.25f);
            grid_put_signed(grid_points(qrn_iq2_s_grid, at), 2, levels, scale,
                            grid_bits(signs, 8 * i, 255), out);
        }
    }
}

/* Two points of four codes make a run. */
GRID_INLINE __m512i grid_two(const uint16_t *table, __m512i first, __m512i second)
{
    return _mm512_or_si512(grid_points(table, first),
                           _mm512_slli_epi32(grid_points(table, second), 16));
}

static void grid_IQ3_XXS(const struct grid_rows *b, float *out)
{
    const __m512 levels = grid_levels(qrn_iq3_xxs_levels, 8, 8, 0.0f);
    const __m512 d = grid_f16(grid_u32(b, 0));
    for (int h = 0; h < 8; h++) {
        const __m512i packed = grid_u32(b, 66 + 4 * h);
        const __m512 scale = grid_half_scale(d, _mm512_srli_epi32(packed, 28), 0.5f);
        for (int i = 0; i < 4; i++, out += GRID_RUN) {
            const __m512i q = grid_u32(b, 2 + 8 * h + i / 2 * 4);
            const __m512i points = grid_two(qrn_iq3_xxs_grid, grid_bits(q, i % 2 * 16, 255),
                                            grid_bits(q, i % 2 * 16 + 8, 255));
            grid_put_signed(points, 4, levels, scale, grid_signs(grid_bits(packed, 7 * i, 127)),
                            out);
        }
    }
}

static void grid_IQ3_S(const struct grid_rows *b, float *out)
{
    const __m512 levels = grid_levels(qrn_iq3_s_levels, 8, 8, 0.0f);
    const __m512 d = grid_f16(grid_u32(b, 0));
    for (int h = 0; h < 8; h++) {
        const __m512i signs = grid_u32(b, 74 + 4 * h);
        const __m512i high = grid_bits(grid_u32(b, 66 + h / 4 * 4), h % 4 * 8, 255);
        const __m512 scale = grid_odd_scale(d, grid_bits(grid_u32(b, 106), 4 * h, 15));
        for (int i = 0; i < 4; i++, out += GRID_RUN) {
            const __m512i q = grid_u32(b, 2 + 8 * h + i / 2 * 4);
            const __m512i first = grid_bits(q, i % 2 * 16, 255);
            const __m512i second = grid_bits(q, i % 2 * 16 + 8, 255);
            const __m512i points = grid_two(
                qrn_iq3_s_grid,
                _mm512_or_si512(first, _mm512_slli_epi32(grid_bits(high, 2 * i, 1), 8)),
                _mm512_or_si512(second, _mm512_slli_epi32(grid_bits(high, 2 * i + 1, 1), 8)));
            grid_put_signed(points, 4, levels, scale, grid_bits(signs, 8 * i, 255), out);
        }
    }
}

/* Eight columns: scale * (level + shift), the shift -1/8 where bit 0 of minus is set, else 1/8. */
GRID_INLINE void grid_put_shifted(__m512i points, __m512 scale, __m512i minus, float *out)
{
    const __m512 plus_levels = grid_levels(qrn_iq1_levels, 3, 4, 0.125f);
    const __m512 minus_levels = grid_levels(qrn_iq1_levels, 3, 4, -0.125f);
    /* The low 2 bits of an index, and bit 4, which says which of two tables. */
    const __m512i which = _mm512_slli_epi32(minus, 4);
    UNROLL for (int j = 0; j < 8; j++)
    {
        const __m512i code = grid_bits(points, 2 * j, 15);
        const __m512 level =
            _mm512_permutex2var_ps(plus_levels, _mm512_or_si512(code, which), minus_levels);
        _mm512_storeu_ps(out + j * IMAGE_ROWS, _mm512_mul_ps(scale, level));
    }
}

static void grid_IQ1_S(const struct grid_rows *b, float *out)
{
    const __m512 d = grid_f16(grid_u32(b, 0));
    for (int h = 0; h < 8; h++) {
        const __m512i q = grid_u32(b, 2 + 4 * h);
        const __m512i packed = grid_bits(grid_u32(b, 34 + h / 2 * 4), h % 2 * 16, 0xffff);
        const __m512 scale = grid_odd_scale(d, grid_bits(packed, 12, 7));
        for (int i = 0; i < 4; i++, out += GRID_RUN) {
            const __m512i at = _mm512_or_si512(grid_bits(q, 8 * i, 255),
                                               _mm512_slli_epi32(grid_bits(packed, 3 * i, 7), 8));
            grid_put_shifted(grid_points(qrn_iq1_grid, at), scale, grid_bits(packed, 15, 1), out);
        }
    }
}

static void grid_IQ1_M(const struct grid_rows *b, float *out)
{
    const __m512i scales[2] = {grid_u32(b, 48), grid_u32(b, 52)};
    const __m512i low =
        _mm512_or_si512(grid_bits(scales[0], 12, 15), grid_bits(scales[0], 24, 0xf0));
    const __m512i high =
        _mm512_or_si512(grid_bits(scales[1], 12, 15), grid_bits(scales[1], 24, 0xf0));
    const __m512 d = grid_f16(_mm512_or_si512(low, _mm512_slli_epi32(high, 8)));
    for (int h = 0; h < 8; h++) {
        const __m512i q = grid_u32(b, 4 * h), nibbles = grid_u32(b, 32 + h / 2 * 4);
        for (int i = 0; i < 4; i++, out += GRID_RUN) {
            const __m512i nibble = grid_bits(nibbles, h % 2 * 16 + 4 * i, 15);
            const __m512i code =
                grid_bits(scales[h / 4], h / 2 % 2 * 16 + 3 * (h % 2 * 2 + i / 2), 7);
            const __m512i at = _mm512_or_si512(grid_bits(q, 8 * i, 255),
                                               _mm512_slli_epi32(grid_bits(nibble, 0, 7), 8));
            grid_put_shifted(grid_points(qrn_iq1_grid, at), grid_odd_scale(d, code),
                             grid_bits(nibble, 3, 1), out);
        }
    }
}

/* As qrn_block_ue4m3_half. */
GRID_INLINE __m512 grid_ue4m3_half(__m512i x)
{
    const __m512i bits = _mm512_slli_epi32(grid_bits(x, 0, 127), 20);
    const __m512 normal = _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(119 << 23)));
    const __m512 small =
        _mm512_mul_ps(_mm512_cvtepi32_ps(grid_bits(x, 0, 7)), _mm512_set1_ps(0x1p-10f));
    const __mmask16 is_small = _mm512_testn_epi32_mask(x, _mm512_set1_epi32(0x78));
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(x, _mm512_set1_epi32(0x7f));
    return _mm512_maskz_mov_ps((__mmask16)~is_nan, _mm512_mask_mov_ps(normal, is_small, small));
}

static void grid_NVFP4(const struct grid_rows *b, float *out)
{
    const __m512 levels = grid_levels(qrn_fp4_levels, 16, 16, 0.0f);
    const __m512i scales = grid_u32(b, 0);
    for (int s = 0; s < 4; s++, out += 16 * IMAGE_ROWS) {
        const __m512 d = grid_ue4m3_half(grid_bits(scales, 8 * s, 255));
        const __m512i q[2] = {grid_u32(b, 4 + 8 * s), grid_u32(b, 8 + 8 * s)};
        UNROLL for (int j = 0; j < 8; j++)
        {
            const unsigned at = (unsigned)(j % 4 * 8);
            const __m512i low = _mm512_srli_epi32(q[j / 4], at);
            const __m512i high = _mm512_srli_epi32(q[j / 4], at + 4);
            _mm512_storeu_ps(out + j * IMAGE_ROWS,
                             _mm512_mul_ps(d, _mm512_permutexvar_ps(low, levels)));
            _mm512_storeu_ps(out + (j + 8) * IMAGE_ROWS,
                             _mm512_mul_ps(d, _mm512_permutexvar_ps(high, levels)));
        }
    }
}

/* As qrn_image_write_f32, with block(): lanes past n_rows get the last row's values. */
GRID_INLINE void grid_write(void (*block)(const struct grid_rows *b, float *out),
                            const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                            float *out)
{
    const struct qrn_dtype_info *info = qrn_dtype_info(rows->dtype);
    struct grid_rows b = {.base = rows->blocks + qrn_block_offset(rows->dtype, k0)};
    int64_t at[IMAGE_ROWS];
    for (int r = 0; r < IMAGE_ROWS; r++)
        at[r] = rows[r < n_rows ? r : n_rows - 1].blocks - rows->blocks;
    for (int i = 0; i < 2; i++) b.at[i] = _mm512_loadu_si512(at + 8 * i);
    for (int64_t i = 0; i < k; i += info->block_elements) {
        block(&b, out + i * IMAGE_ROWS);
        b.base += info->block_bytes;
    }
}

#define GRID_TYPES(X) X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) X(IQ1_S) X(IQ1_M) X(NVFP4)

#endif
