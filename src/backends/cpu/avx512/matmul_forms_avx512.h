/* SPDX-License-Identifier: MIT
 * Float activations that meet integer forms with AVX-512: weights are decoded in registers, 16 rows in lanes, each
 * exactly as its type decodes, and multiplied at once; or they are stored as floats. */
#ifndef QUERN_MATMUL_FORMS_AVX512_H
#define QUERN_MATMUL_FORMS_AVX512_H

#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

/* Groups that one row meets side by side; rows that meet codes together. */
enum { FORM_GROUPS = 4, FORM_ROWS = 2 };

/* Levels by code, for permutations: codes of up to 4 bits in one vector, of 5 in two.  Shorter codes
 * repeat. */
struct levels {
    __m512 v[2];
};

INLINE struct levels load_levels(const struct matmul_form f)
{
    struct levels l;
    float table[32];
    for (int i = 0; i < 32; i++)
        table[i] = (float)matmul_level(&f, (uint8_t)(i & (f.bits < 5 ? (1 << f.bits) - 1 : 31)));
    for (int i = 0; i < 2; i++) l.v[i] = _mm512_loadu_ps(table + 16 * i);
    return l;
}

/* Codes of k = 4 q .. 4 q + 3 of each row, from bit code_shift on of their bytes.  What is above codes of 2 and of 4 bits
 * stays: permutations do not look there, or find the same level. */
INLINE __m512i load_bits(const struct matmul_form f, const char *codes, const int q)
{
    if (f.bits == 4 || f.bits == 2) return load_512(codes + 64 * (q % f.bits));
    return load_code_512(f, codes, q);
}

INLINE int code_shift(const struct matmul_form f, const int q)
{
    return f.bits == 4 || f.bits == 2 ? q / f.bits * f.bits : 0;
}

/* The level of the code that begins at a bit of each row's four bytes. */
INLINE __m512 level_512(const struct matmul_form f, const struct levels *l, __m512i v, const int bit)
{
    const __m512i at = bit ? _mm512_srli_epi32(v, (unsigned)bit) : v;
    if (f.bits <= 4) return _mm512_permutexvar_ps(at, l->v[0]);
    if (f.bits == 5) return _mm512_permutex2var_ps(l->v[0], at, l->v[1]);
    const __m512i code = bit == 24 ? at : _mm512_and_si512(at, _mm512_set1_epi32(255));
    const __m512 y = _mm512_cvtepi32_ps(code);
    return f.offset ? _mm512_sub_ps(y, _mm512_set1_ps((float)f.offset)) : y;
}

/* The same of codes of 6 and 8 bits without a conversion: bits of a mantissa are a number as they lie, if the exponent says
 * so and what it stands for is subtracted.  Where weights are stored it is slower; why is not known. */
INLINE __m512 mantissa_512(const struct matmul_form f, __m512i v, const int bit)
{
    const int at = bit % 16, more = 1 << (23 - at);
    const __m512i mask = _mm512_set1_epi32(((1 << f.bits) - 1) << at),
                  exponent = _mm512_castps_si512(_mm512_set1_ps((float)more));
    const __m512i sum = _mm512_ternarylogic_epi32(bit < 16 ? v : _mm512_srli_epi32(v, 16), mask, exponent,
                                                  0xea); /* v & mask | exponent */
    return _mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps((float)(more + f.offset)));
}

/* What 16 rows multiply their levels by, and add: of half h of a block. */
struct step {
    __m512 d, m;
};

INLINE struct step load_step(const struct matmul_form f, const char *block, __m512 d, __m512 m, const int h)
{
    if (f.sub == SUB_NONE) return (struct step){d, m};
    const struct scales_512 s = load_scales_512(f, block);
    const int i = matmul_has_halves(&f) ? h : 0;
    return (struct step){_mm512_mul_ps(d, s.s[i]), matmul_has_min(&f) ? _mm512_mul_ps(m, s.t[i]) : m};
}

/* The same value as the type's decoder: products of scales and codes are exact but for MLX codes,
 * where product and sum are rounded one by one. */
INLINE __m512 weight_512(const struct matmul_form f, __m512 level, const struct step *s)
{
    if (!matmul_has_min(&f)) return _mm512_mul_ps(s->d, level);
    if (f.head == HEAD_F32_F32) return _mm512_add_ps(_mm512_mul_ps(s->d, level), s->m);
    return f.sub == SUB_NONE ? _mm512_fmadd_ps(s->d, level, s->m)
                             : _mm512_fmsub_ps(s->d, level, s->m);
}

/* Groups of an image, at the place that is walked, under their heads. */
struct form_place {
    const char *w[FORM_GROUPS];
    __m512 d[FORM_GROUPS], m[FORM_GROUPS];
};

INLINE void take_heads(const struct matmul_form f, const int n_groups, struct form_place *at)
{
    UNROLL for (int c = 0; c < n_groups; c++)
    {
        at->d[c] = load_head_512(f, at->w[c], 0);
        at->m[c] = matmul_has_min(&f) ? load_head_512(f, at->w[c], 1) : _mm512_setzero_ps();
        at->w[c] += image_head_bytes(&f);
    }
}

INLINE const char *codes_at(const struct matmul_form f, const char *block)
{
    return block + image_block_bytes(&f) - 64 * (size_t)f.bits;
}

