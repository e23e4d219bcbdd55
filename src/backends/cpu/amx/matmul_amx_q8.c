/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rounded rows with AMX: tiles of 16 rows by 16 outputs, an integer
 * product for each 32 k, then the sums in matmul_drive.h, in registers.  Few rows go by vpdpbusd,
 * which gives the same bits. */
#include "backends/cpu/amx/tiles.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"

enum { PANEL_ROWS = 16, N_PANELS = 2, PANEL_GROUPS = 32 };

#include "backends/cpu/matmul_panels_avx512.h"

/* Fewer rows of one matrix are not worth unpacking its weights for. */
enum { MANY_ROWS = 12 };

/* Codes that do not fit in signed bytes stay unsigned. */
INLINE bool is_unsigned(const struct matmul_form f)
{
    return f.levels == LEVELS_LINEAR && f.bits == 8 && f.offset == 0;
}

/* Sums of block b, which wait in memory, to 16 rows. */
INLINE void add_sums(const struct matmul_form f, __m512 acc[PANEL_ROWS], const int32_t *sums,
                     const struct weight_panel *w, const struct row_panel *x, int64_t b)
{
    const __m512 d = _mm512_load_ps(w->d[b][0]);
    for (int r = 0; r < PANEL_ROWS; r++)
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + IMAGE_ROWS * r)),
                                 _mm512_mul_ps(d, _mm512_set1_ps(x->d[b][r])), acc[r]);
    if (!matmul_has_min(&f)) return;
    const __m512 m = _mm512_load_ps(w->m[b][0]);
    for (int r = 0; r < PANEL_ROWS; r++)
        acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(x->d_sum[b][0][r]), m, acc[r]);
}

/* Tiles 0 .. 3: sums of four blocks in turn; 4, 5: rows; 6, 7: weights. */
#define MULTIPLY(b, sum, rows, weights)        \
    do {                                       \
        _tile_loadd(rows, x->q[b], 32);        \
        _tile_loadd(weights, w->codes[b], 64); \
        _tile_zero(sum);                       \
        if (is_unsigned(f))                    \
            _tile_dpbsud(sum, rows, weights);  \
        else                                   \
            _tile_dpbssd(sum, rows, weights);  \
    } while (0)

/* Block b is multiplied, the one before it stored, the one three before it added: a vector that
 * loads what a tile has just stored would wait until it has left for the cache. */
#define STEP(b, sum, last, rows, weights)                     \
    do {                                                      \
        MULTIPLY(b, sum, rows, weights);                      \
        _tile_stored(last, sums[last], 64);                   \
        add_sums(f, acc, sums[((sum) + 1) % 4], w, x, (b)-3); \
    } while (0)

/* Four blocks or a multiple of it. */
INLINE void add_fours(const struct matmul_form f, __m512 acc[PANEL_ROWS],
                      const struct weight_panel *w, const struct row_panel *x, int64_t n_blocks)
{
    _Alignas(64) int32_t sums[4][PANEL_ROWS * IMAGE_ROWS];
    int64_t b = 3;
    MULTIPLY(0, 0, 4, 6);
    MULTIPLY(1, 1, 5, 7);
    _tile_stored(0, sums[0], 64);
    MULTIPLY(2, 2, 4, 6);
    _tile_stored(1, sums[1], 64);
    for (; b + 4 < n_blocks; b += 4) {
        STEP(b, 3, 2, 5, 7);
        STEP(b + 1, 0, 3, 4, 6);
        STEP(b + 2, 1, 0, 5, 7);
        STEP(b + 3, 2, 1, 4, 6);
    }
    STEP(b, 3, 2, 5, 7);
    _tile_stored(3, sums[3], 64);
    for (int i = 1; i < 4; i++) add_sums(f, acc, sums[i], w, x, b - 3 + i);
}

INLINE void add_one(const struct matmul_form f, __m512 acc[PANEL_ROWS],
                    const struct weight_panel *w, const struct row_panel *x, int64_t b)
{
    _Alignas(64) int32_t sums[PANEL_ROWS * IMAGE_ROWS];
    MULTIPLY(b, 0, 4, 6);
    _tile_stored(0, sums, 64);
    add_sums(f, acc, sums, w, x, b);
}

/* 16 rows against a group. */
INLINE void product_tile(const struct matmul_form f, const struct weight_panel *w,
                         const struct row_panel *x, int64_t n_blocks, panel_sums *total, bool begin)
{
    const int64_t fours = n_blocks / 4 * 4;
    __m512 acc[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        acc[r] = begin ? _mm512_setzero_ps() : _mm512_load_ps((*total)[r]);
    __asm__ volatile("" ::: "memory"); /* to gcc loads of tiles are no reads of what was written */
    if (fours) add_fours(f, acc, w, x, fours);
    for (int64_t b = fours; b < n_blocks; b++) add_one(f, acc, w, x, b);
    for (int r = 0; r < PANEL_ROWS; r++) _mm512_store_ps((*total)[r], acc[r]);
}

/* Types whose halves have scales would want two integer products for each 32 k. */
#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t r,             \
                            int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *own) \
    {                                                                                           \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                 \
        if (has_halves(f)) return;                                                              \
        panel_walk(f, 0, offset, product_tile, d, i, g, r, n_rows, k0, t, own);                 \
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

static void enter(void)
{
    struct qrn_amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = i < 6 ? PANEL_ROWS : 8;
        config.row_bytes[i] = i == 4 || i == 5 ? 32 : 64;
    }
    tiles_configure(&config);
}

static void leave(void)
{
    _tile_release();
}

static struct matmul_unit unit(const struct matmul_job *j)
{
    struct matmul_unit u = qrn_matmul_unit_avx512vnni(j);
    if (j->most_rows < MANY_ROWS) return u;
    u.many = manys[j->w->dtype];
    u.many_rows = MANY_ROWS;
    u.many_groups = PANEL_GROUPS;
    u.many_step = MOST_ROWS;
    u.many_k = PANEL_K;
    u.many_bytes = sizeof(struct panels);
    u.enter = enter;
    u.leave = leave;
    return u;
}

static bool takes(const struct matmul_job *j)
{
    return j->q8 && !has_halves(*qrn_matmul_form(j->w->dtype));
}

static const char serves[] =
    "12 rows or more of rounded activations, one scale to 32 weights: tiles, exact sums";

MATMUL_KERNEL(matmul, amx_q8, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AMX_INT8);
MATMUL_KERNEL(matmul_id, amx_q8, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AMX_INT8);
