/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rounded rows with AMX: tiles of 16 rows by 16 outputs.  Where a head
 * has one block of 32 k, each has an integer product of its own; where it has more, small integers are
 * multiplied into the codes, in two planes of bytes, so that one integer product takes up to 128 k.
 * Few rows go by vpdpbusd, which gives the same bits. */
#include "backends/cpu/amx/tiles.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"

enum { PANEL_ROWS = 16, N_PANELS = 2, PANEL_GROUPS = 24, N_PLANES = 2 };

#include "backends/cpu/amx/matmul_codes_amx.h"
#include "backends/cpu/unroll.h"

/* Fewer rows of one matrix are not worth unpacking its weights for. */
enum { MANY_ROWS = 12 };

/* Integer sums of a tile, a row after the other. */
typedef int32_t tile_sums[PANEL_ROWS][IMAGE_ROWS];

/* p and what row r has of the run from block b on, whose codes sum up to isum. */
INLINE __m512 add_head(const struct matmul_form f, __m512 p, __m512i isum,
                       const struct weight_panel *w, const struct row_panel *x, int64_t b,
                       const int run, int r)
{
    const __m512 d = _mm512_load_ps(w->d[b]);
    const __m512 sum = _mm512_cvtepi32_ps(isum);
    if (!matmul_has_min(&f)) return finish_run(f, p, sum, isum, d, d);
    return finish_run(f, p, sum, panel_minima(f, w, x, b, run, r), d, _mm512_load_ps(w->m[b]));
}

/* 128 k are done: p, times d of row r of x, to the row's sums. */
INLINE void add_acts(panel_sums *total, __m512 p, const struct row_panel *x, int64_t b, bool begin,
                     int r)
{
    const __m512 acc = begin && b < 4 ? _mm512_setzero_ps() : _mm512_load_ps((*total)[r]);
    _mm512_store_ps((*total)[r], _mm512_fmadd_ps(p, _mm512_set1_ps(x->d[b / 4][r]), acc));
}

/* Heads of one block: its sums, which wait in memory, to 16 rows. */
INLINE void add_sums(const struct matmul_form f, __m512 p[PANEL_ROWS], tile_sums *sums,
                     const struct weight_panel *w, const struct row_panel *x, int64_t b, bool first)
{
    UNROLL_16
    for (int r = 0; r < PANEL_ROWS; r++)
        p[r] = add_head(f, first ? _mm512_setzero_ps() : p[r], _mm512_load_si512((*sums)[r]), w, x,
                        b, 1, r);
}

/* Tiles 0 .. 3: sums of four blocks in turn; 4, 5: rows; 6, 7: weights. */
#define MULTIPLY(b, sum, rows, weights)                        \
    do {                                                       \
        _tile_loadd(rows, panel_q(x, b, 0), 64);               \
        _tile_loadd(weights, w->codes[0][b], 64);              \
        _tile_zero(sum);                                       \
        MULTIPLY_PLANE(sum, rows, weights, is_unsigned(f, 0)); \
    } while (0)
#define MULTIPLY_PLANE(sum, rows, weights, unsigned_) \
    do {                                              \
        if (unsigned_)                                \
            _tile_dpbsud(sum, rows, weights);         \
        else                                          \
            _tile_dpbssd(sum, rows, weights);         \
    } while (0)

/* Block b is multiplied, the one before it stored, the one three before it added: a vector that
 * loads what a tile has just stored would wait until it has left for the cache. */
#define STEP(b, sum, last, rows, weights)                                \
    do {                                                                 \
        MULTIPLY(b, sum, rows, weights);                                 \
        _tile_stored(last, sums[last], 64);                              \
        add_sums(f, p, &sums[((sum) + 1) % 4], w, x, (b)-3, (sum) == 3); \
    } while (0)

