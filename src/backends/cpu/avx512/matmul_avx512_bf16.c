/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights and bf16 activations with AVX-512: 16 rows in lanes, both
 * widened to floats, in AMX's order (matmul_bf16.h).
 *
 * Shifts and masks have the ports of multiply-adds where vectors are of 512 bits.  So of more than FEW_TOKENS rows
 * weights of two groups and WIDE_BLOCKS blocks are widened once, and stay in the first cache while panels of rows pass. */
#include "backends/cpu/avx512/matmul_avx512_bf16.h"

#include "backends/cpu/ahead.h"
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/unroll.h"

#define INLINE static inline __attribute__((always_inline))

enum { PANEL_ROWS = 6, MOST_GROUPS = 4, TILE_GROUPS = 2, WIDE_BLOCKS = 8, FEW_TOKENS = 128 };

/* Of pairs of bf16 the first ones, and the second ones. */
INLINE __m512 even_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
INLINE __m512 odd_of(__m512i pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}

/* Sums of one block, apart for even and odd columns. */
struct sums {
    __m512 even[PANEL_ROWS][MOST_GROUPS], odd[PANEL_ROWS][MOST_GROUPS];
};

INLINE void begin_block(const int n_groups, const int n_rows, struct sums *s)
{
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_groups; c++)
        s->even[r][c] = s->odd[r][c] = _mm512_setzero_ps();
}

