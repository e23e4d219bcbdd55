/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of float activations with AVX-512: 16 rows in lanes, acc = fma(w, x, acc)
 * for ascending k.  Integer forms are decoded to floats for a few groups and columns at a time. */
#include "backends/cpu/avx512/matmul_grid_avx512.h"
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

/* Many rows are read again for each chunk of groups; for few, a chunk stays in the first cache. */
enum { TILE_ROWS = 6, TILE_GROUPS = 4, FORM_GROUPS = 2, MANY_GROUPS = 32 };

/* 16 weights of column k; of bf16, which lie in pairs, odd says which. */
INLINE __m512 load_weights(const enum qrn_dtype type, const char *w, int64_t k, const bool odd)
{
    if (type == QRN_F32) return _mm512_loadu_ps(w + 64 * k);
    if (type == QRN_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(w + 32 * k)));
    const __m512i pair = load_512(w + 32 * (odd ? k - 1 : k));
    return _mm512_castsi512_ps(odd ? _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u))
                                   : _mm512_slli_epi32(pair, 16));
}

/* Bytes of an image for each k. */
INLINE int64_t column_bytes(const enum qrn_dtype type)
{
    return IMAGE_ROWS * (type == QRN_F32 ? 4 : 2);
}

/* n_groups groups from g on against n_rows rows from r0 on. */
struct sums {
    __m512 acc[TILE_ROWS][TILE_GROUPS];
};

INLINE void add_column(const enum qrn_dtype type, const char *const *w, int64_t k, const bool odd,
                       const float *const *x, const int n_groups, const int n_rows, struct sums *s)
{
    __m512 v[TILE_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++) v[c] = load_weights(type, w[c], k, odd);
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        const __m512 xr = _mm512_set1_ps(x[r][k]);
        UNROLL for (int c = 0; c < n_groups; c++) s->acc[r][c] =
            _mm512_fmadd_ps(v[c], xr, s->acc[r][c]);
    }
}

INLINE void product_rows(const enum qrn_dtype type, const struct matmul_tile *t, int g,
                         const int n_groups, const int n_rows)
{
    const char *w[TILE_GROUPS];
    const float *x[TILE_ROWS];
    struct sums s;
    __mmask16 mask[TILE_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++)
    {
        const int64_t n = t->n - (g + c) * IMAGE_ROWS;
        w[c] = t->w + (size_t)(g + c) * t->group_bytes;
        mask[c] = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    }
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        x[r] = t->x[r];
        UNROLL for (int c = 0; c < n_groups; c++) s.acc[r][c] =
            t->begin ? _mm512_setzero_ps()
                     : _mm512_maskz_loadu_ps(mask[c], t->out[r] + (g + c) * IMAGE_ROWS);
    }
    int64_t k = 0;
    for (; k + 2 <= t->k; k += 2) {
        UNROLL for (int c = 0; c < n_groups; c++) if (t->cold)
            _mm_prefetch(w[c] + k * column_bytes(type) + AHEAD_BYTES, _MM_HINT_T0);
        add_column(type, w, k, false, x, n_groups, n_rows, &s);
        add_column(type, w, k + 1, true, x, n_groups, n_rows, &s);
    }
    if (k < t->k) add_column(type, w, k, false, x, n_groups, n_rows, &s);
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_groups; c++)
        _mm512_mask_storeu_ps(t->out[r] + (g + c) * IMAGE_ROWS, mask[c], s.acc[r][c]);
}

