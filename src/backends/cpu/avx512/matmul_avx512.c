/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of float activations with AVX-512: 16 rows in lanes, acc = fma(w, x, acc)
 * for ascending k.  Few rows of x meet the codes of integer forms in registers; for more, these are decoded to floats for
 * a few groups and columns at a time. */
#include "backends/cpu/avx512/matmul_forms_avx512.h"
#include "backends/cpu/avx512/matmul_grid_avx512.h"

/* Many rows are read again for each chunk of groups; for few, a chunk stays in the first cache. */
enum { TILE_ROWS = 6, TILE_GROUPS = 4, MANY_GROUPS = 32 };

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
    const bool asks = matmul_tile_asks(t);
    int64_t k = 0;
    for (; k + 2 <= t->k; k += 2) {
        if (asks)
            UNROLL for (int c = 0; c < n_groups; c++)
                matmul_ask(w[c] + k * column_bytes(type), 2 * column_bytes(type));
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
