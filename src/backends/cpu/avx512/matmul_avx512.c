/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of float activations with AVX-512: 16 rows in lanes, acc = fma(w, x, acc)
 * for ascending k.  Integer forms are decoded to floats for a few groups and columns at a time. */
#include "backends/cpu/avx512/matmul_grid_avx512.h"
#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

/* Many rows are read again for each chunk of groups; for few, a chunk stays in the first cache. */
enum { TILE_ROWS = 6, TILE_GROUPS = 4, FORM_GROUPS = 4, FORM_ROWS = 2, MANY_GROUPS = 32 };

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

/* Rows by twos with two groups, a last one with more.  A processor that is left to ask for weights by itself keeps up with
 * fewer streams. */
INLINE void form_product(const struct matmul_form f, const struct matmul_tile *t)
{
    int r = 0, g = 0;
    for (; r + FORM_ROWS <= t->n_rows; r += FORM_ROWS) {
        for (g = 0; g + 2 <= t->n_groups; g += 2) form_groups(f, t, r, g, 2, FORM_ROWS);
        for (; g < t->n_groups; g++) form_groups(f, t, r, g, 1, FORM_ROWS);
    }
    if (r == t->n_rows) return;
    for (g = 0; t->ahead.near && g + FORM_GROUPS <= t->n_groups; g += FORM_GROUPS)
        form_groups(f, t, r, g, FORM_GROUPS, 1);
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

#define X(NAME, bits, blocks, head, sub, offset, levels)                                          \
    static void unpack_##NAME(const char *w, int64_t k, int64_t mlx_blocks, float *out)           \
    {                                                                                             \
        form_unpack((struct matmul_form){bits, blocks, head, sub, offset, levels}, w, k,          \
                    mlx_blocks, out);                                                             \
    }                                                                                             \
    static void product_##NAME(const struct matmul_tile *t)                                       \
    {                                                                                             \
        form_product((struct matmul_form){bits, blocks, head, sub, offset, levels}, t);           \
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
    [QRN_##NAME] = {product_##NAME, 2 * FORM_ROWS, unpack_##NAME, NULL},
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
