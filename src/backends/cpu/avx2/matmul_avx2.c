/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of float activations with AVX2: 16 rows in two vectors, acc = fma(w, x, acc)
 * for ascending k.  Integer forms are decoded to floats for a few groups and columns at a time. */
#include "backends/cpu/avx2/matmul_codes_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/unroll.h"

enum { TILE_ROWS = 6, TILE_GROUPS = 4 };

/* Weights of column k, rows 8 half .. 8 half + 7 of a group; of bf16, which lie in pairs, odd says
 * which. */
INLINE __m256 load_weights(const enum qrn_dtype type, const char *w, int64_t k, const bool odd,
                           int half)
{
    if (type == QRN_F32)
        return _mm256_loadu_ps((const float *)(const void *)(w + 64 * k + 32 * half));
    if (type == QRN_F16)
        return _mm256_cvtph_ps(
            _mm_loadu_si128((const __m128i *)(const void *)(w + 32 * k + 16 * half)));
    const void *at = w + 32 * (odd ? k - 1 : k) + 32 * half;
    const __m256i pair = _mm256_loadu_si256((const __m256i *)at);
    return _mm256_castsi256_ps(odd ? _mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000u))
                                   : _mm256_slli_epi32(pair, 16));
}

/* n_groups groups from g on against n_rows rows; the product of the two is at most 6. */
struct sums {
    __m256 acc[TILE_ROWS][2 * TILE_GROUPS];
};

INLINE void add_column(const enum qrn_dtype type, const char *const *w, int64_t k, const bool odd,
                       const float *const *x, const int n_groups, const int n_rows, struct sums *s)
{
    __m256 v[2 * TILE_GROUPS];
    UNROLL for (int c = 0; c < 2 * n_groups; c++) v[c] =
        load_weights(type, w[c / 2], k, odd, c % 2);
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        const __m256 xr = _mm256_set1_ps(x[r][k]);
        UNROLL for (int c = 0; c < 2 * n_groups; c++) s->acc[r][c] =
            _mm256_fmadd_ps(v[c], xr, s->acc[r][c]);
    }
}

INLINE void product_rows(const enum qrn_dtype type, const struct matmul_tile *t, int g,
                         const int n_groups, const int n_rows)
{
    const int64_t step = IMAGE_ROWS * (type == QRN_F32 ? 4 : 2);
    const char *w[TILE_GROUPS];
    const float *x[TILE_ROWS];
    struct sums s;
    __m256i mask[2 * TILE_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++) w[c] = t->w + (size_t)(g + c) * t->group_bytes;
    UNROLL for (int c = 0; c < 2 * n_groups; c++)
    {
        const int64_t n = t->n - g * IMAGE_ROWS - 8 * c;
        mask[c] = first_lanes(n > 0 ? n : 0);
    }
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        x[r] = t->x[r];
        UNROLL for (int c = 0; c < 2 * n_groups; c++) s.acc[r][c] =
            t->begin ? _mm256_setzero_ps()
                     : _mm256_maskload_ps(t->out[r] + g * IMAGE_ROWS + 8 * c, mask[c]);
    }
    const bool asks = matmul_tile_asks(t);
    int64_t k = 0;
    for (; k + 2 <= t->k; k += 2) {
        if (asks) UNROLL for (int c = 0; c < n_groups; c++) matmul_ask(w[c] + k * step, 2 * step);
        add_column(type, w, k, false, x, n_groups, n_rows, &s);
        add_column(type, w, k + 1, true, x, n_groups, n_rows, &s);
    }
    if (k < t->k) add_column(type, w, k, false, x, n_groups, n_rows, &s);
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < 2 * n_groups; c++)
        _mm256_maskstore_ps(t->out[r] + g * IMAGE_ROWS + 8 * c, mask[c], s.acc[r][c]);
}

