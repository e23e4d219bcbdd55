/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with vpdpbusd: 16 rows in lanes, for each 32 k an
 * exact integer sum, then the sums in matmul_drive.h. */
#include <string.h>

#include "backends/cpu/avx512/q8_act_avx512.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"
#include "backends/cpu/unroll.h"

enum { PANEL_ROWS = 24, N_PANELS = 1, PANEL_GROUPS = 16 };

#include "backends/cpu/matmul_panels_avx512.h"

/* Fewer rows of one matrix are not worth unpacking its weights for. */
enum { MANY_ROWS = 24 };

enum { MOST_TILE_ROWS = 12 };

/* vpdpbusd wants weights unsigned. */
INLINE int bias_of(const struct matmul_form f)
{
    return f.levels == LEVELS_IQ4 ? 128 : f.levels == LEVELS_FP4 ? 12 : f.offset;
}

/* d and m of a block, or of its halves. */
struct block_scales {
    __m512 d[2], m[2];
};

/* Sums of half h of a block, or, with all, of all of it, of n_rows rows.  Rows inside, so that no sum
 * waits for the one before it. */
INLINE void block_sums(const struct matmul_form f, const __m512i v[8],
                       const struct qrn_q8_act *const *x, const int n_rows, int h, bool all,
                       __m512i *sums)
{
    for (int r = 0; r < n_rows; r++) {
        const int32_t sum = all ? x[r]->sum[0] + x[r]->sum[1] : x[r]->sum[h];
        sums[r] = _mm512_set1_epi32(-bias_of(f) * sum);
    }
    const int n = all ? 8 : 4;
    UNROLL
    for (int i = 0; i < n; i++)
        for (int r = 0; r < n_rows; r++) {
            int32_t four;
            memcpy(&four, x[r]->q + 4 * (4 * h + i), sizeof four);
            sums[r] = _mm512_dpbusd_epi32(sums[r], v[4 * h + i], _mm512_set1_epi32(four));
        }
}

/* n_rows rows of x against 16 weight rows, 32 k. */
INLINE void add_block(const struct matmul_form f, __m512 *acc, const __m512i v[8],
                      const struct block_scales *w, const struct qrn_q8_act *const *x,
                      const int n_rows)
{
    __m512i sums[MAX_TILE_ROWS];
    block_sums(f, v, x, n_rows, 0, !has_halves(f), sums);
    if (has_halves(f)) {
        __m512 part[MAX_TILE_ROWS];
        for (int r = 0; r < n_rows; r++)
            part[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), w->d[0]);
        block_sums(f, v, x, n_rows, 1, false, sums);
        for (int r = 0; r < n_rows; r++) {
            const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), w->d[1], part[r]);
            acc[r] = _mm512_fmadd_ps(sum, _mm512_set1_ps(x[r]->d), acc[r]);
        }
    } else {
        for (int r = 0; r < n_rows; r++)
            acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]),
                                     _mm512_mul_ps(w->d[0], _mm512_set1_ps(x[r]->d)), acc[r]);
    }
    if (!matmul_has_min(&f)) return;
    for (int r = 0; r < n_rows; r++) {
        const __m512 d_sum = _mm512_set1_ps(x[r]->d_sum);
        if (f.sub == SUB_NONE) acc[r] = _mm512_fmadd_ps(d_sum, w->m[0], acc[r]);
        if (f.sub == SUB_SCALE_MIN) acc[r] = _mm512_fnmadd_ps(d_sum, w->m[0], acc[r]);
        for (int h = 0; h < 2 && f.sub == SUB_HALVES_MIN; h++)
            acc[r] =
                _mm512_fnmadd_ps(_mm512_set1_ps(x[r]->d * (float)x[r]->sum[h]), w->m[h], acc[r]);
    }
}

