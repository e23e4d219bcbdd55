/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights and bf16 activations with AMX: a tile of sums is 16 rows of x
 * by a group of weights, and stays in its register while blocks of columns pass.  The bits are those
 * of matmul_bf16.h, whose expression is this unit's. */
#include "backends/cpu/amx/tiles.h"
#include "backends/cpu/avx512/matmul_avx512_bf16.h"
#include "backends/cpu/avx512/vec_avx512.h"

enum { TILE_ROWS = 16, TILE_BYTES = 64 };

/* Tiles 0 .. 3 hold sums.  Up to 16 rows: of four groups, with x in 4 and weights in 5 .. 7.  More:
 * 0 and 1 of two groups for the first 16 rows, 2 and 3 for the rest; x in 4 and 5, weights in 6 and
 * 7. */
static void configure(int n_rows)
{
    const bool tall = n_rows > TILE_ROWS;
    const int first = tall ? TILE_ROWS : n_rows, rest = tall ? n_rows - TILE_ROWS : n_rows;
    const int rows[8] = {first,     first,    rest, rest, first, tall ? rest : TILE_ROWS,
                         TILE_ROWS, TILE_ROWS};
    struct qrn_amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = TILE_BYTES;
        c.rows[i] = (uint8_t)rows[i];
    }
    tiles_configure(&c);
}

/* Loads of tiles are no reads of memory to gcc: what was written before must be there. */
static inline void written(void)
{
    __asm__ volatile("" : : : "memory");
}

/* Where a tile of sums lies: in out, if that has whole tiles in equal steps, else in a copy. */
struct place {
    float *at;
    size_t step; /* bytes from row to row */
};

static bool equal_steps(const struct bf16_tile *t)
{
    for (int r = 2; r < t->n_rows; r++)
        if (t->out[r] - t->out[r - 1] != t->out[1] - t->out[0]) return false;
    return t->n_rows < 2 || t->out[1] > t->out[0];
}

struct sums {
    bool copied[4];
    struct place place[4];
    float copy[4][TILE_ROWS * IMAGE_ROWS];
};

static void open_place(const struct bf16_tile *t, bool in_steps, int i, int r0, int g,
                       struct sums *s)
{
    const __mmask16 mask = first_lanes(t->n - g * IMAGE_ROWS);
    s->copied[i] = !in_steps || mask != 0xffff;
    if (!s->copied[i]) {
        const size_t step = t->n_rows > 1 ? (size_t)(t->out[1] - t->out[0]) * sizeof(float) : 64;
        s->place[i] = (struct place){t->out[r0] + g * IMAGE_ROWS, step};
        return;
    }
    s->place[i] = (struct place){s->copy[i], TILE_BYTES};
    for (int r = 0; r < TILE_ROWS && r0 + r < t->n_rows && !t->begin; r++)
        _mm512_storeu_ps(s->copy[i] + r * IMAGE_ROWS,
                         _mm512_maskz_loadu_ps(mask, t->out[r0 + r] + g * IMAGE_ROWS));
}

static void close_place(const struct bf16_tile *t, int i, int r0, int g, const struct sums *s)
{
    const __mmask16 mask = first_lanes(t->n - g * IMAGE_ROWS);
    for (int r = 0; r < TILE_ROWS && r0 + r < t->n_rows && s->copied[i]; r++)
        _mm512_mask_storeu_ps(t->out[r0 + r] + g * IMAGE_ROWS, mask,
                              _mm512_loadu_ps(s->copy[i] + r * IMAGE_ROWS));
}

#define BEGIN_SUM(i)   \
    if (t->begin)      \
        _tile_zero(i); \
    else               \
        _tile_loadd(i, s.place[i].at, s.place[i].step)
#define END_SUM(i) _tile_stored(i, s.place[i].at, s.place[i].step)

