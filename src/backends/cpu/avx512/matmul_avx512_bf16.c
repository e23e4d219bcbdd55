/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights and bf16 activations with AVX-512: 16 rows in lanes, both
 * widened to floats, in AMX's order (matmul_bf16.h). */
#include "backends/cpu/avx512/matmul_avx512_bf16.h"

#include "backends/cpu/ahead.h"
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/unroll.h"

#define INLINE static inline __attribute__((always_inline))

enum { PANEL_ROWS = 6, MOST_GROUPS = 4 };

/* Sums of one block, apart for even and odd columns. */
struct sums {
    __m512 even[PANEL_ROWS][MOST_GROUPS], odd[PANEL_ROWS][MOST_GROUPS];
};

INLINE void add_block(const char *const *w, const float *x, const int n_groups, const int n_rows,
                      struct sums *s)
{
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_groups; c++)
        s->even[r][c] = s->odd[r][c] = _mm512_setzero_ps();
    for (int i = 0; i < BF16_BLOCK / 2; i++) {
        __m512 even[MOST_GROUPS], odd[MOST_GROUPS];
        UNROLL for (int c = 0; c < n_groups; c++)
        {
            const __m512i pair = _mm512_loadu_si512(w[c] + 64 * i);
            even[c] = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
            odd[c] =
                _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u)));
        }
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            const __m512 x0 = _mm512_set1_ps(x[BF16_BLOCK * r + 2 * i]);
            const __m512 x1 = _mm512_set1_ps(x[BF16_BLOCK * r + 2 * i + 1]);
            UNROLL for (int c = 0; c < n_groups; c++)
            {
                s->even[r][c] = _mm512_fmadd_ps(even[c], x0, s->even[r][c]);
                s->odd[r][c] = _mm512_fmadd_ps(odd[c], x1, s->odd[r][c]);
            }
        }
    }
}

/* n_groups groups from g on against n_rows rows. */
INLINE void product_rows(const struct bf16_tile *t, int g, const int n_groups, const int n_rows)
{
    const char *w[MOST_GROUPS];
    const float *x = t->x;
    __m512 acc[PANEL_ROWS][MOST_GROUPS];
    __mmask16 mask[MOST_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++)
    {
        w[c] = t->w + (size_t)(g + c) * t->group_bytes;
        mask[c] = first_lanes(t->n - (g + c) * IMAGE_ROWS);
        UNROLL for (int r = 0; r < n_rows; r++) acc[r][c] =
            t->begin ? _mm512_setzero_ps()
                     : _mm512_maskz_loadu_ps(mask[c], t->out[r] + (g + c) * IMAGE_ROWS);
    }
    for (int64_t b = 0; b < t->n_blocks; b++, x += BF16_BLOCK * n_rows) {
        struct sums s;
        if (t->cold)
            for (int c = 0; c < n_groups; c++) ask_ahead(w[c], IMAGE_PAIR_BLOCK);
        add_block(w, x, n_groups, n_rows, &s);
        UNROLL for (int c = 0; c < n_groups; c++)
        {
            w[c] += IMAGE_PAIR_BLOCK;
            UNROLL for (int r = 0; r < n_rows; r++) acc[r][c] =
                _mm512_add_ps(acc[r][c], _mm512_add_ps(s.even[r][c], s.odd[r][c]));
        }
    }
    UNROLL for (int c = 0; c < n_groups; c++) UNROLL for (int r = 0; r < n_rows; r++)
        _mm512_mask_storeu_ps(t->out[r] + (g + c) * IMAGE_ROWS, mask[c], acc[r][c]);
}

/* At most 12 rows times groups: two sums each, beside weights and x, fill the registers.  One or two rows are
 * bound by memory: group by group, as weights lie there, one thread reads twice as fast. */
#define ROWS(n, groups)                                                                   \
    case n:                                                                               \
        for (; g + (groups) <= t->n_groups; g += (groups)) product_rows(t, g, groups, n); \
        for (; g < t->n_groups; g++) product_rows(t, g, 1, n);                            \
        break

static void product(const struct bf16_tile *t)
{
    int g = 0;
    switch (t->n_rows) {
        ROWS(1, 1);
        ROWS(2, 1);
        ROWS(3, 4);
        ROWS(4, 2);
        ROWS(5, 2);
    default:
        for (; g + 2 <= t->n_groups; g += 2) product_rows(t, g, 2, 6);
        for (; g < t->n_groups; g++) product_rows(t, g, 1, 6);
    }
}

const struct bf16_unit qrn_bf16_unit_avx512 = {
    .panel_rows = PANEL_ROWS,
    .product_rows = PANEL_ROWS,
    .uncut_rows = PANEL_ROWS,
    .chunk_groups = 32,
    .chunk_blocks = 16,
    .x = BF16_FLOATS,
    .product = product,
};

static const char serves[] = "bf16 weights and activations: multiply-adds in the tiles' order";

MATMUL_BF16_KERNEL(matmul, avx512_bf16, qrn_bf16_unit_avx512, QRN_CPU_AVX512);
MATMUL_BF16_KERNEL(matmul_id, avx512_bf16, qrn_bf16_unit_avx512, QRN_CPU_AVX512);
