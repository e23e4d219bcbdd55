/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights and bf16 activations with AVX2: 16 rows in two vectors, both
 * widened to floats, in AMX's order (matmul_bf16.h). */
#include <immintrin.h>
#include "backends/cpu/ahead.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_bf16.h"
#include "backends/cpu/unroll.h"

#define INLINE static inline __attribute__((always_inline))

enum { PANEL_ROWS = 3 };

/* Sums of one block, apart for even and odd columns. */
struct sums {
    __m256 even[PANEL_ROWS][2], odd[PANEL_ROWS][2];
};

INLINE __m256i load_pairs(const char *w, int c, int i)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(w + 64 * i + 32 * c));
}

INLINE void add_block(const char *w, const float *x, const int n_rows, struct sums *s)
{
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < 2; c++) s->even[r][c] =
        s->odd[r][c] = _mm256_setzero_ps();
    for (int i = 0; i < BF16_BLOCK / 2; i++) {
        __m256 v[2];
        UNROLL for (int c = 0; c < 2; c++) v[c] =
            _mm256_castsi256_ps(_mm256_slli_epi32(load_pairs(w, c, i), 16));
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            const __m256 xr = _mm256_set1_ps(x[BF16_BLOCK * r + 2 * i]);
            UNROLL for (int c = 0; c < 2; c++) s->even[r][c] =
                _mm256_fmadd_ps(v[c], xr, s->even[r][c]);
        }
        UNROLL for (int c = 0; c < 2; c++) v[c] = _mm256_castsi256_ps(
            _mm256_and_si256(load_pairs(w, c, i), _mm256_set1_epi32((int)0xffff0000u)));
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            const __m256 xr = _mm256_set1_ps(x[BF16_BLOCK * r + 2 * i + 1]);
            UNROLL for (int c = 0; c < 2; c++) s->odd[r][c] =
                _mm256_fmadd_ps(v[c], xr, s->odd[r][c]);
        }
    }
}

/* Group g against n_rows rows. */
INLINE void product_rows(const struct bf16_tile *t, int g, const int n_rows)
{
    const char *w = t->w + (size_t)g * t->group_bytes;
    const float *x = t->x;
    __m256 acc[PANEL_ROWS][2];
    __m256i mask[2];
    UNROLL for (int c = 0; c < 2; c++)
    {
        const int64_t n = t->n - g * IMAGE_ROWS - 8 * c;
        mask[c] = first_lanes(n > 0 ? n : 0);
        UNROLL for (int r = 0; r < n_rows; r++) acc[r][c] =
            t->begin ? _mm256_setzero_ps()
                     : _mm256_maskload_ps(t->out[r] + g * IMAGE_ROWS + 8 * c, mask[c]);
    }
    for (int64_t b = 0; b < t->n_blocks; b++, x += BF16_BLOCK * n_rows, w += IMAGE_PAIR_BLOCK) {
        struct sums s;
        if (t->cold) ask_ahead(w, IMAGE_PAIR_BLOCK);
        add_block(w, x, n_rows, &s);
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < 2; c++) acc[r][c] =
            _mm256_add_ps(acc[r][c], _mm256_add_ps(s.even[r][c], s.odd[r][c]));
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < 2; c++)
        _mm256_maskstore_ps(t->out[r] + g * IMAGE_ROWS + 8 * c, mask[c], acc[r][c]);
}

/* Group by group, as weights lie in memory: with several side by side one thread read at half the rate. */
static void product(const struct bf16_tile *t)
{
    for (int g = 0; g < t->n_groups; g++) switch (t->n_rows) {
        case 1:
            product_rows(t, g, 1);
            break;
        case 2:
            product_rows(t, g, 2);
            break;
        default:
            product_rows(t, g, 3);
        }
}

static const struct bf16_unit unit = {
    .panel_rows = PANEL_ROWS,
    .product_rows = PANEL_ROWS,
    .uncut_rows = PANEL_ROWS,
    .chunk_groups = 6,
    .chunk_blocks = 16,
    .x = BF16_FLOATS,
    .product = product,
};

static const char serves[] = "bf16 weights and activations: multiply-adds in the tiles' order";

MATMUL_BF16_KERNEL(matmul, avx2_bf16, unit, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
MATMUL_BF16_KERNEL(matmul_id, avx2_bf16, unit, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
