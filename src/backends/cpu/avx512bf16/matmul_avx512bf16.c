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

/* Of a group's weights MOST_BLOCKS stay in the first cache beside x where that is a few panels, fewer where many pass. */
enum { PANEL_ROWS = 8, FEW_PANELS = 4, MOST_BLOCKS = 16, CHUNK_BLOCKS = 8, STEPS = BF16_BLOCK / 4 };

/* Pairs of 16 weight rows for both chains: columns k and k + 2, k + 1 and k + 3. */
struct chains {
    __m512i even, odd;
};

/* In words 0 .. 15 twice where they begin among 32 halves. */
INLINE __m512i halves_in_order(void)
{
    const __m512i words = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_mullo_epi32(words, _mm512_set1_epi32(0x00020002));
}

/* The columns k .. k + 3 of an image. */
INLINE struct chains load_chains(const char *w)
{
    /* halves of `second` are 32 and on */
    const __m512i even = _mm512_add_epi16(_mm512_set1_epi32(0x00000020), halves_in_order()),
                  odd = _mm512_add_epi16(_mm512_set1_epi32(0x00010021), halves_in_order());
    const __m512i first = _mm512_loadu_si512(w), second = _mm512_loadu_si512(w + 64);
    return (struct chains){
        .even = _mm512_permutex2var_epi16(first, even, second),
        .odd = _mm512_permutex2var_epi16(first, odd, second),
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

/* sum + the products of w with the pair at x, which the instruction repeats by itself: gcc makes two of it, and the fewer
 * instructions there are, the more weights are under way. */
INLINE __m512 dot(__m512 sum, __m512i w, const char *x)
{
    const struct pair {
        char bytes[4];
    } *pair = (const void *)x;
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*pair));
    return sum;
}

/* acc += the sums of one block; x: rows of 64 bytes. */
INLINE void add_block(const char *w, const bool converted, const char *x, const int n_rows,
                      __m512 *acc)
{
    __m512 even[PANEL_ROWS], odd[PANEL_ROWS];
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

/* What is asked for beside products, some lines for each block. */
struct asking {
    const char *x; /* the panel that comes next */
    const char *w, *w_end; /* weights that come next, for the second cache */
    int w_lines;
};

INLINE void ask(struct asking *a, const int n_rows)
{
    UNROLL for (int r = 0; r < n_rows; r++, a->x += 64) _mm_prefetch(a->x, _MM_HINT_T0);
    for (int i = 0; i < a->w_lines && a->w < a->w_end; i++, a->w += 64)
        _mm_prefetch(a->w, _MM_HINT_T1);
}

/* Group g, whose weights are at w, against n_rows rows from r0 on, a panel's, at x.  They are converted where
 * something is asked for. */
INLINE void product_rows(const struct bf16_tile *t, const char *w, struct asking *asking, int g,
                         const char *x, int r0, const int n_rows)
{
    const __mmask16 mask = first_lanes(t->n - g * IMAGE_ROWS);
    float *const *out = t->out + r0;
    __m512 acc[PANEL_ROWS];
    UNROLL for (int r = 0; r < n_rows; r++) acc[r] =
        t->begin ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, out[r] + g * IMAGE_ROWS);
    for (int64_t b = 0; b < t->n_blocks; b++, x += 64 * n_rows, w += IMAGE_PAIR_BLOCK) {
        if (asking)
            ask(asking, n_rows);
        else if (t->cold)
            ask_ahead(w, IMAGE_PAIR_BLOCK);
        add_block(w, asking, x, n_rows, acc);
    }
    UNROLL for (int r = 0; r < n_rows; r++)
        _mm512_mask_storeu_ps(out[r] + g * IMAGE_ROWS, mask, acc[r]);
}

#define FEW(n)                                                                       \
    case n:                                                                          \
        for (int g = 0; g < t->n_groups; g++)                                        \
            product_rows(t, t->w + (size_t)g * t->group_bytes, NULL, g, t->x, 0, n); \
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