/* One group against n_rows rows, r0 and on, of the tile. */
INLINE void product_rows(const struct matmul_form f, const struct matmul_tile *t, const char *w,
                         int64_t i_group, int r0, const int n_rows)
{
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks, n = t->n - i_group * IMAGE_ROWS;
    const __mmask16 mask = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    const __m512i table = levels_512(f, bias_of(f));
    const bool cold = t->cold && r0 == 0;
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    __m512 acc[MAX_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        x[r] = t->x[r0 + r];
        acc[r] = t->begin ? _mm512_setzero_ps()
                          : _mm512_maskz_loadu_ps(mask, t->out[r0 + r] + i_group * IMAGE_ROWS);
    }
    for (int64_t b = 0; b < t->k / 32; b += blocks) {
        const __m512 head_d = load_head_512(f, w, 0);
        const __m512 head_m = matmul_has_min(&f) ? load_head_512(f, w, 1) : head_d;
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            __m512i v[8];
            struct block_scales s = {{head_d, head_d}, {head_m, head_m}};
            const struct scales_512 sub = load_scales_512(f, w);
            if (cold)
                for (size_t at = 0; at < image_block_bytes(&f); at += 64)
                    _mm_prefetch(w + AHEAD_BYTES + at, _MM_HINT_T0);
            for (int h = 0; h < 2 && f.sub != SUB_NONE; h++) {
                s.d[h] = _mm512_mul_ps(s.d[h], sub.s[h]);
                s.m[h] = _mm512_mul_ps(s.m[h], sub.t[h]);
            }
            load_codes_512(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, v);
            if (f.levels != LEVELS_LINEAR)
                for (int q = 0; q < 8; q++) v[q] = _mm512_shuffle_epi8(table, v[q]);
            add_block(f, acc, v, &s, x, n_rows);
            for (int r = 0; r < n_rows; r++) x[r]++;
        }
    }
    for (int r = 0; r < n_rows; r++)
        _mm512_mask_storeu_ps(t->out[r0 + r] + i_group * IMAGE_ROWS, mask, acc[r]);
}

/* The usual types have tiles of 8, 4, 2 rows and 1; the others, to keep the object small, of 4 and
 * 1. */
INLINE void product(const struct matmul_form f, const struct matmul_tile *t)
{
    const bool usual = f.bits == 4 || f.bits == 6 || f.bits == 8;
    for (int g = 0; g < t->n_groups; g++) {
        const char *w = t->w + (size_t)g * t->group_bytes;
        int r = 0;
        if (usual)
            for (; r + 8 <= t->n_rows; r += 8) product_rows(f, t, w, g, r, 8);
        for (; r + 4 <= t->n_rows; r += 4) product_rows(f, t, w, g, r, 4);
        if (usual)
            for (; r + 2 <= t->n_rows; r += 2) product_rows(f, t, w, g, r, 2);
        for (; r < t->n_rows; r++) product_rows(f, t, w, g, r, 1);
    }
}

/* n_rows rows from r0 on of a panel: sums of each half, if halves have scales, or block. */
INLINE void panel_dots(const struct weight_panel *w, const struct row_panel *x, int64_t b, int r0,
                       const int n_rows, int bias, int h, const int from, const int to,
                       __m512i *sums)
{
    for (int r = 0; r < n_rows; r++)
        sums[r] = bias ? _mm512_set1_epi32(x->of_bias[b][h][r0 + r]) : _mm512_setzero_si512();
    UNROLL
    for (int q = from; q < to; q++) {
        const __m512i v = _mm512_load_si512(w->codes[b][q]);
        for (int r = 0; r < n_rows; r++) {
            int32_t four;
            memcpy(&four, x->q[b][r0 + r] + 4 * q, sizeof four);
            sums[r] = _mm512_dpbusd_epi32(sums[r], v, _mm512_set1_epi32(four));
        }
    }
}