/* Columns 2 i and 2 i + 1 of it. */
INLINE void add_columns(const __m512 *even, const __m512 *odd, const float *x, int i,
                        const int n_groups, const int n_rows, struct sums *s)
{
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

INLINE void add_block(const char *const *w, const float *x, const int n_groups, const int n_rows,
                      struct sums *s)
{
    begin_block(n_groups, n_rows, s);
    for (int i = 0; i < BF16_BLOCK / 2; i++) {
        __m512 even[MOST_GROUPS], odd[MOST_GROUPS];
        UNROLL for (int c = 0; c < n_groups; c++)
        {
            const __m512i pair = _mm512_loadu_si512(w[c] + 64 * i);
            even[c] = even_of(pair);
            odd[c] = odd_of(pair);
        }
        add_columns(even, odd, x, i, n_groups, n_rows, s);
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
            for (int c = 0; c < n_groups; c++) ask_ahead_by(AHEAD_WEIGHTS, w[c], IMAGE_PAIR_BLOCK);
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

/* --- many rows --- */

struct wide {
    float even[TILE_GROUPS][WIDE_BLOCKS * BF16_BLOCK / 2][IMAGE_ROWS],
        odd[TILE_GROUPS][WIDE_BLOCKS * BF16_BLOCK / 2][IMAGE_ROWS];
};

static void widen(const struct bf16_tile *t, int g, int c, struct wide *out)
{
    const char *w = t->w + (size_t)(g + c) * t->group_bytes;
    for (int64_t i = 0; i < t->n_blocks * BF16_BLOCK / 2; i++, w += 64) {
        const __m512i pair = _mm512_loadu_si512(w);
        _mm512_store_ps(out->even[c][i], even_of(pair));
        _mm512_store_ps(out->odd[c][i], odd_of(pair));
    }
}

/* Sums of block b of n_groups of w's groups from c on. */
INLINE void add_wide(const struct wide *w, int64_t b, int c, const float *x, const int n_groups,
                     const int n_rows, struct sums *s)
{
    begin_block(n_groups, n_rows, s);
    for (int i = 0; i < BF16_BLOCK / 2; i++) {
        const int64_t at = b * (BF16_BLOCK / 2) + i;
        __m512 even[TILE_GROUPS], odd[TILE_GROUPS];
        UNROLL for (int k = 0; k < n_groups; k++)
        {
            even[k] = _mm512_load_ps(w->even[c + k][at]);
            odd[k] = _mm512_load_ps(w->odd[c + k][at]);
        }
        add_columns(even, odd, x, i, n_groups, n_rows, s);
    }
}

/* Rows of a panel from r0 on, at x, against groups from g + c on, which are w's from c on; next: the panel that comes
 * next, which is asked for meanwhile. */
struct wide_panel {
    const float *x, *next;
    int g, c, r0;
};

INLINE void wide_rows(const struct bf16_tile *t, const struct wide *w, const struct wide_panel p,
                      const int n_groups, const int n_rows)
{
    const int first = p.g + p.c;
    const float *x = p.x, *next = p.next;
    float *const *out = t->out + p.r0;
    __m512 acc[PANEL_ROWS][TILE_GROUPS];
    __mmask16 mask[TILE_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++)
    {
        mask[c] = first_lanes(t->n - (first + c) * IMAGE_ROWS);
        UNROLL for (int r = 0; r < n_rows; r++) acc[r][c] =
            t->begin ? _mm512_setzero_ps()
                     : _mm512_maskz_loadu_ps(mask[c], out[r] + (first + c) * IMAGE_ROWS);
    }
    for (int64_t b = 0; b < t->n_blocks; b++, x += BF16_BLOCK * n_rows) {
        struct sums s;
        for (int i = 0; i < BF16_BLOCK * n_rows / 16; i++, next += 16)
            _mm_prefetch((const char *)next, _MM_HINT_T0);
        add_wide(w, b, p.c, x, n_groups, n_rows, &s);
        UNROLL for (int c = 0; c < n_groups; c++) UNROLL for (int r = 0; r < n_rows; r++)
            acc[r][c] = _mm512_add_ps(acc[r][c], _mm512_add_ps(s.even[r][c], s.odd[r][c]));
    }
    UNROLL for (int c = 0; c < n_groups; c++) UNROLL for (int r = 0; r < n_rows; r++)
        _mm512_mask_storeu_ps(out[r] + (first + c) * IMAGE_ROWS, mask[c], acc[r][c]);
}

#define REST(n)                                                         \
    case n:                                                             \
        for (p.c = 0; p.c < n_groups; p.c++) wide_rows(t, &w, p, 1, n); \
        break

/* Groups g and g + 1, if it is there. */
static void wide_groups(const struct bf16_tile *t, int g)
{
    _Alignas(64) struct wide w;
    const int n_groups = t->n_groups - g < TILE_GROUPS ? t->n_groups - g : TILE_GROUPS;
    const char *x = t->x;
    struct wide_panel p = {.g = g};
    for (int c = 0; c < n_groups; c++) widen(t, g, c, &w);
    for (; p.r0 + PANEL_ROWS <= t->n_rows; p.r0 += PANEL_ROWS, x += t->next_panel) {
        p.x = (const void *)x;
        p.next = p.r0 + 2 * PANEL_ROWS <= t->n_rows ? (const void *)(x + t->next_panel) : t->x;
        if (n_groups == TILE_GROUPS)
            wide_rows(t, &w, p, TILE_GROUPS, PANEL_ROWS);
        else
            wide_rows(t, &w, p, 1, PANEL_ROWS);
    }
    if (p.r0) x -= t->next_short * (size_t)(PANEL_ROWS - (t->n_rows - p.r0));
    p.x = (const void *)x;
    p.next = t->x;
    switch (t->n_rows - p.r0) {
        REST(1);
        REST(2);
        REST(3);
        REST(4);
        REST(5);
    }
}

static void wide_product(const struct bf16_tile *t)
{
    for (int g = 0; g < t->n_groups; g += TILE_GROUPS) wide_groups(t, g);
}

static const struct bf16_unit wide_unit = {
    .panel_rows = PANEL_ROWS,
    .product_rows = BF16_MOST_ROWS / PANEL_ROWS * PANEL_ROWS,
    .chunk_groups = 16,
    .chunk_blocks = WIDE_BLOCKS,
    .sums_rows = 1,
    .x = BF16_FLOATS,
    .product = wide_product,
    .few = &qrn_bf16_unit_avx512,
    .few_tokens = FEW_TOKENS,
};

static const char serves[] = "bf16 weights and activations: multiply-adds in the tiles' order";

MATMUL_BF16_KERNEL(matmul, avx512_bf16, wide_unit, QRN_CPU_AVX512);
MATMUL_BF16_KERNEL(matmul_id, avx512_bf16, wide_unit, QRN_CPU_AVX512);