#define REST(n)                                          \
    case n:                                              \
        product_rows(t, converted, &asking, g, x, r, n); \
        break

/* Group g, at most MOST_BLOCKS: its weights are put in order once, and panels of rows pass.  next_w: as many that come
 * next, or NULL. */
static void many(const struct bf16_tile *t, int g, const char *next_w)
{
    _Alignas(64) char converted[MOST_BLOCKS * IMAGE_PAIR_BLOCK];
    const int n_panels = (t->n_rows + PANEL_ROWS - 1) / PANEL_ROWS;
    const char *x = t->x;
    struct asking asking = {.w = next_w,
                            .w_end = next_w ? next_w + t->n_blocks * IMAGE_PAIR_BLOCK : NULL,
                            .w_lines = (IMAGE_PAIR_BLOCK / 64 + n_panels - 1) / n_panels};
    int r = 0;
    convert(t->w + (size_t)g * t->group_bytes, t->n_blocks, converted);
    for (; r + PANEL_ROWS <= t->n_rows; r += PANEL_ROWS, x += t->next_panel) {
        asking.x = r + 2 * PANEL_ROWS <= t->n_rows ? x + t->next_panel : t->x;
        product_rows(t, converted, &asking, g, x, r, PANEL_ROWS);
    }
    if (r) x -= t->next_short * (size_t)(PANEL_ROWS - (t->n_rows - r));
    asking.x = t->x;
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

/* All columns of a group, then the next: as weights lie in memory. */
static void by_groups(const struct bf16_tile *t)
{
    for (int g = 0; g < t->n_groups; g++)
        for (int64_t b = 0; b < t->n_blocks; b += MOST_BLOCKS) {
            const int first = t->n_rows < PANEL_ROWS ? t->n_rows : PANEL_ROWS;
            const bool last = g + 1 == t->n_groups && b + MOST_BLOCKS >= t->n_blocks;
            struct bf16_tile part = *t;
            part.begin = t->begin && b == 0;
            part.w = t->w + b * IMAGE_PAIR_BLOCK;
            part.x = (const char *)t->x + b * first * 64;
            part.next_short = t->next_short + (size_t)b * 64;
            part.n_blocks = t->n_blocks - b < MOST_BLOCKS ? t->n_blocks - b : MOST_BLOCKS;
            many(&part, g,
                 last ? t->next_w
                      : part.w + (size_t)g * t->group_bytes + MOST_BLOCKS * IMAGE_PAIR_BLOCK);
        }
}

static void product(const struct bf16_tile *t)
{
    if (t->n_rows <= 4) {
        few(t);
    } else if (t->n_rows <= FEW_PANELS * PANEL_ROWS) {
        by_groups(t);
    } else {
        for (int g = 0; g < t->n_groups; g++)
            many(t, g, g + 1 < t->n_groups ? t->w + (size_t)(g + 1) * t->group_bytes : t->next_w);
    }
}

static const struct bf16_unit unit = {
    .panel_rows = PANEL_ROWS,
    .product_rows = BF16_MOST_ROWS,
    .uncut_rows = FEW_PANELS * PANEL_ROWS,
    .chunk_groups = 16,
    .chunk_blocks = CHUNK_BLOCKS,
    .sums_rows = FEW_PANELS * PANEL_ROWS + 1,
    .x = BF16_FOURS,
    .product = product,
};

static const char serves[] =
    "bf16 weights and activations: vdpbf16ps in the tiles' order; 2 x multiply-adds on a Zen 4";

MATMUL_BF16_KERNEL(matmul, avx512bf16, unit, QRN_CPU_AVX512 | QRN_CPU_AVX512_BF16);
MATMUL_BF16_KERNEL(matmul_id, avx512bf16, unit, QRN_CPU_AVX512 | QRN_CPU_AVX512_BF16);
