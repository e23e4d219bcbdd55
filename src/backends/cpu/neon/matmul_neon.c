/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of float activations with NEON: 16 rows in four vectors,
 * acc = fma(w, x, acc) for ascending k.  Integer forms are decoded to floats for a few groups and
 * columns at a time. */
#include "backends/cpu/matmul_drive.h"
#include "backends/cpu/neon/matmul_codes_neon.h"

enum { TILE_ROWS = 4, TILE_GROUPS = 4, VECTORS = 4 };

/* Weights of column k, rows 4 i .. 4 i + 3 of a group; of bf16, which lie in pairs, odd says
 * which. */
INLINE float32x4_t load_weights(const enum qrn_dtype type, const char *w, int64_t k, const bool odd,
                                int i)
{
    if (type == QRN_F32) return vld1q_f32((const float *)(const void *)(w + 64 * k + 16 * i));
    if (type == QRN_F16) return load_halves_neon(w + 32 * k + 8 * i);
    const void *at = w + 32 * (odd ? k - 1 : k) + 16 * i;
    const uint32x4_t pair = vld1q_u32(at);
    return vreinterpretq_f32_u32(odd ? vandq_u32(pair, vdupq_n_u32(0xffff0000u))
                                     : vshlq_n_u32(pair, 16));
}

/* n_groups groups from g on against n_rows rows; the product of the two is at most 4. */
struct sums {
    float32x4_t acc[TILE_ROWS][VECTORS * TILE_GROUPS];
};

INLINE void add_column(const enum qrn_dtype type, const char *const *w, int64_t k, const bool odd,
                       const float *const *x, const int n_groups, const int n_rows, struct sums *s)
{
    UNROLL for (int g = 0; g < n_groups; g++)
    {
        float32x4_t v[VECTORS];
        UNROLL for (int i = 0; i < VECTORS; i++) v[i] = load_weights(type, w[g], k, odd, i);
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            float32x4_t *acc = s->acc[r] + VECTORS * g;
            UNROLL for (int i = 0; i < VECTORS; i++) acc[i] = vfmaq_n_f32(acc[i], v[i], x[r][k]);
        }
    }
}

/* Four columns of one group: x comes four at a time. */
INLINE void add_columns(const enum qrn_dtype type, const char *w, int64_t k, const float *const *x,
                        const int n_rows, struct sums *s)
{
    float32x4_t four[TILE_ROWS];
    UNROLL for (int r = 0; r < n_rows; r++) four[r] = vld1q_f32(x[r] + k);
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
        const float32x4_t v0 = load_weights(type, w, k, false, i);
        const float32x4_t v1 = load_weights(type, w, k + 1, true, i);
        const float32x4_t v2 = load_weights(type, w, k + 2, false, i);
        const float32x4_t v3 = load_weights(type, w, k + 3, true, i);
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            float32x4_t acc = vfmaq_laneq_f32(s->acc[r][i], v0, four[r], 0);
            acc = vfmaq_laneq_f32(acc, v1, four[r], 1);
            acc = vfmaq_laneq_f32(acc, v2, four[r], 2);
            s->acc[r][i] = vfmaq_laneq_f32(acc, v3, four[r], 3);
        }
    }
}

