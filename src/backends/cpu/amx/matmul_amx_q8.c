/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rounded rows with AMX: tiles of 16 rows by 16 outputs.  Where a head
 * has one block of 32 k, each has an integer product of its own; where it has more, small integers are
 * multiplied into the codes, in two planes of bytes, so that one integer product takes up to 128 k.
 * Few rows go by vpdpbusd, which gives the same bits. */
#include "backends/cpu/amx/tiles.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"

enum { PANEL_ROWS = 16, PANEL_K = 256, N_PANELS = 4, PANEL_GROUPS = 24, N_PLANES = 2, ASK_WEIGHTS = 0 };

#include "backends/cpu/amx/matmul_codes_amx.h"
#include "backends/cpu/avx512/panel_silu_avx512.h"
#include "backends/cpu/matmul_silu.h"
#include "backends/cpu/unroll.h"

/* Fewer rows of one matrix are not worth unpacking its weights for. */
enum { MANY_ROWS = 12 };

/* Integer sums of a tile, a row after the other. */
typedef int32_t tile_sums[PANEL_ROWS][IMAGE_ROWS];

/* What the run of blocks from b on of a group has for all rows. */
struct head {
    __m512 d, m;
    __m512i t[4];
};

INLINE struct head load_head(const struct matmul_form f, const struct weight_panel *w, int64_t b,
                             const int run)
{
    struct head h = {.d = _mm512_load_ps(w->d[b])};
    if (!matmul_has_min(&f)) return h;
    h.m = _mm512_load_ps(w->m[b]);
    UNROLL
    for (int i = 0; i < run; i++) h.t[i] = _mm512_load_si512(w->t[b + i]);
    return h;
}

/* Conversions, shifts and fused multiply-adds share one port while tiles are in use, additions have another one too.  So
 * integers become floats by additions: BIAS_BITS and an integer up to 2^22 in size are the bits of a float
 * that is BIAS more. */
enum { BIAS_BITS = 0x4b400000 };
#define BIAS 0x1.8p23f

INLINE __m512 biased(__m512i sum)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(sum, _mm512_set1_epi32(BIAS_BITS)));
}

/* low and high, which counts 2^plane_shift, as one float, rounded once.  With minima to add the port is full: then all up
 * to the last addition is exact, for a plane's sums of 128 k are at most 255 * 128 * 128 < 2^22. */
INLINE __m512 join_planes(const struct matmul_form f, __m512i low, __m512i high)
{
    const float scale = (float)(1u << plane_shift(f));
    const __m512 without = _mm512_set1_ps(-(scale + 1.0f) * BIAS);
    if (!matmul_has_min(&f))
        return _mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_slli_epi32(high, plane_shift(f))));
    return _mm512_add_ps(_mm512_fmadd_ps(biased(high), _mm512_set1_ps(scale), without),
                         biased(low));
}

/* p and what row r has of that run, whose codes sum up to sum. */
INLINE __m512 add_head(const struct matmul_form f, __m512 p, __m512 sum, const struct head *h,
                       const struct row_panel *x, int64_t b, const int run, int r)
{
    p = _mm512_fmadd_ps(sum, h->d, p);
    if (!matmul_has_min(&f)) return p;
    const __m512i minima = panel_minima(f, _mm512_set1_epi32(BIAS_BITS), h->t, x, b, run, r);
    const __m512 tsum = _mm512_sub_ps(_mm512_castsi512_ps(minima), _mm512_set1_ps(BIAS));
    return finish_minima(f, p, tsum, h->m);
}

/* 128 k are done: p, times d of row r of x, to the row's sums; mask: none of them if they begin. */
INLINE void add_acts(panel_sums *total, __mmask16 mask, __m512 p, const float *d, int r)
{
    const __m512 acc = _mm512_maskz_load_ps(mask, (*total)[r]);
    _mm512_store_ps((*total)[r], _mm512_fmadd_ps(p, _mm512_set1_ps(d[r]), acc));
}

/* Of a panel, four blocks that each have a head, or of n panels a run under one head; from block b on. */
struct unit {
    const struct weight_panel *w;
    const struct row_panel *x;
    panel_sums *total, *waiting; /* of the second panel: total[PANEL_GROUPS], waiting[1] */
    int64_t b;
    __mmask16 mask; /* of sums that there are already */
};

#define MULTIPLY(sum, rows, weights, unsigned_) \
    do {                                        \
        if (unsigned_)                          \
            _tile_dpbsud(sum, rows, weights);   \
        else                                    \
            _tile_dpbssd(sum, rows, weights);   \
    } while (0)

/* Block i of a unit: its sums, which wait in memory, to 16 rows. */
INLINE void add_sums(const struct matmul_form f, __m512 p[PANEL_ROWS], tile_sums *sums,
                     const struct unit *u, const int i)
{
    const struct head h = load_head(f, u->w, u->b + i, 1);
    UNROLL_16
    for (int r = 0; r < PANEL_ROWS; r++)
        p[r] =
            add_head(f, i == 0 ? _mm512_setzero_ps() : p[r],
                     _mm512_cvtepi32_ps(_mm512_load_si512(sums[i][r])), &h, u->x, u->b + i, 1, r);
}

