/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with smmla: two weight rows times two rows of x, 8 k,
 * twice the work of an sdot.  x is put in pairs of rows once for all groups of a tile.  Fewer than
 * four rows go by sdot, to the same sums: putting weights in pairs would cost more than it saves. */
#include "backends/cpu/neon/matmul_dot_neon.h"

INLINE int32x4_t dot16(const struct matmul_form f, int32x4_t sum, const int8x16_t *v, int8x16_t x)
{
    (void)f;
    sum = vdotq_laneq_s32(sum, v[0], x, 0);
    sum = vdotq_laneq_s32(sum, v[1], x, 1);
    sum = vdotq_laneq_s32(sum, v[2], x, 2);
    return vdotq_laneq_s32(sum, v[3], x, 3);
}

#include "backends/cpu/neon/matmul_q8_neon.h"

enum { PIECE_BLOCKS = 32, MAX_PAIRS = MAX_TILE_ROWS / 2 };

/* 32 k of two rows of x: q[i] holds k = 8 i .. 8 i + 7 of the one, then of the other. */
struct row_pair {
    int8x16_t q[4];
};

/* What a tile does with a run of columns, n_blocks from block b0 on. */
struct piece {
    const struct matmul_tile *t;
    int64_t b0, n_blocks;
    const char *w; /* image of a group, at b0 */
    int64_t i_group;
    struct row_pair x[MAX_PAIRS][PIECE_BLOCKS];
};

static void pair_rows(struct piece *p)
{
    for (int r = 0; r + 2 <= p->t->n_rows; r += 2)
        for (int64_t b = 0; b < p->n_blocks; b++) {
            const struct qrn_q8_act *x0 = p->t->x[r], *x1 = p->t->x[r + 1];
            for (int h = 0; h < 2; h++) {
                const int64x2_t q0 = vreinterpretq_s64_s8(vld1q_s8(x0[p->b0 + b].q + 16 * h));
                const int64x2_t q1 = vreinterpretq_s64_s8(vld1q_s8(x1[p->b0 + b].q + 16 * h));
                p->x[r / 2][b].q[2 * h] = vreinterpretq_s8_s64(vzip1q_s64(q0, q1));
                p->x[r / 2][b].q[2 * h + 1] = vreinterpretq_s8_s64(vzip2q_s64(q0, q1));
            }
        }
}