/* acc = fma(w, x, acc) for the 32 k of a block.  Each sum waits for the one before, so several groups go side by side. */
INLINE void add_block(const struct matmul_form f, const struct levels *levels, const struct form_place *at,
                      const int n_groups, const float *const *x, const int n_rows, __m512 acc[FORM_ROWS][FORM_GROUPS])
{
    UNROLL for (int h = 0; h < 2; h++)
    {
        struct step s[FORM_GROUPS];
        UNROLL for (int c = 0; c < n_groups; c++) s[c] = load_step(f, at->w[c], at->d[c], at->m[c], h);
        UNROLL for (int q = 4 * h; q < 4 * h + 4; q++)
        {
            __m512i v[FORM_GROUPS];
            UNROLL for (int c = 0; c < n_groups; c++) v[c] = load_bits(f, codes_at(f, at->w[c]), q);
            UNROLL for (int j = 0; j < 4; j++) UNROLL for (int c = 0; c < n_groups; c++)
            {
                const __m512 level = f.bits > 5 ? mantissa_512(f, v[c], 8 * j)
                                                : level_512(f, levels, v[c], 8 * j + code_shift(f, q));
                const __m512 y = weight_512(f, level, &s[c]);
                UNROLL for (int r = 0; r < n_rows; r++) acc[r][c] =
                    _mm512_fmadd_ps(y, _mm512_set1_ps(x[r][4 * q + j]), acc[r][c]);
            }
        }
    }
}

/* n_rows rows of x, r and on of the tile's, against n_groups groups: from codes to sums in registers. */
INLINE void form_groups(const struct matmul_form f, const struct matmul_tile *t, int r, int g, const int n_groups,
                        const int n_rows)
{
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks;
    const size_t block_bytes = image_block_bytes(&f);
    const struct levels levels = load_levels(f);
    const bool cold = t->cold && r == 0;
    /* The groups that come next lie behind these: asked for in one line, a part with each block. */
    const size_t all = (size_t)n_groups * t->group_bytes, part = (all / (size_t)(t->k / 32) + 63) / 64 * 64;
    const char *next = t->w + (size_t)g * t->group_bytes + all;
    struct form_place at;
    const float *x[FORM_ROWS];
    __mmask16 mask[FORM_GROUPS];
    __m512 acc[FORM_ROWS][FORM_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++)
    {
        const int64_t n = t->n - (g + c) * IMAGE_ROWS;
        at.w[c] = t->w + (size_t)(g + c) * t->group_bytes;
        mask[c] = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    }
    UNROLL for (int i = 0; i < n_rows; i++)
    {
        x[i] = t->x[r + i];
        UNROLL for (int c = 0; c < n_groups; c++) acc[i][c] =
            t->begin ? _mm512_setzero_ps()
                     : _mm512_maskz_loadu_ps(mask[c], t->out[r + i] + (g + c) * IMAGE_ROWS);
    }
    for (int64_t b = 0; b < t->k / 32; b += blocks) {
        take_heads(f, n_groups, &at);
        for (int64_t i = 0; i < blocks; i++) {
            for (size_t n = 0; cold && n < part; n += 64) _mm_prefetch(next + n, _MM_HINT_T1);
            next += part;
            add_block(f, &levels, &at, n_groups, x, n_rows, acc);
            UNROLL for (int c = 0; c < n_groups; c++) at.w[c] += block_bytes;
            UNROLL for (int n = 0; n < n_rows; n++) x[n] += 32;
        }
    }
    UNROLL for (int i = 0; i < n_rows; i++) UNROLL for (int c = 0; c < n_groups; c++)
        _mm512_mask_storeu_ps(t->out[r + i] + (g + c) * IMAGE_ROWS, mask[c], acc[i][c]);
}

/* Rows by twos with two groups, a last one with more. */
INLINE void form_product(const struct matmul_form f, const struct matmul_tile *t)
{
    int r = 0, g = 0;
    for (; r + FORM_ROWS <= t->n_rows; r += FORM_ROWS) {
        for (g = 0; g + 2 <= t->n_groups; g += 2) form_groups(f, t, r, g, 2, FORM_ROWS);
        for (; g < t->n_groups; g++) form_groups(f, t, r, g, 1, FORM_ROWS);
    }
    if (r == t->n_rows) return;
    for (g = 0; g + FORM_GROUPS <= t->n_groups; g += FORM_GROUPS) form_groups(f, t, r, g, FORM_GROUPS, 1);
    for (; g + 2 <= t->n_groups; g += 2) form_groups(f, t, r, g, 2, 1);
    for (; g < t->n_groups; g++) form_groups(f, t, r, g, 1, 1);
}

/* A group of an image to floats. */
INLINE void form_unpack(const struct matmul_form f, const char *image, int64_t k, int64_t mlx_blocks, float *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    const struct levels levels = load_levels(f);
    struct form_place at = {.w = {image}};
    for (int64_t b = 0; b < k / 32; b += blocks) {
        take_heads(f, 1, &at);
        for (int64_t i = 0; i < blocks; i++, at.w[0] += image_block_bytes(&f), out += 32 * IMAGE_ROWS) {
            __m512i v[8];
            UNROLL for (int q = 0; q < 8; q++) v[q] = load_bits(f, codes_at(f, at.w[0]), q);
            const struct step s[2] = {load_step(f, at.w[0], at.d[0], at.m[0], 0),
                                      load_step(f, at.w[0], at.d[0], at.m[0], 1)};
            UNROLL for (int q = 0; q < 8; q++) UNROLL for (int j = 0; j < 4; j++)
                _mm512_storeu_ps(out + (4 * q + j) * IMAGE_ROWS,
                                 weight_512(f, level_512(f, &levels, v[q], 8 * j + code_shift(f, q)), &s[q / 4]));
        }
    }
}

#endif
