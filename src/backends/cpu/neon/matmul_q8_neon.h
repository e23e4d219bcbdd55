/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations on Arm: 4 rows in lanes, exact integer sums, then
 * the sums in matmul_drive.h.  An instruction set gives the integer sums before it
 * includes this: dot16(form, sum, v, x) adds to sum the products of v[0] .. v[3] with 16 bytes of x.
 *
 * A tile of 1 or 2 rows walks whole groups, so that memory is read once and in order; of more rows
 * quarters of them, so that the codes of 32 k stay in registers for all rows. */
#ifndef QUERN_MATMUL_Q8_NEON_H
#define QUERN_MATMUL_Q8_NEON_H

#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/neon/matmul_dot_neon.h"

/* Block i of a row of x's 128 k against 4 weight rows; v holds codes, not levels, where by_sum, and
 * whoever calls takes their bias off for SUB_NONE. */
INLINE int32x4_t add_block(const struct matmul_form f, int32x4_t isum, const int8x16_t v[8],
                           const struct subs_neon *w, const struct qrn_q8_act *a, int64_t i,
                           const bool by_sum)
{
    const int8x16_t x0 = vld1q_s8(a->q + 32 * i), x1 = vld1q_s8(a->q + 32 * i + 16);
    const int bias = by_sum ? -bias_of(f) : 0;
    if (f.sub == SUB_NONE) return dot16(f, dot16(f, isum, v, x0), v + 4, x1);
    if (matmul_has_halves(&f)) {
        const int32x4_t lo = dot16(f, vdupq_n_s32(bias * a->sum[2 * i]), v, x0);
        const int32x4_t hi = dot16(f, vdupq_n_s32(bias * a->sum[2 * i + 1]), v + 4, x1);
        return vmlaq_s32(vmlaq_s32(isum, lo, w->s[0]), hi, w->s[1]);
    }
    const int32x4_t first = vdupq_n_s32(bias * run_sum(a, i, 1));
    return vmlaq_s32(isum, dot16(f, dot16(f, first, v, x0), v + 4, x1), w->s[0]);
}

/* n blocks under a head, from block i of x's 128 k on: n_quarters quarters of a group, from first
 * on, against n_rows rows.  Returns where the weights go on. */
INLINE const char *add_run(const struct matmul_form f, const char *w, int first,
                           const int n_quarters, const char *head,
                           const struct qrn_q8_act *const *x, int64_t i, const int64_t n,
                           const int n_rows, bool cold, float32x4_t p[][4])
{
    const bool by_sum = n_rows <= 2 || !levels_fit(f), none = f.sub == SUB_NONE;
    int32x4_t isum[MAX_TILE_ROWS][4], tsum[MAX_TILE_ROWS][4];
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        const int32_t sum = none ? run_sum(x[r], i, n) : 0;
        UNROLL for (int c = 0; c < n_quarters; c++)
        {
            isum[r][c] = vdupq_n_s32(by_sum ? -bias_of(f) * sum : 0);
            tsum[r][c] = vdupq_n_s32(sum);
        }
    }
    for (const int64_t end = i + n; i < end; i++, w += image_block_bytes(&f)) {
        if (cold) prefetch_block(f, w);
        UNROLL for (int c = 0; c < n_quarters; c++)
        {
            int8x16_t v[8];
            const struct subs_neon sub = load_subs_neon(f, w, first + c);
            load_weights(f, w, first + c, by_sum, v);
            UNROLL for (int r = 0; r < n_rows; r++)
            {
                isum[r][c] = add_block(f, isum[r][c], v, &sub, x[r], i, by_sum);
                tsum[r][c] = add_mins(f, tsum[r][c], &sub, x[r]->sum + 2 * i);
            }
        }
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_quarters; c++) p[r][c] =
        add_sums(f, p[r][c], isum[r][c], tsum[r][c], head, first + c);
    return w;
}

/* n_quarters quarters of a group, from first on, against n_rows rows, r0 and on, of the tile. */
INLINE void product_rows(const struct matmul_form f, const struct matmul_tile *t, const char *w,
                         int64_t i_group, int first, const int n_quarters, int r0, const int n_rows)
{
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks, run = blocks < 4 ? blocks : 4;
    const int64_t at = i_group * IMAGE_ROWS + 4 * first, n_blocks = t->k / 32;
    const bool cold = t->cold && r0 == 0 && first == 0;
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    float32x4_t acc[MAX_TILE_ROWS][4], p[MAX_TILE_ROWS][4];
    const char *head = w;
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        x[r] = t->x[r0 + r];
        UNROLL for (int c = 0; c < n_quarters; c++) acc[r][c] =
            t->begin ? vdupq_n_f32(0.0f) : load_outputs_neon(t->out[r0 + r], at + 4 * c, t->n);
    }
    for (int64_t b = 0; b < n_blocks; b += 4) {
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_quarters; c++)
            p[r][c] = vdupq_n_f32(0.0f);
        for (int64_t i = 0; i < 4 && b + i < n_blocks; i += run) {
            if (run == blocks || b % blocks == 0) {
                head = w;
                w += image_head_bytes(&f);
            }
            w = add_run(f, w, first, n_quarters, head, x, i, run, n_rows, cold, p);
        }
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            UNROLL for (int c = 0; c < n_quarters; c++) acc[r][c] =
                vfmaq_n_f32(acc[r][c], p[r][c], x[r]->d);
            x[r]++;
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
