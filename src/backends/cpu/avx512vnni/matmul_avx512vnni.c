/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with vpdpbusd: 16 rows in lanes, for each 32 k an
 * exact integer sum, then the sums in matmul_drive.h. */
#include <string.h>

#include "backends/cpu/avx512/q8_act_avx512.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"
#include "backends/cpu/matmul_codes_avx512.h"

/* vpdpbusd wants weights unsigned. */
INLINE int bias_of(const struct matmul_form f)
{
    return f.levels == LEVELS_IQ4 ? 128 : f.levels == LEVELS_FP4 ? 12 : f.offset;
}

INLINE __m512i dot4(__m512i acc, const __m512i *v, const int8_t *q)
{
    for (int i = 0; i < 4; i++) {
        int32_t four;
        memcpy(&four, q + 4 * i, sizeof four);
        acc = _mm512_dpbusd_epi32(acc, v[i], _mm512_set1_epi32(four));
    }
    return acc;
}

/* d and m of a block, or of its halves. */
struct block_scales {
    __m512 d[2], m[2];
};

/* One row of x against 16 weight rows, 32 k. */
INLINE __m512 add_block(const struct matmul_form f, __m512 acc, const __m512i v[8],
                        const struct block_scales *w, const struct qrn_q8_act *a)
{
    const __m512 dx = _mm512_set1_ps(a->d);
    if (f.sub == SUB_HALVES || f.sub == SUB_HALVES_MIN) {
        const __m512i lo = dot4(_mm512_set1_epi32(-bias_of(f) * a->sum[0]), v, a->q);
        const __m512i hi = dot4(_mm512_set1_epi32(-bias_of(f) * a->sum[1]), v + 4, a->q + 16);
        const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(hi), w->d[1],
                                           _mm512_mul_ps(_mm512_cvtepi32_ps(lo), w->d[0]));
        acc = _mm512_fmadd_ps(sum, dx, acc);
    } else {
        const __m512i bias = _mm512_set1_epi32(-bias_of(f) * (a->sum[0] + a->sum[1]));
        const __m512i all = dot4(dot4(bias, v, a->q), v + 4, a->q + 16);
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), _mm512_mul_ps(w->d[0], dx), acc);
    }
    if (!matmul_has_min(&f)) return acc;
    if (f.sub == SUB_NONE) return _mm512_fmadd_ps(_mm512_set1_ps(a->d_sum), w->m[0], acc);
    if (f.sub == SUB_SCALE_MIN) return _mm512_fnmadd_ps(_mm512_set1_ps(a->d_sum), w->m[0], acc);
    for (int h = 0; h < 2; h++)
        acc = _mm512_fnmadd_ps(_mm512_set1_ps(a->d * (float)a->sum[h]), w->m[h], acc);
    return acc;
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
            for (int r = 0; r < n_rows; r++) acc[r] = add_block(f, acc[r], v, &s, x[r] + b + i);
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

#define X(NAME, bits, blocks, head, sub, offset, levels)                           \
    static void product_##NAME(const struct matmul_tile *t)                        \
    {                                                                              \
        product((struct matmul_form){bits, blocks, head, sub, offset, levels}, t); \
    }
MATMUL_FORMS(X)
#undef X

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
    return (struct matmul_unit){
        .tile_rows = 8,
        .chunk_groups = 8,
        .chunk_k = 1024,
        .acts = true,
        .round = round_blocks,
        .product = products[j->w->dtype],
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

MATMUL_KERNEL(matmul, avx512vnni, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI);
MATMUL_KERNEL(matmul_id, avx512vnni, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI);