/* Four blocks or a multiple of it. */
INLINE void add_fours(const struct matmul_form f, const struct weight_panel *w,
                      const struct row_panel *x, int64_t n_blocks, panel_sums *total, bool begin)
{
    _Alignas(64) tile_sums sums[4];
    __m512 p[PANEL_ROWS];
    int64_t b = 0;
    MULTIPLY(0, 0, 4, 6);
    MULTIPLY(1, 1, 5, 7);
    _tile_stored(0, sums[0], 64);
    MULTIPLY(2, 2, 4, 6);
    _tile_stored(1, sums[1], 64);
    for (; b + 4 < n_blocks; b += 4) {
        STEP(b + 3, 3, 2, 5, 7);
        STEP(b + 4, 0, 3, 4, 6);
        STEP(b + 5, 1, 0, 5, 7);
        STEP(b + 6, 2, 1, 4, 6);
        for (int r = 0; r < PANEL_ROWS; r++) add_acts(total, p[r], x, b, begin, r);
    }
    STEP(b + 3, 3, 2, 5, 7);
    _tile_stored(3, sums[3], 64);
    for (int i = 1; i < 4; i++) add_sums(f, p, &sums[i], w, x, b + i, false);
    for (int r = 0; r < PANEL_ROWS; r++) add_acts(total, p[r], x, b, begin, r);
}

/* Blocks b .. n_blocks - 1, fewer than four. */
INLINE void add_rest(const struct matmul_form f, const struct weight_panel *w,
                     const struct row_panel *x, int64_t b, int64_t n_blocks, panel_sums *total,
                     bool begin)
{
    _Alignas(64) tile_sums sums;
    __m512 p[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) p[r] = _mm512_setzero_ps();
    for (int64_t i = b; i < n_blocks; i++) {
        MULTIPLY(i, 0, 4, 6);
        _tile_stored(0, sums, 64);
        add_sums(f, p, &sums, w, x, i, false);
    }
    for (int r = 0; r < PANEL_ROWS; r++) add_acts(total, p[r], x, b, begin, r);
}

INLINE void product_by_blocks(const struct matmul_form f, const struct weight_panel *w,
                              const struct row_panel *x, int64_t n_blocks, panel_sums *total,
                              bool begin)
{
    const int64_t fours = n_blocks / 4 * 4;
    __asm__ volatile("" ::: "memory"); /* to gcc loads of tiles are no reads of what was written */
    if (fours) add_fours(f, w, x, fours, total, begin);
    if (fours < n_blocks) add_rest(f, w, x, fours, n_blocks, total, begin);
}

/* Integer sums of a run: of panel n and plane s, sums[2 * n + s]. */
struct run_tiles {
    _Alignas(64) tile_sums sums[2 * N_PANELS];
};

/* The rows of a panel, the run from block b on; p waits where a block of x has several runs. */
INLINE void finish_rows(const struct matmul_form f, const struct run_tiles *t, int panel,
                        const struct weight_panel *w, const struct row_panel *x, int64_t b,
                        int64_t n_blocks, const int run, panel_sums *waiting, panel_sums *total,
                        bool begin)
{
    UNROLL_16
    for (int r = 0; r < PANEL_ROWS; r++) {
        __m512i isum = _mm512_load_si512(t->sums[2 * panel][r]);
        if (n_planes(f) > 1) {
            const __m512i high = _mm512_load_si512(t->sums[2 * panel + 1][r]);
            isum = _mm512_add_epi32(isum, _mm512_slli_epi32(high, plane_shift(f)));
        }
        const bool last = run == 4 || b % 4 || b + run >= n_blocks;
        const __m512 zero = _mm512_setzero_ps();
        const __m512 p0 = run == 4 ? zero : _mm512_load_ps((*waiting)[r]);
        const __m512 p = add_head(f, p0, isum, w, x, b, run, r);
        if (last) add_acts(total, p, x, b, begin, r);
        if (run < 4) _mm512_store_ps((*waiting)[r], last ? zero : p);
    }
}

/* The rows' tile of a panel times both planes of the weights'. */
#define MULTIPLY_ROWS(k, panel, rows, sum0, sum1)                              \
    do {                                                                       \
        _tile_loadd(rows, x[panel].q[(k) / 2], 64);                            \
        MULTIPLY_PLANE(sum0, rows, 6, is_unsigned(f, 0));                      \
        if (n_planes(f) > 1) MULTIPLY_PLANE(sum1, rows, 7, is_unsigned(f, 1)); \
    } while (0)