static inline void ask_block(const char *w)
{
    for (int i = 0; i < IMAGE_PAIR_BLOCK; i += 64) _mm_prefetch(w + AHEAD_BYTES + i, _MM_HINT_T0);
}

/* Up to 16 rows against four groups from g on. */
static void flat_four(const struct bf16_tile *t, bool in_steps, int g)
{
    const char *x = t->x, *w0 = t->w + (size_t)g * t->group_bytes, *w1 = w0 + t->group_bytes;
    const char *w2 = w1 + t->group_bytes, *w3 = w2 + t->group_bytes;
    const int64_t step = TILE_BYTES * t->n_rows;
    struct sums s;
    for (int i = 0; i < 4; i++) open_place(t, in_steps, i, 0, g + i, &s);
    written();
    BEGIN_SUM(0);
    BEGIN_SUM(1);
    BEGIN_SUM(2);
    BEGIN_SUM(3);
    for (int64_t b = 0; b < t->n_blocks; b++) {
        const int64_t at = b * IMAGE_PAIR_BLOCK;
        if (t->cold) {
            ask_block(w0 + at);
            ask_block(w1 + at);
            ask_block(w2 + at);
            ask_block(w3 + at);
        }
        _tile_loadd(4, x + b * step, TILE_BYTES);
        _tile_loadd(5, w0 + at, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, w1 + at, TILE_BYTES);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(7, w2 + at, TILE_BYTES);
        _tile_dpbf16ps(2, 4, 7);
        _tile_loadd(5, w3 + at, TILE_BYTES);
        _tile_dpbf16ps(3, 4, 5);
    }
    END_SUM(0);
    END_SUM(1);
    END_SUM(2);
    END_SUM(3);
    written();
    for (int i = 0; i < 4; i++) close_place(t, i, 0, g + i, &s);
}

static void flat_one(const struct bf16_tile *t, bool in_steps, int g)
{
    const char *x = t->x, *w = t->w + (size_t)g * t->group_bytes;
    struct sums s;
    open_place(t, in_steps, 0, 0, g, &s);
    written();
    BEGIN_SUM(0);
    for (int64_t b = 0; b < t->n_blocks; b++) {
        if (t->cold) ask_block(w + b * IMAGE_PAIR_BLOCK);
        _tile_loadd(4, x + b * TILE_BYTES * t->n_rows, TILE_BYTES);
        _tile_loadd(5, w + b * IMAGE_PAIR_BLOCK, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 5);
    }
    END_SUM(0);
    written();
    close_place(t, 0, 0, g, &s);
}

/* Of what has `lines` lines for each block the part that falls to block b of groups g and g + 1. */
static inline void ask_part(const char *p, const struct bf16_tile *t, int g, int64_t b, int lines)
{
    const int n_pairs = t->n_groups / 2, each = (lines + n_pairs - 1) / n_pairs;
    const char *at = p + 64 * each * (g / 2 * t->n_blocks + b);
    for (int i = 0; i < each; i++) _mm_prefetch(at + 64 * i, _MM_HINT_T1);
}

/* Beside block b of two groups: what the second cache will be asked for. */
static inline void prepare(const struct bf16_tile *t, int g, int64_t b)
{
    const bool last = g + 2 >= t->n_groups;
    if (t->cold && !last)
        for (int c = 2; c < 4; c++) {
            const char *w = t->w + (size_t)(g + c) * t->group_bytes + b * IMAGE_PAIR_BLOCK;
            for (int i = 0; i < IMAGE_PAIR_BLOCK; i += 64) _mm_prefetch(w + i, _MM_HINT_T1);
        }
    if (t->next) ask_part(t->next, t, g, b, 32);
    if (t->next_w) ask_part(t->next_w, t, g, b, 16);
    if (!last && b < t->n_rows) {
        const char *out = (const char *)(t->out[b] + (g + 2) * IMAGE_ROWS);
        _mm_prefetch(out, _MM_HINT_T0);
        _mm_prefetch(out + 64, _MM_HINT_T0);
    }
}