/* Four weight rows as operands: v[2 i] rows 0 and 1, v[2 i + 1] rows 2 and 3, k = 8 i .. 8 i + 7. */
INLINE void pair_weights(int8x16_t v[8])
{
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        const int32x4_t a = vreinterpretq_s32_s8(v[i]), b = vreinterpretq_s32_s8(v[i + 1]);
        v[i] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        v[i + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
}

/* Integer sums of 4 weight rows with two rows of x. */
struct sums {
    int32x4_t x0, x1;
};

/* Over 16 k, or over 32; bias: what each row of x adds. */
INLINE struct sums dot_pair(const int8x16_t *v, const int8x16_t *x, const int n, int32_t bias0,
                            int32_t bias1)
{
    const int32x4_t bias = vzip1q_s32(vdupq_n_s32(bias0), vdupq_n_s32(bias1));
    int32x4_t low = bias, high = bias;
    UNROLL for (int i = 0; i < n; i++)
    {
        low = vmmlaq_s32(low, v[2 * i], x[i]);
        high = vmmlaq_s32(high, v[2 * i + 1], x[i]);
    }
    return (struct sums){vuzp1q_s32(low, high), vuzp2q_s32(low, high)};
}

/* Two rows of x against 4 weight rows, 32 k; v holds codes, not levels, where by_sum. */
INLINE void add_pair(const struct matmul_form f, float32x4_t *acc0, float32x4_t *acc1,
                     const int8x16_t v[8], const struct row_pair *x, const struct block_scales *w,
                     const struct qrn_q8_act *a0, const struct qrn_q8_act *a1, const bool by_sum)
{
    const int bias = by_sum ? -bias_of(f) : 0;
    struct sums lo, hi;
    if (has_halves(f)) {
        lo = dot_pair(v, x->q, 2, bias * a0->sum[0], bias * a1->sum[0]);
        hi = dot_pair(v + 4, x->q + 2, 2, bias * a0->sum[1], bias * a1->sum[1]);
    } else {
        lo = hi = dot_pair(v, x->q, 4, bias * (a0->sum[0] + a0->sum[1]),
                           bias * (a1->sum[0] + a1->sum[1]));
    }
    *acc0 = add_sums(f, *acc0, lo.x0, hi.x0, w, a0);
    *acc1 = add_sums(f, *acc1, lo.x1, hi.x1, w, a1);
}

/* A quarter of a group against n_pairs pairs of rows, p0 and on. */
INLINE void product_pairs(const struct matmul_form f, const struct piece *p, int quarter, int p0,
                          const int n_pairs)
{
    const struct matmul_tile *t = p->t;
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks;
    const int64_t at = p->i_group * IMAGE_ROWS + 4 * quarter;
    const bool cold = t->cold && p0 == 0 && quarter == 0, begin = t->begin && p->b0 == 0;
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    float32x4_t acc[MAX_TILE_ROWS];
    const char *w = p->w;
    UNROLL for (int r = 0; r < 2 * n_pairs; r++)
    {
        x[r] = (const struct qrn_q8_act *)t->x[2 * p0 + r] + p->b0;
        acc[r] = begin ? vdupq_n_f32(0.0f) : load_outputs_neon(t->out[2 * p0 + r], at, t->n);
    }
    for (int64_t b = 0; b < p->n_blocks; b += blocks) {
        const float32x4_t d = load_head_neon(f, w, quarter, 0);
        const float32x4_t m = matmul_has_min(&f) ? load_head_neon(f, w, quarter, 1) : d;
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            int8x16_t v[8];
            const struct block_scales s = block_scales(f, w, quarter, d, m);
            if (cold) prefetch_block(f, w);
            load_weights(f, w, quarter, !levels_fit(f), v);
            pair_weights(v);
            UNROLL for (int n = 0; n < n_pairs; n++)
                add_pair(f, &acc[2 * n], &acc[2 * n + 1], v, &p->x[p0 + n][b + i], &s,
                         x[2 * n] + b + i, x[2 * n + 1] + b + i, !levels_fit(f));
        }
    }
    UNROLL for (int r = 0; r < 2 * n_pairs; r++)
        store_outputs_neon(t->out[2 * p0 + r], at, t->n, acc[r]);
}

/* Rows in fours: the usual types have tiles of 4 pairs and 2, the others of 2.  Returns how many rows
 * are done. */
INLINE int product_by_pairs(const struct matmul_form f, const struct matmul_tile *t)
{
    const bool usual = f.bits == 4 || f.bits == 6 || f.bits == 8;
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks;
    const size_t head = image_head_bytes(&f) + (size_t)blocks * image_block_bytes(&f);
    const int n_pairs = t->n_rows / 4 * 2;
    struct piece p;
    p.t = t;
    for (p.b0 = 0; p.b0 < t->k / 32 && n_pairs; p.b0 += PIECE_BLOCKS) {
        p.n_blocks = t->k / 32 - p.b0 < PIECE_BLOCKS ? t->k / 32 - p.b0 : PIECE_BLOCKS;
        pair_rows(&p);
        for (int g = 0; g < t->n_groups; g++) {
            int n = 0;
            p.i_group = g;
            p.w = t->w + (size_t)g * t->group_bytes + (size_t)(p.b0 / blocks) * head;
            if (usual)
                for (; n + 4 <= n_pairs; n += 4)
                    for (int c = 0; c < 4; c++) product_pairs(f, &p, c, n, 4);
            for (; n + 2 <= n_pairs; n += 2)
                for (int c = 0; c < 4; c++) product_pairs(f, &p, c, n, 2);
        }
    }
    return 2 * n_pairs;
}

INLINE void product(const struct matmul_form f, const struct matmul_tile *t)
{
    product_by_rows(f, t, product_by_pairs(f, t), 2);
}

#include "backends/cpu/neon/matmul_q8_neon.inc"

static const char serves[] = "rounded activations: smmla takes two rows at a time; exact sums";

MATMUL_KERNEL(matmul, neoni8mm, QRN_CPU_NEON | QRN_CPU_DOTPROD | QRN_CPU_I8MM);
MATMUL_KERNEL(matmul_id, neoni8mm, QRN_CPU_NEON | QRN_CPU_DOTPROD | QRN_CPU_I8MM);
