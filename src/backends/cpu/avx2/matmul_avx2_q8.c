/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with AVX2: 8 rows in lanes, for each 32 k an exact
 * integer sum from vpmaddubsw (kept below what saturates), then the sums in matmul_drive.h. */
#include <string.h>

#include "backends/cpu/avx2/matmul_codes_avx2.h"
#include "backends/cpu/avx2/q8_act_avx2.h"
#include "backends/cpu/avx2/vec_avx2.h"
#include "backends/cpu/matmul_drive.h"

/* Weights of 8 bits enter as magnitudes, with their signs moved to x: 128 * 127 * 2 does not
 * saturate, 255 * 127 * 2 would. */
INLINE bool is_signed(const struct matmul_form f)
{
    return f.bits == 8 || f.levels == LEVELS_IQ4;
}

/* Weights as they enter are levels + bias. */
INLINE int bias_of(const struct matmul_form f)
{
    if (f.levels != LEVELS_LINEAR) return f.levels == LEVELS_FP4 ? 12 : 0;
    return f.bits == 8 ? f.offset - 128 : f.offset;
}

/* Products of two pairs that may be added in 16 bits. */
INLINE int pairs_in_16_bits(const struct matmul_form f)
{
    return is_signed(f) ? 1 : f.bits == 6 ? 2 : f.bits == 5 ? 4 : 8;
}

/* Sums of n (4 or 8) vectors of codes times n * 4 bytes of x. */
INLINE __m256i dot(const struct matmul_form f, const __m256i *v, const int8_t *q, int n)
{
    const int most = pairs_in_16_bits(f);
    __m256i sum = _mm256_setzero_si256(), part = sum;
    for (int i = 0; i < n; i++) {
        int32_t four;
        memcpy(&four, q + 4 * i, sizeof four);
        __m256i x = _mm256_set1_epi32(four), w = v[i];
        if (is_signed(f)) {
            x = _mm256_sign_epi8(x, w);
            w = _mm256_abs_epi8(w);
        }
        const __m256i two = _mm256_maddubs_epi16(w, x);
        part = i % most ? _mm256_add_epi16(part, two) : two;
        if (i % most == most - 1 || i == n - 1)
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
    }
    return sum;
}

/* d and m of a block, or of its halves. */
struct block_scales {
    __m256 d[2], m[2];
};

/* One row of x against 8 weight rows, 32 k. */
INLINE __m256 add_block(const struct matmul_form f, __m256 acc, const __m256i v[8],
                        const struct block_scales *w, const struct qrn_q8_act *a)
{
    const __m256 dx = _mm256_set1_ps(a->d);
    if (f.sub == SUB_HALVES || f.sub == SUB_HALVES_MIN) {
        __m256i lo = dot(f, v, a->q, 4), hi = dot(f, v + 4, a->q + 16, 4);
        if (bias_of(f)) {
            lo = _mm256_sub_epi32(lo, _mm256_set1_epi32(bias_of(f) * a->sum[0]));
            hi = _mm256_sub_epi32(hi, _mm256_set1_epi32(bias_of(f) * a->sum[1]));
        }
        const __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(hi), w->d[1],
                                           _mm256_mul_ps(_mm256_cvtepi32_ps(lo), w->d[0]));
        acc = _mm256_fmadd_ps(sum, dx, acc);
    } else {
        __m256i all = dot(f, v, a->q, 8);
        if (bias_of(f))
            all = _mm256_sub_epi32(all, _mm256_set1_epi32(bias_of(f) * (a->sum[0] + a->sum[1])));
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), _mm256_mul_ps(w->d[0], dx), acc);
    }
    if (!matmul_has_min(&f)) return acc;
    if (f.sub == SUB_NONE) return _mm256_fmadd_ps(_mm256_set1_ps(a->d_sum), w->m[0], acc);
    if (f.sub == SUB_SCALE_MIN) return _mm256_fnmadd_ps(_mm256_set1_ps(a->d_sum), w->m[0], acc);
    for (int h = 0; h < 2; h++)
        acc = _mm256_fnmadd_ps(_mm256_set1_ps(a->d * (float)a->sum[h]), w->m[h], acc);
    return acc;
}

/* Half a group against n_rows rows, r0 and on, of the tile; first: its first output. */
INLINE void product_rows(const struct matmul_form f, const struct matmul_tile *t, const char *w,
                         int64_t first, int half, int r0, const int n_rows)
{
    const int64_t blocks = f.blocks ? f.blocks : t->mlx_blocks, n = t->n - first;
    const __m256i mask = first_lanes(n > 0 ? n : 0), table = levels_256(f, bias_of(f));
    const bool cold = t->cold && r0 == 0 && half == 0;
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    __m256 acc[MAX_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        x[r] = t->x[r0 + r];
        acc[r] = t->begin ? _mm256_setzero_ps() : _mm256_maskload_ps(t->out[r0 + r] + first, mask);
    }
    for (int64_t b = 0; b < t->k / 32; b += blocks) {
        const __m256 head_d = load_head_256(f, w, half, 0);
        const __m256 head_m = matmul_has_min(&f) ? load_head_256(f, w, half, 1) : head_d;
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, w += image_block_bytes(&f)) {
            __m256i v[8];
            struct block_scales s = {{head_d, head_d}, {head_m, head_m}};
            const struct scales_256 sub = load_scales_256(f, w, half);
            if (cold)
                for (size_t at = 0; at < image_block_bytes(&f); at += 64)
                    _mm_prefetch(w + AHEAD_BYTES + at, _MM_HINT_T0);
            for (int h = 0; h < 2 && f.sub != SUB_NONE; h++) {
                s.d[h] = _mm256_mul_ps(s.d[h], sub.s[h]);
                s.m[h] = _mm256_mul_ps(s.m[h], sub.t[h]);
            }
            load_codes_256(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, half, v);
            for (int q = 0; q < 8; q++) {
                if (f.levels != LEVELS_LINEAR) v[q] = _mm256_shuffle_epi8(table, v[q]);
                if (f.bits == 8) v[q] = _mm256_xor_si256(v[q], _mm256_set1_epi8(-128));
            }
            for (int r = 0; r < n_rows; r++) acc[r] = add_block(f, acc[r], v, &s, x[r] + b + i);
        }
    }
    for (int r = 0; r < n_rows; r++) _mm256_maskstore_ps(t->out[r0 + r] + first, mask, acc[r]);
}

INLINE void product(const struct matmul_form f, const struct matmul_tile *t)
{
    for (int g = 0; g < t->n_groups; g++) {
        const char *w = t->w + (size_t)g * t->group_bytes;
        for (int half = 0; half < 2; half++) {
            const int64_t first = g * IMAGE_ROWS + 8 * half;
            int r = 0;
            for (; r + 4 <= t->n_rows; r += 4) product_rows(f, t, w, first, half, r, 4);
            for (; r < t->n_rows; r++) product_rows(f, t, w, first, half, r, 1);
        }
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
    for (int64_t b = 0; b < n_blocks; b++) q8_act_256(x + 32 * b, out + b);
}

static struct matmul_unit unit(const struct matmul_job *j)
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

static bool takes(const struct matmul_job *j)
{
    return j->q8;
}

static const char serves[] = "rounded activations: products of bytes, widened; exact sums";

MATMUL_KERNEL(matmul, avx2_q8, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
MATMUL_KERNEL(matmul_id, avx2_q8, QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C);
