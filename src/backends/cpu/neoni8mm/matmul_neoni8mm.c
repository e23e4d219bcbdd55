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

/* Pieces are cut between whole blocks of x and under no head. */
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
            const int64_t at = (p->b0 + b) / 4, from = b % 4 * 32;
            for (int h = 0; h < 2; h++) {
                const int64x2_t q0 = vreinterpretq_s64_s8(vld1q_s8(x0[at].q + from + 16 * h));
                const int64x2_t q1 = vreinterpretq_s64_s8(vld1q_s8(x1[at].q + from + 16 * h));
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

/* Integer sums of 4 weight rows with two rows of x, in turns: weight rows 0 and 1, 2 and 3. */
struct sums {
    int32x4_t low, high;
};

/* Over 8 n k. */
INLINE struct sums dot_pair(struct sums s, const int8x16_t *v, const int8x16_t *x, const int n)
{
    UNROLL for (int i = 0; i < n; i++)
    {
        s.low = vmmlaq_s32(s.low, v[2 * i], x[i]);
        s.high = vmmlaq_s32(s.high, v[2 * i + 1], x[i]);
    }
    return s;
}

/* Two rows of x against 4 weight rows, 32 k.  Where v holds codes, not levels (only for SUB_NONE),
 * whoever calls takes their bias off. */
INLINE struct sums add_pair(const struct matmul_form f, struct sums isum, const int8x16_t v[8],
                            const struct row_pair *x, const struct subs_neon *w)
{
    if (f.sub == SUB_NONE) return dot_pair(isum, v, x->q, 4);
    const int n_parts = matmul_has_halves(&f) ? 2 : 1;
    UNROLL for (int h = 0; h < n_parts; h++)
    {
        const struct sums zero = {vdupq_n_s32(0), vdupq_n_s32(0)};
        const struct sums part = dot_pair(zero, v + 4 * h, x->q + 2 * h, 4 / n_parts);
        isum.low = vmlaq_s32(isum.low, part.low, vzip1q_s32(w->s[h], w->s[h]));
        isum.high = vmlaq_s32(isum.high, part.high, vzip2q_s32(w->s[h], w->s[h]));
    }
    return isum;
}

/* n blocks under a head, from block i of x's 128 k and b of the piece on: a quarter of a group
 * against n_pairs pairs of rows x, which are at pairs.  Returns where the weights go on. */
INLINE const char *add_run_pairs(const struct matmul_form f, const char *w, int quarter,
                                 const char *head, const struct qrn_q8_act *const *x,
                                 const struct row_pair (*pairs)[PIECE_BLOCKS], int64_t b, int64_t i,
                                 const int64_t n, const int n_pairs, bool cold, float32x4_t *p)
{
    const int bias = levels_fit(f) ? 0 : -bias_of(f);
    struct sums isum[MAX_PAIRS];
    int32x4_t tsum[MAX_TILE_ROWS];
    UNROLL for (int r = 0; r < 2 * n_pairs; r++) tsum[r] =
        vdupq_n_s32(f.sub == SUB_NONE ? run_sum(x[r], i, n) : 0);
    UNROLL for (int j = 0; j < n_pairs; j++) isum[j].low = isum[j].high =
        vmulq_n_s32(vzip1q_s32(tsum[2 * j], tsum[2 * j + 1]), bias);
    for (const int64_t end = i + n; i < end; i++, b++, w += image_block_bytes(&f)) {
        int8x16_t v[8];
        const struct subs_neon sub = load_subs_neon(f, w, quarter);
        if (cold) prefetch_block(f, w);
        load_weights(f, w, quarter, !levels_fit(f), v);
        pair_weights(v);
        UNROLL for (int j = 0; j < n_pairs; j++) isum[j] =
            add_pair(f, isum[j], v, &pairs[j][b], &sub);
        UNROLL for (int r = 0; r < 2 * n_pairs; r++) tsum[r] =
            add_mins(f, tsum[r], &sub, x[r]->sum + 2 * i);
    }
    UNROLL for (int j = 0; j < n_pairs; j++)
    {
        const int32x4_t sum0 = vuzp1q_s32(isum[j].low, isum[j].high);
        const int32x4_t sum1 = vuzp2q_s32(isum[j].low, isum[j].high);
        p[2 * j] = add_sums(f, p[2 * j], sum0, tsum[2 * j], head, quarter);
        p[2 * j + 1] = add_sums(f, p[2 * j + 1], sum1, tsum[2 * j + 1], head, quarter);
    }
    return w;
}

/* A quarter of a group against n_pairs pairs of rows, p0 and on. */
INLINE void product_pairs(const struct matmul_form f, const struct piece *piece, int quarter,
                          int p0, const int n_pairs)
{
    const struct matmul_tile *t = piece->t;
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks, run = blocks < 4 ? blocks : 4;
    const int64_t at = piece->i_group * IMAGE_ROWS + 4 * quarter;
    const bool cold = t->cold && p0 == 0 && quarter == 0, begin = t->begin && piece->b0 == 0;
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    float32x4_t acc[MAX_TILE_ROWS], p[MAX_TILE_ROWS];
    const char *w = piece->w, *head = w;
    UNROLL for (int r = 0; r < 2 * n_pairs; r++)
    {
        x[r] = (const struct qrn_q8_act *)t->x[2 * p0 + r] + piece->b0 / 4;
        acc[r] = begin ? vdupq_n_f32(0.0f) : load_outputs_neon(t->out[2 * p0 + r], at, t->n);
    }
    for (int64_t b = 0; b < piece->n_blocks; b += 4) {
        UNROLL for (int r = 0; r < 2 * n_pairs; r++) p[r] = vdupq_n_f32(0.0f);
        for (int64_t i = 0; i < 4 && b + i < piece->n_blocks; i += run) {
            if (run == blocks || b % blocks == 0) {
                head = w;
                w += image_head_bytes(&f);
            }
            w = add_run_pairs(f, w, quarter, head, x, piece->x + p0, b + i, i, run, n_pairs, cold,
                              p);
        }
        UNROLL for (int r = 0; r < 2 * n_pairs; r++)
        {
            acc[r] = vfmaq_n_f32(acc[r], p[r], x[r]->d);
            x[r]++;
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