INLINE void product_groups(const enum qrn_dtype type, const struct matmul_tile *t, int g,
                           const int n_groups)
{
    switch (t->n_rows) {
    case 1:
        product_rows(type, t, g, n_groups, 1);
        break;
    case 2:
        product_rows(type, t, g, n_groups, 2);
        break;
    case 3:
        product_rows(type, t, g, n_groups, 3);
        break;
    case 4:
        product_rows(type, t, g, n_groups, 4);
        break;
    case 5:
        product_rows(type, t, g, n_groups, 5);
        break;
    default:
        product_rows(type, t, g, n_groups, 6);
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

/* The level of code j of each of 16 rows, from bytes 4 * row + j. */
INLINE __m512 level_512(const struct matmul_form f, const struct levels *l, __m512i v, int j)
{
    const __m512i at = j ? _mm512_srli_epi32(v, (unsigned)(8 * j)) : v;
    if (f.bits <= 4) return _mm512_permutexvar_ps(at, l->v[0]);
    if (f.bits == 5) return _mm512_permutex2var_ps(l->v[0], at, l->v[1]);
    const __m512i code = j == 3 ? at : _mm512_and_si512(at, _mm512_set1_epi32(255));
    const __m512 y = _mm512_cvtepi32_ps(code);
    return f.offset ? _mm512_sub_ps(y, _mm512_set1_ps((float)f.offset)) : y;
}

/* What 16 rows multiply their levels by, and add: of both halves of a block. */
struct steps {
    __m512 d[2], m[2];
};

INLINE struct steps load_steps(const struct matmul_form f, const char *block, __m512 d, __m512 m)
{
    const struct scales_512 s = load_scales_512(f, block);
    struct steps r = {{d, d}, {m, m}};
    if (f.sub == SUB_NONE) return r;
    for (int h = 0; h < 2; h++) {
        const int i = matmul_has_halves(&f) ? h : 0;
        r.d[h] = _mm512_mul_ps(d, s.s[i]);
        if (matmul_has_min(&f)) r.m[h] = _mm512_mul_ps(m, s.t[i]);
    }
    return r;
}

/* The same value as the type's decoder: products of scales and codes are exact but for MLX codes,
 * where product and sum are rounded one by one. */
INLINE __m512 weight_512(const struct matmul_form f, __m512 level, const struct steps *s, int h)
{
    if (!matmul_has_min(&f)) return _mm512_mul_ps(s->d[h], level);
    if (f.head == HEAD_F32_F32) return _mm512_add_ps(_mm512_mul_ps(s->d[h], level), s->m[h]);
    return f.sub == SUB_NONE ? _mm512_fmadd_ps(s->d[h], level, s->m[h])
                             : _mm512_fmsub_ps(s->d[h], level, s->m[h]);
}

/* Walks n_groups groups of an image, k columns: dot is acc = fma(w, x, acc); else weights go to out
 * (of one group). */
INLINE void walk_form(const struct matmul_form f, const bool dot, const char *const *image,
                      const int n_groups, int64_t k, int64_t mlx_blocks, const float *x, bool cold,
                      __m512 *acc, float *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    const struct levels levels = load_levels(f);
    const char *w[FORM_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++) w[c] = image[c];
    for (int64_t b = 0; b < k / 32; b += blocks) {
        __m512 d[FORM_GROUPS], m[FORM_GROUPS];
        UNROLL for (int c = 0; c < n_groups; c++)
        {
            d[c] = load_head_512(f, w[c], 0);
            m[c] = matmul_has_min(&f) ? load_head_512(f, w[c], 1) : _mm512_setzero_ps();
            w[c] += image_head_bytes(&f);
        }
        for (int64_t i = 0; i < blocks; i++) {
            __m512i v[FORM_GROUPS][8];
            struct steps s[FORM_GROUPS];
            UNROLL for (int c = 0; c < n_groups; c++)
            {
                s[c] = load_steps(f, w[c], d[c], m[c]);
                w[c] += image_block_bytes(&f);
                load_codes_512(f, w[c] - 64 * (size_t)f.bits, v[c]);
                if (cold)
                    for (int at = 0; at < f.bits; at++)
                        _mm_prefetch(w[c] + AHEAD_BYTES + 64 * at, _MM_HINT_T0);
            }
            UNROLL for (int q = 0; q < 8; q++) UNROLL for (int j = 0; j < 4; j++)
                UNROLL for (int c = 0; c < n_groups; c++)
            {
                const __m512 level = level_512(f, &levels, v[c][q], j);
                const __m512 y = weight_512(f, level, &s[c], q / 4);
                if (dot)
                    acc[c] = _mm512_fmadd_ps(y, _mm512_set1_ps(x[4 * q + j]), acc[c]);
                else
                    _mm512_storeu_ps(out + (4 * q + j) * IMAGE_ROWS, y);
            }
            if (dot)
                x += 32;
            else
                out += 32 * IMAGE_ROWS;
        }
    }
}

/* One row of x: from codes to sums in registers. */
INLINE void form_groups(const struct matmul_form f, const struct matmul_tile *t, int g,
                        const int n_groups)
{
    const char *w[FORM_GROUPS];
    __mmask16 mask[FORM_GROUPS];
    __m512 acc[FORM_GROUPS];
    float *const out = t->out[0] + g * IMAGE_ROWS;
    UNROLL for (int c = 0; c < n_groups; c++)
    {
        const int64_t n = t->n - (g + c) * IMAGE_ROWS;
        w[c] = t->w + (size_t)(g + c) * t->group_bytes;
        mask[c] = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
        acc[c] = t->begin ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask[c], out + 16 * c);
    }
    walk_form(f, true, w, n_groups, t->k, t->mlx_blocks, t->x[0], t->cold, acc, NULL);
    UNROLL for (int c = 0; c < n_groups; c++) _mm512_mask_storeu_ps(out + 16 * c, mask[c], acc[c]);
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                          \
    static void unpack_##NAME(const char *w, int64_t k, int64_t mlx_blocks, float *out)           \
    {                                                                                             \
        walk_form((struct matmul_form){bits, blocks, head, sub, offset, levels}, false, &w, 1, k, \
                  mlx_blocks, NULL, false, NULL, out);                                            \
    }                                                                                             \
    static void product_##NAME(const struct matmul_tile *t)                                       \
    {                                                                                             \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                   \
        int g = 0;                                                                                \
        for (; g + FORM_GROUPS <= t->n_groups; g += FORM_GROUPS)                                  \
            form_groups(f, t, g, FORM_GROUPS);                                                    \
        for (; g < t->n_groups; g++) form_groups(f, t, g, 1);                                     \
    }
MATMUL_FORMS(X)
#undef X

INLINE void unpack_plain(const enum qrn_dtype type, const char *w, int64_t k, float *out)
{
    int64_t i = 0;
    for (; i + 2 <= k; i += 2) {
        _mm512_storeu_ps(out + i * IMAGE_ROWS, load_weights(type, w, i, false));
        _mm512_storeu_ps(out + (i + 1) * IMAGE_ROWS, load_weights(type, w, i + 1, true));
    }
    if (i < k) _mm512_storeu_ps(out + i * IMAGE_ROWS, load_weights(type, w, i, false));
}

static void unpack_F16(const char *w, int64_t k, int64_t mlx_blocks, float *out)
{
    (void)mlx_blocks;
    unpack_plain(QRN_F16, w, k, out);
}

static void unpack_BF16(const char *w, int64_t k, int64_t mlx_blocks, float *out)
{
    (void)mlx_blocks;
    unpack_plain(QRN_BF16, w, k, out);
}

#define X(NAME)                                                                                    \
    static void write_##NAME(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k, \
                             float *out)                                                           \
    {                                                                                              \
        grid_write(grid_##NAME, rows, n_rows, k0, k, out);                                         \
    }
GRID_TYPES(X)
#undef X

/* Up to how many rows meet the image itself. */
static const struct {
    void (*product)(const struct matmul_tile *t);
    int64_t direct_rows;
    matmul_unpack_fn unpack;
    matmul_write_fn write;
} by_type[QRN_DTYPE_COUNT] = {[QRN_F32] = {product_f32, INT64_MAX, NULL, NULL},
                              [QRN_F16] = {product_f16, 4 * TILE_ROWS, unpack_F16, NULL},
                              [QRN_BF16] = {product_bf16, 4 * TILE_ROWS, unpack_BF16, NULL},
#define X(NAME, bits, blocks, head, sub, offset, levels) \
    [QRN_##NAME] = {product_##NAME, 1, unpack_##NAME, NULL},
                              MATMUL_FORMS(X)
#undef X
#define X(NAME) [QRN_##NAME] = {NULL, 0, NULL, write_##NAME},
                                  GRID_TYPES(X)
#undef X
};

static struct matmul_unit unit(const struct matmul_job *j)
{
    const enum qrn_dtype t = j->w->dtype;
    return (struct matmul_unit){
        .tile_rows = TILE_ROWS,
        .chunk_groups = j->most_rows > TILE_ROWS ? MANY_GROUPS : TILE_GROUPS,
        .chunk_k = 256,
        .product = by_type[t].product,
        .product_f32 = product_f32,
        .direct_rows = by_type[t].direct_rows,
        .unpack = by_type[t].unpack,
        .write = by_type[t].write,
    };
}

static bool takes(const struct matmul_job *j)
{
    return !j->q8 && !j->bf16;
}

static const char serves[] = "float activations: multiply-adds, k ascending";

MATMUL_KERNEL(matmul, avx512, QRN_CPU_AVX512);
MATMUL_KERNEL(matmul_id, avx512, QRN_CPU_AVX512);