/* A run of 64 or 128 k from block b on, against n panels. */
INLINE void multiply_run(const struct matmul_form f, const struct weight_panel *w,
                         const struct row_panel *x, const int n, int64_t b, const int run,
                         struct run_tiles *t)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = b; k < b + run; k += 2) {
        _tile_loadd(6, w->codes[0][k], 64);
        if (n_planes(f) > 1) _tile_loadd(7, w->codes[1][k], 64);
        MULTIPLY_ROWS(k, 0, 4, 0, 1);
        if (n > 1) MULTIPLY_ROWS(k, 1, 5, 2, 3);
    }
    _tile_stored(0, t->sums[0], 64);
    if (n_planes(f) > 1) _tile_stored(1, t->sums[1], 64);
    if (n > 1) _tile_stored(2, t->sums[2], 64);
    if (n > 1 && n_planes(f) > 1) _tile_stored(3, t->sums[3], 64);
}

/* The tiles of a run are multiplied and stored, then the rows of the run before are finished, so that
 * no vector waits for what a tile has just stored. */
INLINE void product_by_runs(const struct matmul_form f, const struct weight_panel *w,
                            const struct row_panel *x, const int n, int64_t n_blocks, const int run,
                            panel_sums *total, bool begin)
{
    struct run_tiles t[2];
    _Alignas(64) panel_sums waiting[N_PANELS] = {{{0.0f}}};
    int turn = 0;
    __asm__ volatile("" ::: "memory");
    for (int64_t b = 0; b < n_blocks + run; b += run, turn ^= 1) {
        if (b < n_blocks) multiply_run(f, w, x, n, b, run, &t[turn]);
        for (int i = 0; i < n && b > 0; i++)
            finish_rows(f, &t[turn ^ 1], i, w, &x[i], b - run, n_blocks, run, &waiting[i],
                        &total[i * PANEL_GROUPS], begin);
    }
}

/* All rows of some panels against a group. */
INLINE void product_tiles(const struct matmul_form f, const struct weight_panel *w,
                          const struct row_panel *x, int n_panels, int64_t n_blocks, const int run,
                          panel_sums *total, bool begin)
{
    if (run == 1)
        for (int n = 0; n < n_panels; n++)
            product_by_blocks(f, w, &x[n], n_blocks, &total[n * PANEL_GROUPS], begin);
    else if (n_panels == 2)
        product_by_runs(f, w, x, 2, n_blocks, run, total, begin);
    else
        product_by_runs(f, w, x, 1, n_blocks, run, total, begin);
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t r,             \
                            int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *own) \
    {                                                                                           \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                 \
        panel_walk(f, 0, tile_codes, product_tiles, d, i, g, r, n_rows, k0, t, own);            \
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

static void enter_blocks(void)
{
    struct qrn_amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = i < 6 ? PANEL_ROWS : 8;
        config.row_bytes[i] = i == 4 || i == 5 ? 32 : 64;
    }
    tiles_configure(&config);
}

static void enter_runs(void)
{
    struct qrn_amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = PANEL_ROWS;
        config.row_bytes[i] = 64;
    }
    tiles_configure(&config);
}

static void leave(void)
{
    _tile_release();
}

/* Blocks of 32 that share a head. */
static int64_t head_blocks(const struct matmul_job *j)
{
    const int64_t mlx_group = j->packed           ? image_mlx_group(j->w)
                              : j->scales->n_dims ? qrn_mlx_group(j->w, j->scales)
                                                  : 32;
    return image_blocks(qrn_matmul_form(j->w->dtype), mlx_group);
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
    u.enter = head_blocks(j) == 1 ? enter_blocks : enter_runs;
    u.leave = leave;
    return u;
}

static bool takes(const struct matmul_job *j)
{
    return j->q8;
}

static const char serves[] =
    "12 rows or more of rounded activations: tiles, exact sums; scales of K types in the codes";

MATMUL_KERNEL(matmul, amx_q8, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AMX_INT8);
MATMUL_KERNEL(matmul_id, amx_q8, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AMX_INT8);
