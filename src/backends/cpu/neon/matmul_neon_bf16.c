/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights and bf16 activations with NEON: 16 rows in four vectors, both
 * widened to floats, in AMX's order (matmul_bf16.h). */
#include "backends/cpu/matmul_bf16.h"
#include "backends/cpu/neon/matmul_codes_neon.h"

enum { PANEL_ROWS = 2, MOST_GROUPS = 2, VECTORS = 4 };

/* Sums of one block, apart for even and odd columns. */
struct sums {
    float32x4_t even[PANEL_ROWS][VECTORS * MOST_GROUPS], odd[PANEL_ROWS][VECTORS * MOST_GROUPS];
};

INLINE float32x4_t even_neon(uint32x4_t pair)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(pair, 16));
}

INLINE float32x4_t odd_neon(uint32x4_t pair)
{
    return vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xffff0000u)));
}

/* Columns 4 i .. 4 i + 3: two pairs. */
INLINE void add_columns(const char *const *w, int i, const float *x, const int n_groups,
                        const int n_rows, struct sums *s)
{
    float32x4_t four[PANEL_ROWS];
    UNROLL for (int r = 0; r < n_rows; r++) four[r] = vld1q_f32(x + BF16_BLOCK * r + 4 * i);
    UNROLL for (int c = 0; c < VECTORS * n_groups; c++)
    {
        const char *at = w[c / VECTORS] + 128 * i + 16 * (c % VECTORS);
        const uint32x4_t first = vld1q_u32((const void *)at),
                         second = vld1q_u32((const void *)(at + 64));
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            s->even[r][c] = vfmaq_laneq_f32(s->even[r][c], even_neon(first), four[r], 0);
            s->odd[r][c] = vfmaq_laneq_f32(s->odd[r][c], odd_neon(first), four[r], 1);
            s->even[r][c] = vfmaq_laneq_f32(s->even[r][c], even_neon(second), four[r], 2);
            s->odd[r][c] = vfmaq_laneq_f32(s->odd[r][c], odd_neon(second), four[r], 3);
        }
    }
}

/* n_groups groups from g on against n_rows rows; the product of the two is at most 2. */
INLINE void product_rows(const struct bf16_tile *t, int g, const int n_groups, const int n_rows)
{
    const int64_t first = g * IMAGE_ROWS;
    const char *w[MOST_GROUPS];
    const float *x = t->x;
    float32x4_t acc[PANEL_ROWS][VECTORS * MOST_GROUPS];
    UNROLL for (int c = 0; c < n_groups; c++) w[c] = t->w + (size_t)(g + c) * t->group_bytes;
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < VECTORS * n_groups; c++)
        acc[r][c] =
            t->begin ? vdupq_n_f32(0.0f) : load_outputs_neon(t->out[r], first + 4 * c, t->n);
    for (int64_t b = 0; b < t->n_blocks; b++, x += BF16_BLOCK * n_rows) {
        struct sums s;
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < VECTORS * n_groups; c++)
            s.even[r][c] = s.odd[r][c] = vdupq_n_f32(0.0f);
        for (int c = 0; c < (t->cold ? n_groups : 0); c++)
            for (int i = 0; i < IMAGE_PAIR_BLOCK; i += 64)
                __builtin_prefetch(w[c] + AHEAD_BYTES + i);
        for (int i = 0; i < BF16_BLOCK / 4; i++) add_columns(w, i, x, n_groups, n_rows, &s);
        UNROLL for (int c = 0; c < n_groups; c++) w[c] += IMAGE_PAIR_BLOCK;
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < VECTORS * n_groups; c++)
            acc[r][c] = vaddq_f32(acc[r][c], vaddq_f32(s.even[r][c], s.odd[r][c]));
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < VECTORS * n_groups; c++)
        store_outputs_neon(t->out[r], first + 4 * c, t->n, acc[r][c]);
}

static void product(const struct bf16_tile *t)
{
    int g = 0;
    if (t->n_rows == 1)
        for (; g + 2 <= t->n_groups; g += 2) product_rows(t, g, 2, 1);
    for (; g < t->n_groups; g++)
        if (t->n_rows == 1)
            product_rows(t, g, 1, 1);
        else
            product_rows(t, g, 1, 2);
}

static const struct bf16_unit unit = {
    .panel_rows = PANEL_ROWS,
    .product_rows = PANEL_ROWS,
    .uncut_rows = PANEL_ROWS,
    .chunk_groups = 4,
    .chunk_blocks = 16,
    .x = BF16_FLOATS,
    .product = product,
};

static const char serves[] = "bf16 weights and activations: multiply-adds in the tiles' order";

MATMUL_BF16_KERNEL(matmul, neon_bf16, unit, QRN_CPU_NEON);
MATMUL_BF16_KERNEL(matmul_id, neon_bf16, unit, QRN_CPU_NEON);