/* 17 to 32 rows against two groups from g on. */
static void tall_two(const struct bf16_tile *t, bool in_steps, int g)
{
    const char *x = t->x, *w0 = t->w + (size_t)g * t->group_bytes, *w1 = w0 + t->group_bytes;
    const int64_t step = TILE_BYTES * t->n_rows;
    struct sums s;
    for (int i = 0; i < 4; i++) open_place(t, in_steps, i, i / 2 * TILE_ROWS, g + i % 2, &s);
    written();
    BEGIN_SUM(0);
    BEGIN_SUM(1);
    BEGIN_SUM(2);
    BEGIN_SUM(3);
    for (int64_t b = 0; b < t->n_blocks; b++) {
        prepare(t, g, b);
        _tile_loadd(4, x + b * step, TILE_BYTES);
        _tile_loadd(6, w0 + b * IMAGE_PAIR_BLOCK, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, w1 + b * IMAGE_PAIR_BLOCK, TILE_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, x + b * step + TILE_ROWS * TILE_BYTES, TILE_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    END_SUM(0);
    END_SUM(1);
    END_SUM(2);
    END_SUM(3);
    written();
    for (int i = 0; i < 4; i++) close_place(t, i, i / 2 * TILE_ROWS, g + i % 2, &s);
}

static void tall_one(const struct bf16_tile *t, bool in_steps, int g)
{
    const char *x = t->x, *w = t->w + (size_t)g * t->group_bytes;
    const int64_t step = TILE_BYTES * t->n_rows;
    struct sums s;
    open_place(t, in_steps, 0, 0, g, &s);
    open_place(t, in_steps, 2, TILE_ROWS, g, &s);
    written();
    BEGIN_SUM(0);
    BEGIN_SUM(2);
    for (int64_t b = 0; b < t->n_blocks; b++) {
        _tile_loadd(6, w + b * IMAGE_PAIR_BLOCK, TILE_BYTES);
        _tile_loadd(4, x + b * step, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, x + b * step + TILE_ROWS * TILE_BYTES, TILE_BYTES);
        _tile_dpbf16ps(2, 5, 6);
    }
    END_SUM(0);
    END_SUM(2);
    written();
    close_place(t, 0, 0, g, &s);
    close_place(t, 2, TILE_ROWS, g, &s);
}

static void product(const struct bf16_tile *t)
{
    const bool in_steps = equal_steps(t);
    int g = 0;
    configure(t->n_rows);
    if (t->n_rows > TILE_ROWS) {
        for (; g + 2 <= t->n_groups; g += 2) tall_two(t, in_steps, g);
        for (; g < t->n_groups; g++) tall_one(t, in_steps, g);
    } else {
        for (; g + 4 <= t->n_groups; g += 4) flat_four(t, in_steps, g);
        for (; g < t->n_groups; g++) flat_one(t, in_steps, g);
    }
    _tile_release();
}

static const struct bf16_unit unit = {
    .panel_rows = 2 * TILE_ROWS,
    .product_rows = 2 * TILE_ROWS,
    .uncut_rows = 2 * TILE_ROWS,
    .chunk_groups = 16,
    .chunk_blocks = 16,
    .sums_rows = 96,
    .product = product,
    .few = &qrn_bf16_unit_avx512,
    .few_tokens = 1, /* 16 GB/s for a core of a Xeon, tiles 15 */
};

static const char serves[] =
    "bf16 weights and activations: tiles; 3 to 4 x multiply-adds on 512 rows; one row by those";

MATMUL_BF16_KERNEL(matmul, amx_bf16, unit, QRN_CPU_AVX512 | QRN_CPU_AMX_TILE | QRN_CPU_AMX_BF16);
MATMUL_BF16_KERNEL(matmul_id, amx_bf16, unit, QRN_CPU_AVX512 | QRN_CPU_AMX_TILE | QRN_CPU_AMX_BF16);