/* Tiles 0 .. 3: sums of four blocks in turn; 4, 5: rows, from q on; 6, 7: weights, from codes on.  Block i of a unit
 * is multiplied, the one before it stored, the one three before it, which is of the unit before, added: a
 * vector that loads what a tile has just stored would wait until it has left for the cache. */
#define STEP(i, last, rows, weights, before, done)                     \
    do {                                                               \
        TILE_LOAD(rows, q, (i) / 2 * sizeof u.x->q[0] + (i) % 2 * 32); \
        TILE_LOAD(weights, codes, (i) * sizeof u.w->codes[0][0]);      \
        _tile_zero(i);                                                 \
        MULTIPLY(i, rows, weights, is_unsigned(f, 0));                 \
        TILE_STORE(last, sums, (last) * sizeof sums[0]);               \
        add_sums(f, p, sums, before, done);                            \
    } while (0)

INLINE void end_unit(const struct unit *u, const __m512 *p)
{
    UNROLL_16
    for (int r = 0; r < PANEL_ROWS; r++) add_acts(u->total, u->mask, p[r], u->x->d[u->b / 4], r);
}

/* Heads of one block.  What is finished before the first unit goes nowhere. */
INLINE void product_by_blocks(const struct matmul_form f, const struct panel_job *j)
{
    _Alignas(64) tile_sums sums[4] = {{{0}}};
    _Alignas(64) panel_sums nowhere;
    struct unit before = {.w = j->w, .x = j->x, .total = &nowhere};
    __m512 p[PANEL_ROWS];
    UNROLL_16
    for (int r = 0; r < PANEL_ROWS; r++) p[r] = _mm512_setzero_ps();
    __asm__ volatile("" ::: "memory"); /* to gcc loads of tiles are no reads of what was written */
    _tile_zero(3);
    for (int c = 0; c < j->n_groups; c++) {
        int part = 0;
        for (int64_t b = 0; b < j->n_blocks; b += 4) {
            const uint8_t *codes = j->w[c].codes[0][b][0];
            const int8_t *q = panel_q(j->x, b, 0);
            for (int n = 0; n < j->n_panels; n++, part++, q += panel_bytes(f)) {
                const struct unit u = {.w = &j->w[c],
                                       .x = panel_at(f, j->x, n),
                                       .total = &j->total[n][c],
                                       .b = b,
                                       .mask = j->begin && b == 0 ? 0 : 0xffff};
                STEP(0, 3, 4, 6, &before, 1);
                STEP(1, 0, 5, 7, &before, 2);
                STEP(2, 1, 4, 6, &before, 3);
                end_unit(&before, p);
                STEP(3, 2, 5, 7, &u, 0);
                panel_ask(f, j, c, part);
                before = u;
            }
        }
    }
    TILE_STORE(3, sums, sizeof sums - sizeof sums[0]);
    __asm__ volatile("" ::: "memory");
    UNROLL
    for (int i = 1; i < 4; i++) add_sums(f, p, sums, &before, i);
    end_unit(&before, p);
}

/* Integer sums of a run: of panel n and plane s, sums[2 * n + s]. */
struct run_tiles {
    _Alignas(64) tile_sums sums[4];
};

/* Four rows of a unit: part 0 .. 3 of its first panel, 4 .. 7 of its second; p waits where a block of x has
 * several runs. */
INLINE void finish_part(const struct matmul_form f, const struct unit *u, const struct head *h,
                        const struct run_tiles *t, const int run, const int part)
{
    const int panel = part / 4, r0 = part % 4 * 4;
    const struct row_panel *x = panel_at(f, u->x, panel);
    const float *d = x->d[u->b / 4];
    UNROLL
    for (int r = r0; r < r0 + 4; r++) {
        const __m512i low = _mm512_load_si512(t->sums[2 * panel][r]);
        const __m512 sum = n_planes(f) > 1
                               ? join_planes(f, low, _mm512_load_si512(t->sums[2 * panel + 1][r]))
                               : _mm512_cvtepi32_ps(low);
        const bool first = run == 4 || u->b % 4 == 0, last = run == 4 || !first;
        const __m512 p0 = first ? _mm512_setzero_ps() : _mm512_load_ps(u->waiting[panel][r]);
        const __m512 p = add_head(f, p0, sum, h, x, u->b, run, r);
        if (last)
            add_acts(&u->total[panel * PANEL_GROUPS], u->mask, p, d, r);
        else
            _mm512_store_ps(u->waiting[panel][r], p);
    }
}

/* Product i of a unit's n_products, and that share of what has to be done for the unit before: tiles and
 * vectors work side by side only if they take turns closely. */