INLINE void panel_tile(const struct matmul_form f, const struct weight_panel *w,
                       const struct row_panel *x, int64_t n_blocks, panel_sums *total, bool begin,
                       int r0, const int n_rows)
{
    const int bias = bias_of(f);
    __m512 acc[MOST_TILE_ROWS];
    for (int r = 0; r < n_rows; r++)
        acc[r] = begin ? _mm512_setzero_ps() : _mm512_load_ps((*total)[r0 + r]);
    for (int64_t b = 0; b < n_blocks; b++) {
        __m512i sums[MOST_TILE_ROWS];
        const __m512 d = _mm512_load_ps(w->d[b][0]);
        panel_dots(w, x, b, r0, n_rows, bias, 0, 0, has_halves(f) ? 4 : 8, sums);
        if (has_halves(f)) {
            __m512 part[MOST_TILE_ROWS];
            const __m512 d1 = _mm512_load_ps(w->d[b][1]);
            for (int r = 0; r < n_rows; r++)
                part[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), d);
            panel_dots(w, x, b, r0, n_rows, bias, 1, 4, 8, sums);
            for (int r = 0; r < n_rows; r++) {
                const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), d1, part[r]);
                acc[r] = _mm512_fmadd_ps(sum, _mm512_set1_ps(x->d[b][r0 + r]), acc[r]);
            }
        } else {
            for (int r = 0; r < n_rows; r++) {
                const __m512 dx = _mm512_set1_ps(x->d[b][r0 + r]);
                acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), _mm512_mul_ps(d, dx), acc[r]);
            }
        }
        for (int h = 0; h <= has_halves(f) && matmul_has_min(&f); h++) {
            const __m512 m = _mm512_load_ps(w->m[b][h]);
            for (int r = 0; r < n_rows; r++)
                acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(x->d_sum[b][h][r0 + r]), m, acc[r]);
        }
    }
    for (int r = 0; r < n_rows; r++) _mm512_store_ps((*total)[r0 + r], acc[r]);
}

/* Sums, accumulators and, for halves, what the first gave: as many rows as registers hold. */
INLINE void panel_tiles(const struct matmul_form f, const struct weight_panel *w,
                        const struct row_panel *x, int64_t n_blocks, panel_sums *total, bool begin)
{
    const int most = has_halves(f) ? 8 : MOST_TILE_ROWS;
    for (int r = 0; r < PANEL_ROWS; r += most) panel_tile(f, w, x, n_blocks, total, begin, r, most);
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                           \
    static void product_##NAME(const struct matmul_tile *t)                        \
    {                                                                              \
        product((struct matmul_form){bits, blocks, head, sub, offset, levels}, t); \
    }
MATMUL_FORMS(X)
#undef X

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t r,             \
                            int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *own) \
    {                                                                                           \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                 \
        panel_walk(f, bias_of(f), 0, panel_tiles, d, i, g, r, n_rows, k0, t, own);              \
    }
MATMUL_FORMS(X)
#undef X

static void (*const manys[QRN_DTYPE_COUNT])(const struct drive *, int64_t, int64_t, int64_t,
                                            int64_t, int64_t, const struct matmul_tile *,
                                            char *) = {
#define X(NAME, bits, blocks, head, sub, offset, levels) [QRN_##NAME] = many_##NAME,
    MATMUL_FORMS(X)
#undef X
};

static void (*const products[QRN_DTYPE_COUNT])(const struct matmul_tile *) = {
#define X(NAME, bits, blocks, head, sub, offset, levels) [QRN_##NAME] = product_##NAME,
    MATMUL_FORMS(X)
#undef X
};

static void round_blocks(const float *x, int64_t n_blocks, struct qrn_q8_act *out)
{
    for (int64_t b = 0; b < n_blocks; b++, x += 32)
        q8_act_512(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16), out + b);
}

struct matmul_unit qrn_matmul_unit_avx512vnni(const struct matmul_job *j)
{
    const bool many = j->most_rows >= MANY_ROWS;
    return (struct matmul_unit){
        .tile_rows = 8,
        .chunk_groups = 8,
        .chunk_k = 1024,
        .acts = true,
        .round = round_blocks,
        .product = products[j->w->dtype],
        .many = many ? manys[j->w->dtype] : NULL,
        .many_rows = MANY_ROWS,
        .many_groups = many ? PANEL_GROUPS : 0,
        .many_step = MOST_ROWS,
        .many_k = many ? PANEL_K : 0,
        .many_bytes = many ? sizeof(struct panels) : 0,
    };
}

static struct matmul_unit unit(const struct matmul_job *j)
{
    return qrn_matmul_unit_avx512vnni(j);
}

static bool takes(const struct matmul_job *j)
{
    return j->q8;
}

static const char serves[] =
    "rounded activations: vpdpbusd, exact sums; 3 x multiply-adds on 512 rows";

MATMUL_KERNEL(matmul, avx512vnni, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI);
MATMUL_KERNEL(matmul_id, avx512vnni, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI);
