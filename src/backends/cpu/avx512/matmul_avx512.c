/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of float activations with AVX-512: 16 rows in lanes, acc = fma(w, x, acc)
 * for ascending k.  Integer forms are decoded to floats for a few groups and columns at a time. */
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"

enum { TILE_ROWS = 6, TILE_GROUPS = 4 };

/* 16 weights of one k. */
INLINE __m512 load_weights(const enum qrn_dtype type, const char *p)
{
    if (type == QRN_F32) return _mm512_loadu_ps(p);
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (type == QRN_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* n_groups groups from g on against n_rows rows from r0 on. */
INLINE void product_rows(const enum qrn_dtype type, const struct matmul_tile *t, int g,
                         const int n_groups, int r0, const int n_rows)
{
    const int64_t step = IMAGE_ROWS * (type == QRN_F32 ? 4 : 2);
    const char *w[TILE_GROUPS];
    const float *x[TILE_ROWS];
    __m512 acc[TILE_ROWS][TILE_GROUPS];
    __mmask16 mask[TILE_GROUPS];
    for (int c = 0; c < n_groups; c++) {
        const int64_t n = t->n - (g + c) * IMAGE_ROWS;
        w[c] = t->w + (size_t)(g + c) * t->group_bytes;
        mask[c] = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    }
    for (int r = 0; r < n_rows; r++) {
        x[r] = t->x[r0 + r];
        for (int c = 0; c < n_groups; c++)
            acc[r][c] = t->begin
                            ? _mm512_setzero_ps()
                            : _mm512_maskz_loadu_ps(mask[c], t->out[r0 + r] + (g + c) * IMAGE_ROWS);
    }
    for (int64_t k = 0; k < t->k; k++) {
        __m512 v[TILE_GROUPS];
        for (int c = 0; c < n_groups; c++) {
            v[c] = load_weights(type, w[c] + k * step);
            if (t->cold) _mm_prefetch(w[c] + k * step + AHEAD_BYTES, _MM_HINT_T0);
        }
        for (int r = 0; r < n_rows; r++) {
            const __m512 xr = _mm512_set1_ps(x[r][k]);
            for (int c = 0; c < n_groups; c++) acc[r][c] = _mm512_fmadd_ps(v[c], xr, acc[r][c]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_groups; c++)
            _mm512_mask_storeu_ps(t->out[r0 + r] + (g + c) * IMAGE_ROWS, mask[c], acc[r][c]);
}

INLINE void product_groups(const enum qrn_dtype type, const struct matmul_tile *t, int g,
                           const int n_groups)
{
    switch (t->n_rows) {
    case 1:
        product_rows(type, t, g, n_groups, 0, 1);
        break;
    case 2:
        product_rows(type, t, g, n_groups, 0, 2);
        break;
    case 3:
        product_rows(type, t, g, n_groups, 0, 3);
        break;
    case 4:
        product_rows(type, t, g, n_groups, 0, 4);
        break;
    case 5:
        product_rows(type, t, g, n_groups, 0, 5);
        break;
    default:
        product_rows(type, t, g, n_groups, 0, 6);
    }
}

INLINE void product(const enum qrn_dtype type, const struct matmul_tile *t)
{
    int g = 0;
    for (; g + TILE_GROUPS <= t->n_groups; g += TILE_GROUPS)
        product_groups(type, t, g, TILE_GROUPS);
    for (; g < t->n_groups; g++) product_groups(type, t, g, 1);
}

static void product_f32(const struct matmul_tile *t)
{
    product(QRN_F32, t);
}

static void product_f16(const struct matmul_tile *t)
{
    product(QRN_F16, t);
}

static void product_bf16(const struct matmul_tile *t)
{
    product(QRN_BF16, t);
}

/* Code j of each of 16 rows from bytes 4 * row + j, as floats. */
INLINE __m512 level_512(const struct matmul_form f, __m512i v, int j)
{
    if (f.levels != LEVELS_LINEAR)
        return _mm512_cvtepi32_ps(
            _mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - 8 * j)), 24));
    const __m512i code =
        _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)(8 * j)), _mm512_set1_epi32(255));
    return _mm512_cvtepi32_ps(f.offset ? _mm512_sub_epi32(code, _mm512_set1_epi32(f.offset))
                                       : code);
}

/* The same values as the type's decoder: products of scales and codes are exact but for MLX codes,
 * where product and sum are rounded one by one. */
INLINE void unpack_form(const struct matmul_form f, const char *w, int64_t k, int64_t mlx_blocks,
                        float *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    const __m512i table = levels_512(f, 0);
    for (int64_t b = 0; b < k / 32; b += blocks) {
        const __m512 head_d = load_head_512(f, w, 0);
        const __m512 head_m = matmul_has_min(&f) ? load_head_512(f, w, 1) : _mm512_setzero_ps();
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            __m512i v[8];
            const struct scales_512 s = load_scales_512(f, w);
            load_codes_512(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, v);
            for (int q = 0; q < 8; q++) {
                const int h = f.sub == SUB_HALVES || f.sub == SUB_HALVES_MIN ? q / 4 : 0;
                const __m512 d = f.sub == SUB_NONE ? head_d : _mm512_mul_ps(head_d, s.s[h]);
                const __m512 m = f.sub == SUB_NONE ? head_m : _mm512_mul_ps(head_m, s.t[h]);
                if (f.levels != LEVELS_LINEAR) v[q] = _mm512_shuffle_epi8(table, v[q]);
                for (int j = 0; j < 4; j++, out += IMAGE_ROWS) {
                    __m512 y = _mm512_mul_ps(d, level_512(f, v[q], j));
                    if (matmul_has_min(&f))
                        y = f.sub == SUB_NONE ? _mm512_add_ps(y, m) : _mm512_sub_ps(y, m);
                    _mm512_storeu_ps(out, y);
                }
            }
        }
    }
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                 \
    static void unpack_##NAME(const char *w, int64_t k, int64_t mlx_blocks, float *out)  \
    {                                                                                    \
        unpack_form((struct matmul_form){bits, blocks, head, sub, offset, levels}, w, k, \
                    mlx_blocks, out);                                                    \
    }
MATMUL_FORMS(X)
#undef X

static const matmul_unpack_fn unpacks[QRN_DTYPE_COUNT] = {
#define X(NAME, bits, blocks, head, sub, offset, levels) [QRN_##NAME] = unpack_##NAME,
    MATMUL_FORMS(X)
#undef X
};

static struct matmul_unit unit(const struct matmul_job *j)
{
    const enum qrn_dtype t = j->w->dtype;
    return (struct matmul_unit){
        .tile_rows = TILE_ROWS,
        .chunk_groups = TILE_GROUPS,
        .chunk_k = 256,
        .product = t == QRN_F32    ? product_f32
                   : t == QRN_F16  ? product_f16
                   : t == QRN_BF16 ? product_bf16
                                   : NULL,
        .product_f32 = product_f32,
        .unpack = unpacks[t],
    };
}

static bool takes(const struct matmul_job *j)
{
    return !j->q8;
}

MATMUL_KERNEL(matmul, avx512, QRN_CPU_AVX512);
MATMUL_KERNEL(matmul_id, avx512, QRN_CPU_AVX512);