INLINE void product_rows(const enum qrn_dtype type, const struct matmul_tile *t, int g,
                         const int n_groups, const int n_rows)
{
    const int64_t step = IMAGE_ROWS * (type == QRN_F32 ? 4 : 2), first = g * IMAGE_ROWS;
    const char *w[TILE_GROUPS];
    const float *x[TILE_ROWS];
    struct sums s;
    UNROLL for (int c = 0; c < n_groups; c++) w[c] = t->w + (size_t)(g + c) * t->group_bytes;
    UNROLL for (int r = 0; r < n_rows; r++)
    {
        x[r] = t->x[r];
        UNROLL for (int i = 0; i < VECTORS * n_groups; i++) s.acc[r][i] =
            t->begin ? vdupq_n_f32(0.0f) : load_outputs_neon(t->out[r], first + 4 * i, t->n);
    }
    int64_t k = 0;
    for (; k + 4 <= t->k; k += 4) {
        for (int c = 0; c < (t->cold ? n_groups : 0); c++) {
            __builtin_prefetch(w[c] + k * step + AHEAD_BYTES);
            __builtin_prefetch(w[c] + k * step + AHEAD_BYTES + 64);
        }
        if (n_groups == 1) {
            add_columns(type, w[0], k, x, n_rows, &s);
        } else {
            UNROLL for (int i = 0; i < 4; i++)
                add_column(type, w, k + i, i % 2, x, n_groups, n_rows, &s);
        }
    }
    for (int i = 0; k < t->k; k++, i++) {
        if (i % 2)
            add_column(type, w, k, true, x, n_groups, n_rows, &s);
        else
            add_column(type, w, k, false, x, n_groups, n_rows, &s);
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int i = 0; i < VECTORS * n_groups; i++)
        store_outputs_neon(t->out[r], first + 4 * i, t->n, s.acc[r][i]);
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
        default:
            product_rows(type, t, g, 1, 4);
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

/* Code j of each of 4 rows from bytes 4 * row + j, as floats. */
INLINE float32x4_t level_neon(const struct matmul_form f, uint8x16_t v, int j)
{
    const uint32x4_t high = vreinterpretq_u32_u8(v) << vdupq_n_u32((uint32_t)(24 - 8 * j));
    if (f.levels != LEVELS_LINEAR)
        return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(high), 24));
    const int32x4_t code = vreinterpretq_s32_u32(vshrq_n_u32(high, 24));
    return vcvtq_f32_s32(vsubq_s32(code, vdupq_n_s32(f.offset)));
}

/* The same values as the type's decoder: products of scales and codes are exact but for MLX codes,
 * where product and sum are rounded one by one. */
INLINE void unpack_quarter(const struct matmul_form f, const char *w, int64_t k, int64_t mlx_blocks,
                           int quarter, float *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    for (int64_t b = 0; b < k / 32; b += blocks) {
        const float32x4_t head_d = load_head_neon(f, w, quarter, 0);
        const float32x4_t head_m =
            matmul_has_min(&f) ? load_head_neon(f, w, quarter, 1) : vdupq_n_f32(0.0f);
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            uint8x16_t v[8];
            const struct scales_neon s = load_scales_neon(f, w, quarter);
            load_codes_neon(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, quarter, v);
            UNROLL for (int q = 0; q < 8; q++)
            {
                const int h = matmul_has_halves(&f) ? q / 4 : 0;
                const float32x4_t d = f.sub == SUB_NONE ? head_d : vmulq_f32(head_d, s.s[h]);
                const float32x4_t m = f.sub == SUB_NONE ? head_m : vmulq_f32(head_m, s.t[h]);
                if (f.levels != LEVELS_LINEAR)
                    v[q] = vreinterpretq_u8_s8(vqtbl1q_s8(levels_neon(f), v[q]));
                UNROLL for (int j = 0; j < 4; j++, out += IMAGE_ROWS)
                {
                    float32x4_t y = vmulq_f32(d, level_neon(f, v[q], j));
                    if (matmul_has_min(&f))
                        y = f.sub == SUB_NONE ? vaddq_f32(y, m) : vsubq_f32(y, m);
                    vst1q_f32(out, y);
                }
            }
        }
    }
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void unpack_##NAME(const char *w, int64_t k, int64_t mlx_blocks, float *out)         \
    {                                                                                           \
        for (int c = 0; c < 4; c++)                                                             \
            unpack_quarter((struct matmul_form){bits, blocks, head, sub, offset, levels}, w, k, \
                           mlx_blocks, c, out + 4 * c);                                         \
    }
MATMUL_FORMS(X)
#undef X

INLINE void unpack_plain(const enum qrn_dtype type, const char *w, int64_t k, float *out)
{
    for (int64_t i = 0; i < k; i++)
        for (int c = 0; c < VECTORS; c++, out += 4)
            vst1q_f32(out, i % 2 ? load_weights(type, w, i, true, c)
                                 : load_weights(type, w, i, false, c));
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

MATMUL_KERNEL(matmul, neon, QRN_CPU_NEON);
MATMUL_KERNEL(matmul_id, neon, QRN_CPU_NEON);
