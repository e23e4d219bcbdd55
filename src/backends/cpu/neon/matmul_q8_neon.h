/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations on Arm: 4 rows in lanes, for each 32 k an exact
 * integer sum, then the sums in matmul_drive.h.  An instruction set gives the integer sums before it
 * includes this: dot16(form, sum, v, x) adds to sum the products of v[0] .. v[3] with 16 bytes of x.
 *
 * A tile of 1 or 2 rows walks whole groups, so that memory is read once and in order; of more rows
 * quarters of them, so that the codes of 32 k stay in registers for all rows. */
#ifndef QUERN_MATMUL_Q8_NEON_H
#define QUERN_MATMUL_Q8_NEON_H

#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/neon/matmul_dot_neon.h"

/* One row of x against 4 weight rows, 32 k; v holds codes, not levels, where by_sum. */
INLINE float32x4_t add_block(const struct matmul_form f, float32x4_t acc, const int8x16_t v[8],
                             const struct block_scales *w, const struct qrn_q8_act *a,
                             const bool by_sum)
{
    const int8x16_t x0 = vld1q_s8(a->q), x1 = vld1q_s8(a->q + 16);
    const int bias = by_sum ? -bias_of(f) : 0;
    if (has_halves(f))
        return add_sums(f, acc, dot16(f, vdupq_n_s32(bias * a->sum[0]), v, x0),
                        dot16(f, vdupq_n_s32(bias * a->sum[1]), v + 4, x1), w, a);
    const int32x4_t first = vdupq_n_s32(bias * (a->sum[0] + a->sum[1]));
    const int32x4_t all = dot16(f, dot16(f, first, v, x0), v + 4, x1);
    return add_sums(f, acc, all, all, w, a);
}

/* n_quarters quarters of a group, from first on, against n_rows rows, r0 and on, of the tile. */
INLINE void product_rows(const struct matmul_form f, const struct matmul_tile *t, const char *w,
                         int64_t i_group, int first, const int n_quarters, int r0, const int n_rows)
{
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks;
    const bool cold = t->cold && r0 == 0 && first == 0, by_sum = n_rows <= 2 || !levels_fit(f);
    const int64_t at = i_group * IMAGE_ROWS + 4 * first;
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    float32x4_t acc[MAX_TILE_ROWS][4];
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        x[r] = t->x[r0 + r];
        UNROLL for (int c = 0; c < n_quarters; c++) acc[r][c] =
            t->begin ? vdupq_n_f32(0.0f) : load_outputs_neon(t->out[r0 + r], at + 4 * c, t->n);
    }
    for (int64_t b = 0; b < t->k / 32; b += blocks) {
        float32x4_t d[4], m[4];
        UNROLL for (int c = 0; c < n_quarters; c++)
        {
            d[c] = load_head_neon(f, w, first + c, 0);
            m[c] = matmul_has_min(&f) ? load_head_neon(f, w, first + c, 1) : d[c];
        }
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            if (cold) prefetch_block(f, w);
            UNROLL for (int c = 0; c < n_quarters; c++)
            {
                int8x16_t v[8];
                const struct block_scales s = block_scales(f, w, first + c, d[c], m[c]);
                load_weights(f, w, first + c, by_sum, v);
                UNROLL for (int r = 0; r < n_rows; r++) acc[r][c] =
                    add_block(f, acc[r][c], v, &s, x[r] + b + i, by_sum);
            }
        }
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_quarters; c++)
        store_outputs_neon(t->out[r0 + r], at + 4 * c, t->n, acc[r][c]);
}

/* Rows from and on of a tile, at most 8, 4 or 2 of them at once.  The usual types have tiles of 8, 4, 2
 * rows and 1; the others, to keep the object small, of 4 and 1. */
INLINE void product_by_rows(const struct matmul_form f, const struct matmul_tile *t, int from,
                            const int most)
{
    const bool usual = f.bits == 4 || f.bits == 6 || f.bits == 8;
    for (int g = 0; g < t->n_groups; g++) {
        const char *w = t->w + (size_t)g * t->group_bytes;
        int r = from;
        if (usual && most >= 8)
            for (; r + 8 <= t->n_rows; r += 8)
                for (int c = 0; c < 4; c++) product_rows(f, t, w, g, c, 1, r, 8);
        if (most >= 4)
            for (; r + 4 <= t->n_rows; r += 4)
                for (int c = 0; c < 4; c++) product_rows(f, t, w, g, c, 1, r, 4);
        if (usual)
            for (; r + 2 <= t->n_rows; r += 2) product_rows(f, t, w, g, 0, 4, r, 2);
        for (; r < t->n_rows; r++) product_rows(f, t, w, g, 0, 4, r, 1);
    }
}

#endif