#define PRODUCT(step, panel, plane, sum, rows, weights)                                          \
    do {                                                                                         \
        if ((panel) < n && (plane) < n_planes(f) && 2 * (step) < run) {                          \
            const int i = ((step)*n + (panel)) * n_planes(f) + (plane);                          \
            const int n_products = run / 2 * n * n_planes(f);                                    \
            if ((panel) == 0)                                                                    \
                TILE_LOAD(weights, codes, (plane) * sizeof u->w->codes[0] + (step)*1024);        \
            if ((plane) == 0) TILE_LOAD(rows, q + (panel) * panel_bytes(f), (step)*1024);        \
            if ((step) == 0) _tile_zero(sum);                                                    \
            UNROLL                                                                               \
            for (int part = 4 * n * i / n_products; part < 4 * n * (i + 1) / n_products; part++) \
                finish_part(f, before, &h, last, run, part);                                     \
            MULTIPLY(sum, rows, weights, is_unsigned(f, plane));                                 \
        }                                                                                        \
    } while (0)

#define STORE(panel, plane, sum)              \
    if ((panel) < n && (plane) < n_planes(f)) \
    TILE_STORE(sum, next->sums, (sum) * sizeof next->sums[0])

/* Tiles 0 .. 3: sums of two panels and planes; 4, 5: rows; 6, 7: weights. */
INLINE void multiply_unit(const struct matmul_form f, const struct unit *u,
                          const struct unit *before, struct run_tiles *next,
                          const struct run_tiles *last, const int n, const int run)
{
    const struct head h = load_head(f, before->w, before->b, run);
    const uint8_t *codes = u->w->codes[0][u->b][0];
    const int8_t *q = panel_q(u->x, u->b, 0);
    PRODUCT(0, 0, 0, 0, 4, 6);
    PRODUCT(0, 0, 1, 1, 4, 7);
    PRODUCT(0, 1, 0, 2, 5, 6);
    PRODUCT(0, 1, 1, 3, 5, 7);
    PRODUCT(1, 0, 0, 0, 4, 6);
    PRODUCT(1, 0, 1, 1, 4, 7);
    STORE(0, 0, 0);
    PRODUCT(1, 1, 0, 2, 5, 6);
    STORE(0, 1, 1);
    PRODUCT(1, 1, 1, 3, 5, 7);
    STORE(1, 0, 2);
    STORE(1, 1, 3);
    __asm__ volatile("" ::: "memory");
}

/* Panels p0 .. p1 - 1, n at a time.  What is finished before the first unit goes nowhere. */
INLINE void product_by_runs(const struct matmul_form f, const struct panel_job *j, const int n,
                            const int run, int p0, int p1)
{
    struct run_tiles t[2] = {{{{{0}}}}};
    _Alignas(64) panel_sums waiting[N_PANELS], nowhere[PANEL_GROUPS + 1];
    struct unit before = {.w = j->w, .x = j->x, .total = nowhere, .waiting = nowhere};
    int turn = 0;
    __asm__ volatile("" ::: "memory");
    for (int c = 0; c < j->n_groups; c++) {
        int part = 0;
        for (int64_t b = 0; b < (j->n_blocks + 3) / 4 * 4; b += run)
            for (int p = p0; p < p1; p += n, part++, turn ^= 1) {
                const struct unit u = {.w = &j->w[c],
                                       .x = panel_at(f, j->x, p),
                                       .total = &j->total[p][c],
                                       .waiting = &waiting[p],
                                       .b = b,
                                       .mask = j->begin && b < 4 ? 0 : 0xffff};
                multiply_unit(f, &u, &before, &t[turn], &t[turn ^ 1], n, run);
                panel_ask(f, j, c, part);
                before = u;
            }
    }
    const struct head h = load_head(f, before.w, before.b, run);
    UNROLL
    for (int part = 0; part < 4 * n; part++) finish_part(f, &before, &h, &t[turn ^ 1], run, part);
}

/* Finished sums to the rows that they belong to. */
INLINE void store_sums(const struct panel_job *j)
{
    for (int r = 0; r < j->n_rows; r++)
        for (int c = 0; c < j->n_groups; c++) {
            const __m512 sums = _mm512_load_ps(j->total[r / PANEL_ROWS][c][r % PANEL_ROWS]);
            float *out = j->out[r] + c * IMAGE_ROWS;
            if (j->stream)
                _mm512_stream_ps(out, sums);
            else
                _mm512_mask_storeu_ps(out, panel_mask(j, c), sums);
        }
}

/* All rows of some panels against some groups. */
INLINE void product_tiles(const struct matmul_form f, const struct panel_job *j, const int run)
{
    const int pairs = j->n_panels / 2 * 2;
    if (run == 1) product_by_blocks(f, j);
    if (run > 1 && pairs) product_by_runs(f, j, 2, run, 0, pairs);
    if (run > 1 && pairs < j->n_panels) product_by_runs(f, j, 1, run, pairs, j->n_panels);
    if (j->end) store_sums(j);
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t r,             \
                            int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *own) \
    {                                                                                           \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                 \
        panel_walk(f, tile_codes, product_tiles, panel_silu, d, i, g, r, n_rows, k0, t, own);   \
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

static void lay_out(const struct drive *d, int64_t i, int64_t r)
{
    panel_rows(d, i, r, 0);
}

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
    u.panel_rows = PANEL_ROWS;
    u.panel_bytes = panel_bytes(*qrn_matmul_form(j->w->dtype));
    u.lay_out = lay_out;
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
MATMUL_SILU_JOINT(amx_q8);