INLINE void product(const enum qrn_dtype type, const struct matmul_tile *t)
{
    int g = 0;
    if (t->n_rows == 1)
        for (; g + 4 <= t->n_groups; g += 4) product_rows(type, t, g, 4, 1);
    for (; g < t->n_groups; g++) switch (t->n_rows) {
        case 1:
            product_rows(type, t, g, 1, 1);
            break;
        case 2:
            product_rows(type, t, g, 1, 2);
            break;
        case 3:
            product_rows(type, t, g, 1, 3);
            break;
        case 4:
            product_rows(type, t, g, 1, 4);
            break;
        case 5:
            product_rows(type, t, g, 1, 5);
            break;
        default:
            product_rows(type, t, g, 1, 6);
        }
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

/* Code j of each of 8 rows from bytes 4 * row + j, as floats. */
INLINE __m256 level_256(const struct matmul_form f, __m256i v, int j)
{
    if (f.levels != LEVELS_LINEAR)
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * j), 24));
    const __m256i code = _mm256_and_si256(_mm256_srli_epi32(v, 8 * j), _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(f.offset ? _mm256_sub_epi32(code, _mm256_set1_epi32(f.offset))
                                       : code);
}

/* The same values as the type's decoder: products of scales and codes are exact but for MLX codes,
 * where product and sum are rounded one by one. */
INLINE void unpack_half(const struct matmul_form f, const char *w, int64_t k, int64_t mlx_blocks,
                        int half, float *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    const __m256i table = levels_256(f, 0);
    for (int64_t b = 0; b < k / 32; b += blocks) {
        const __m256 head_d = load_head_256(f, w, half, 0);
        const __m256 head_m =
            matmul_has_min(&f) ? load_head_256(f, w, half, 1) : _mm256_setzero_ps();
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            __m256i v[8];
            const struct scales_256 s = load_scales_256(f, w, half);
            load_codes_256(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, half, v);
            for (int q = 0; q < 8; q++) {
                const int h = matmul_has_halves(&f) ? q / 4 : 0;
                const __m256 d = f.sub == SUB_NONE ? head_d : _mm256_mul_ps(head_d, s.s[h]);
                const __m256 m = f.sub == SUB_NONE ? head_m : _mm256_mul_ps(head_m, s.t[h]);
                if (f.levels != LEVELS_LINEAR) v[q] = _mm256_shuffle_epi8(table, v[q]);
                for (int j = 0; j < 4; j++, out += IMAGE_ROWS) {
                    __m256 y = _mm256_mul_ps(d, level_256(f, v[q], j));
                    if (matmul_has_min(&f))
                        y = f.sub == SUB_NONE ? _mm256_add_ps(y, m) : _mm256_sub_ps(y, m);
                    _mm256_storeu_ps(out, y);
                }
            }
        }
    }
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                     \
    static void unpack_##NAME(const char *w, int64_t k, int64_t mlx_blocks, float *out)      \
    {                                                                                        \
        for (int half = 0; half < 2; half++)                                                 \
            unpack_half((struct matmul_form){bits, blocks, head, sub, offset, levels}, w, k, \
                        mlx_blocks, half, out + 8 * half);                                   \
    }
MATMUL_FORMS(X)
#undef X

INLINE void unpack_plain(const enum qrn_dtype type, const char *w, int64_t k, float *out)
{
    for (int half = 0; half < 2; half++, out += 8) {
        int64_t i = 0;
        for (; i + 2 <= k; i += 2) {
            _mm256_storeu_ps(out + i * IMAGE_ROWS, load_weights(type, w, i, false, half));
            _mm256_storeu_ps(out + (i + 1) * IMAGE_ROWS, load_weights(type, w, i + 1, true, half));
        }
        if (i < k) _mm256_storeu_ps(out + i * IMAGE_ROWS, load_weights(type, w, i, false, half));
    }
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

static const matmul_unpack_fn unpacks[QRN_DTYPE_COUNT] = {[QRN_F16] = unpack_F16,
                                                          [QRN_BF16] = unpack_BF16,
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
        .direct_rows = t == QRN_F32 ? INT64_MAX : 4 * TILE_ROWS,
        .unpack = unpacks[t],
    };
}

static bool takes(const struct matmul_job *j)
{
    return !j->q8 && !j->bf16;
}

static const char serves[] = "float activations: multiply-adds, k ascending";

MATMUL_KERNEL(matmul, avx2, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
MATMUL_KERNEL(matmul_id, avx2, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
