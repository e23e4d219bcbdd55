/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights and bf16 activations with vdpbf16ps, which is two multiply-adds
 * into one sum: of the odd elements of two pairs, then of the even ones, each rounded to nearest,
 * subnormals flushed.  With the columns k and k + 2 as such a pair, the first above, it goes two steps
 * along the chain of even columns, and with k + 1 and k + 3 along that of odd ones: AMX's order
 * (matmul_bf16.h) at twice the rate of multiply-adds, where both have as many ports. */
#include "backends/cpu/ahead.h"
#include "backends/cpu/avx512/vec_avx512.h"
#include "backends/cpu/matmul_bf16.h"
#include "backends/cpu/unroll.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE_ROWS = 8, CHUNK_BLOCKS = 16, STEPS = BF16_BLOCK / 4 };

/* Pairs of 16 weight rows for both chains: columns k and k + 2, k + 1 and k + 3. */
struct chains {
    __m512i even, odd;
};

/* The columns k .. k + 3 of an image. */
INLINE struct chains load_chains(const char *w)
{
    const __mmask32 upper = 0xaaaaaaaa;
    const __m512i first = _mm512_loadu_si512(w), second = _mm512_loadu_si512(w + 64);
    return (struct chains){
        .even = _mm512_mask_blend_epi16(upper, second, _mm512_slli_epi32(first, 16)),
        .odd = _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(second, 16), first),
    };
}

/* The same from where convert put them. */
INLINE struct chains load_converted(const char *w)
{
    return (struct chains){_mm512_load_si512(w), _mm512_load_si512(w + 64)};
}

static void convert(const char *w, int64_t n_blocks, char *out)
{
    for (int64_t i = 0; i < n_blocks * STEPS; i++, w += 128, out += 128) {
        const struct chains c = load_chains(w);
        _mm512_store_si512(out, c.even);
        _mm512_store_si512(out + 64, c.odd);
    }
}

INLINE __m512 dot(__m512 sum, __m512i w, const char *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)_mm512_set1_epi32(pair));
}

/* acc += the sums of one block; x: rows of 64 bytes. */
INLINE void add_block(const char *w, const bool converted, const char *x, const int n_rows,
                      __m512 *acc)
{
    __m512 even[TILE_ROWS], odd[TILE_ROWS];
    UNROLL for (int r = 0; r < n_rows; r++) even[r] = odd[r] = _mm512_setzero_ps();
    UNROLL for (int i = 0; i < STEPS; i++)
    {
        const struct chains v = converted ? load_converted(w + 128 * i) : load_chains(w + 128 * i);
        UNROLL for (int r = 0; r < n_rows; r++)
        {
            even[r] = dot(even[r], v.even, x + 64 * r + 8 * i);
            odd[r] = dot(odd[r], v.odd, x + 64 * r + 8 * i + 4);
        }
    }
    UNROLL for (int r = 0; r < n_rows; r++) acc[r] =
        _mm512_add_ps(acc[r], _mm512_add_ps(even[r], odd[r]));
}

/* Group g, whose weights are at w, against the rows r0 .. r0 + n_rows - 1. */
INLINE void product_rows(const struct bf16_tile *t, const char *w, const bool converted, int g,
                         int r0, const int n_rows)
{
    const __mmask16 mask = first_lanes(t->n - g * IMAGE_ROWS);
    const char *x = (const char *)t->x + 64 * r0;
    __m512 acc[TILE_ROWS];
    UNROLL for (int r = 0; r < n_rows; r++) acc[r] =
        t->begin ? _mm512_setzero_ps()
                 : _mm512_maskz_loadu_ps(mask, t->out[r0 + r] + g * IMAGE_ROWS);
    for (int64_t b = 0; b < t->n_blocks; b++, x += 64 * t->n_rows, w += IMAGE_PAIR_BLOCK) {
        if (t->cold && !converted) ask_ahead(w, IMAGE_PAIR_BLOCK);
        add_block(w, converted, x, n_rows, acc);
    }
    UNROLL for (int r = 0; r < n_rows; r++)
        _mm512_mask_storeu_ps(t->out[r0 + r] + g * IMAGE_ROWS, mask, acc[r]);
}

#define FEW(n)                                                                  \
    case n:                                                                     \
        for (int g = 0; g < t->n_groups; g++)                                   \
            product_rows(t, t->w + (size_t)g * t->group_bytes, false, g, 0, n); \
        break

/* Group by group, as weights lie in memory: with several side by side one thread read at half the rate. */
static void few(const struct bf16_tile *t)
{
    switch (t->n_rows) {
        FEW(1);
        FEW(2);
        FEW(3);
        FEW(4);
    }
}

#define REST(n)                                    \
    case n:                                        \
        product_rows(t, converted, true, g, r, n); \
        break

/* A group's weights are put in order once for all rows; at most CHUNK_BLOCKS blocks. */
static void many(const struct bf16_tile *t)
{
    _Alignas(64) char converted[CHUNK_BLOCKS * IMAGE_PAIR_BLOCK];
    for (int g = 0; g < t->n_groups; g++) {
        int r = 0;
        convert(t->w + (size_t)g * t->group_bytes, t->n_blocks, converted);
        for (; r + TILE_ROWS <= t->n_rows; r += TILE_ROWS)
            product_rows(t, converted, true, g, r, TILE_ROWS);
        switch (t->n_rows - r) {
            REST(1);
            REST(2);
            REST(3);
            REST(4);
            REST(5);
            REST(6);
            REST(7);
        }
    }
}

static void many_in_parts(const struct bf16_tile *t)
{
    for (int64_t b = 0; b < t->n_blocks; b += CHUNK_BLOCKS) {
        struct bf16_tile part = *t;
        part.begin = t->begin && b == 0;
        part.w = t->w + b * IMAGE_PAIR_BLOCK;
        part.x = (const char *)t->x + b * t->n_rows * 64;
        part.n_blocks = t->n_blocks - b < CHUNK_BLOCKS ? t->n_blocks - b : CHUNK_BLOCKS;
        many(&part);
    }
}

static void product(const struct bf16_tile *t)
{
    if (t->n_rows <= 4)
        few(t);
    else
        many_in_parts(t);
}

static const struct bf16_unit unit = {
    .panel_rows = BF16_PANEL_ROWS,
    .chunk_groups = 32,
    .chunk_blocks = CHUNK_BLOCKS,
    .x = BF16_FOURS,
    .product = product,
};

static const char serves[] =
    "bf16 weights and activations: vdpbf16ps in the tiles' order; 2 x multiply-adds on a Zen 4";

MATMUL_BF16_KERNEL(matmul, avx512bf16, unit, QRN_CPU_AVX512 | QRN_CPU_AVX512_BF16);
MATMUL_BF16_KERNEL(matmul_id, avx512bf16, unit, QRN_CPU_AVX512 | QRN_CPU_AVX512_BF16);
