/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rounded rows with AMX: tiles of 16 rows by 16 outputs, an integer
 * product for each 32 k, then the sums in matmul_drive.h, in registers.  Few rows go by vpdpbusd,
 * which gives the same bits. */
#include "backends/cpu/amx/tiles.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"

enum { PANEL_ROWS = 16, N_PANELS = 2 };

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
#define MULTIPLY(sum, rows, weights)            \
    do {                                        \
        _tile_loadd(rows, x->q[at], 32);        \
        _tile_loadd(weights, w->codes[at], 64); \
        _tile_zero(sum);                        \
        if (is_unsigned(f))                     \
            _tile_dpbsud(sum, rows, weights);   \
        else                                    \
            _tile_dpbssd(sum, rows, weights);   \
    } while (0)

/* A block is multiplied, stored one step later and added two steps after that: a vector that loads
 * what a tile has just stored would wait until it has left for the cache. */
#define STEP(i, sum, last, rows, weights)                                                      \
    do {                                                                                       \
        const int64_t at = b + (i);                                                            \
        if (at < n_blocks) MULTIPLY(sum, rows, weights);                                       \
        if (at >= 1 && at - 1 < n_blocks) _tile_stored(last, sums[((i) + 3) % 4], 64);         \
        if (at >= 3 && at - 3 < n_blocks) add_sums(f, acc, sums[((i) + 1) % 4], w, x, at - 3); \
    } while (0)

/* 16 rows against a group. */
INLINE void product_tile(const struct matmul_form f, const struct weight_panel *w,
                         const struct row_panel *x, int64_t n_blocks, int64_t first, __mmask16 mask,
                         bool begin)
{
    _Alignas(64) int32_t sums[4][PANEL_ROWS * IMAGE_ROWS];
    __m512 acc[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        acc[r] = begin ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, x->out[r] + first);
    __asm__ volatile("" ::: "memory"); /* to gcc loads of tiles are no reads of what was written */
    for (int64_t b = 0; b < n_blocks + 3; b += 4) {
        STEP(0, 0, 3, 4, 6);
        STEP(1, 1, 0, 5, 7);
        STEP(2, 2, 1, 4, 6);
        STEP(3, 3, 2, 5, 7);
    }
    for (int r = 0; r < PANEL_ROWS; r++) _mm512_mask_storeu_ps(x->out[r] + first, mask, acc[r]);
}

/* Types whose halves have scales would want two integer products for each 32 k. */
#define X(NAME, bits, blocks, head, sub, offset, levels)                                 \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t k0,     \
                            const struct matmul_tile *t, char *own)                      \
    {                                                                                    \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};          \
        if (!has_halves(f)) panel_walk(f, 0, offset, product_tile, d, i, g, k0, t, own); \
    }
MATMUL_FORMS(X)
#undef X

static void (*const manys[QRN_DTYPE_COUNT])(const struct drive *, int64_t, int64_t, int64_t,
                                            const struct matmul_tile *, char *) = {
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
