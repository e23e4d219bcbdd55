/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rounded rows with AMX: tiles of 16 rows by 16 outputs, an integer
 * product for each 32 k, then the sums in matmul_drive.h, in registers.  Few rows go by vpdpbusd,
 * which gives the same bits. */
#include <string.h>

#include "backends/cpu/amx/tiles.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"
#include "backends/cpu/matmul_codes_avx512.h"

/* Fewer rows of one matrix are not worth unpacking its weights for. */
enum { MANY_ROWS = 12 };

/* Columns and groups whose weights are unpacked together; rows that stay in the first cache. */
enum { CHUNK_K = 512, CHUNK_BLOCKS = CHUNK_K / 32, CHUNK_GROUPS = 32, TILE = 16, N_TILES = 3 };

/* One group of weights: what tiles read, signed bytes as v[q] of matmul_image.h. */
struct weight_panel {
    int8_t codes[CHUNK_BLOCKS][8][64];
    float d[CHUNK_BLOCKS][TILE], m[CHUNK_BLOCKS][TILE];
};

/* 16 rows of x. */
struct row_panel {
    int8_t q[CHUNK_BLOCKS][TILE][32];
    float d[CHUNK_BLOCKS][TILE], d_sum[CHUNK_BLOCKS][TILE];
    float *out[TILE];
};

struct panels {
    struct weight_panel w[CHUNK_GROUPS];
    struct row_panel x[N_TILES];
    float nowhere[CHUNK_GROUPS * IMAGE_ROWS]; /* where missing rows are summed */
};

/* Codes that do not fit in signed bytes stay unsigned. */
INLINE bool is_unsigned(const struct matmul_form f)
{
    return f.levels == LEVELS_LINEAR && f.bits == 8 && f.offset == 0;
}

/* A block's codes as signed bytes. */
INLINE void put_codes(const struct matmul_form f, const char *image, __m512i table, int8_t *out)
{
    __m512i v[8];
    load_codes_512(f, image, v);
    for (int q = 0; q < 8; q++) {
        if (f.levels != LEVELS_LINEAR)
            v[q] = _mm512_shuffle_epi8(table, v[q]);
        else if (f.offset)
            v[q] = _mm512_sub_epi8(v[q], _mm512_set1_epi8((char)f.offset));
        _mm512_store_si512(out + 64 * q, v[q]);
    }
}

INLINE void unpack_form(const struct matmul_form f, const char *w, int64_t k, int64_t mlx_blocks,
                        struct weight_panel *out)
{
    const int64_t blocks = f.blocks ? f.blocks : mlx_blocks;
    const __m512i table = levels_512(f, 0);
    for (int64_t b = 0; b < k / 32;) {
        const __m512 head_d = load_head_512(f, w, 0);
        const __m512 head_m = matmul_has_min(&f) ? load_head_512(f, w, 1) : head_d;
        w += image_head_bytes(&f);
        for (int64_t i = 0; i < blocks; i++, b++, w += image_block_bytes(&f)) {
            const struct scales_512 s = load_scales_512(f, w);
            const bool scaled = f.sub != SUB_NONE;
            for (size_t at = 0; at < image_block_bytes(&f); at += 64)
                _mm_prefetch(w + AHEAD_BYTES + at, _MM_HINT_T0);
            _mm512_store_ps(out->d[b], scaled ? _mm512_mul_ps(head_d, s.s[0]) : head_d);
            if (f.sub == SUB_SCALE_MIN) /* to be added, as other minima are */
                _mm512_store_ps(out->m[b],
                                _mm512_mul_ps(head_m, _mm512_sub_ps(_mm512_setzero_ps(), s.t[0])));
            else if (matmul_has_min(&f))
                _mm512_store_ps(out->m[b], head_m);
            put_codes(f, w + image_block_bytes(&f) - 64 * (size_t)f.bits, table, out->codes[b][0]);
        }
    }
}

/* Sums of block b, which wait in memory, to 16 rows. */
INLINE void add_sums(const struct matmul_form f, __m512 acc[TILE], const int32_t *sums,
                     const struct weight_panel *w, const struct row_panel *x, int64_t b)
{
    const __m512 d = _mm512_load_ps(w->d[b]);
    for (int r = 0; r < TILE; r++)
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + TILE * r)),
                                 _mm512_mul_ps(d, _mm512_set1_ps(x->d[b][r])), acc[r]);
    if (!matmul_has_min(&f)) return;
    const __m512 m = _mm512_load_ps(w->m[b]);
    for (int r = 0; r < TILE; r++)
        acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(x->d_sum[b][r]), m, acc[r]);
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
    _Alignas(64) int32_t sums[4][TILE * TILE];
    __m512 acc[TILE];
    for (int r = 0; r < TILE; r++)
        acc[r] = begin ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, x->out[r] + first);
    for (int64_t b = 0; b < n_blocks + 3; b += 4) {
        STEP(0, 0, 3, 4, 6);
        STEP(1, 1, 0, 5, 7);
        STEP(2, 2, 1, 4, 6);
        STEP(3, 3, 2, 5, 7);
    }
    for (int r = 0; r < TILE; r++) _mm512_mask_storeu_ps(x->out[r] + first, mask, acc[r]);
}

/* Rows r .. r + n - 1 of those that matrix i meets; the others are zeros. */
static void pack_rows(const struct drive *d, int64_t i, int64_t r, int n, int64_t k0, int64_t k,
                      int64_t g, float *nowhere, struct row_panel *out)
{
    for (int c = 0; c < TILE; c++) {
        if (c >= n) {
            for (int64_t b = 0; b < k / 32; b++) {
                memset(out->q[b][c], 0, 32);
                out->d[b][c] = out->d_sum[b][c] = 0.0f;
            }
            out->out[c] = nowhere;
            continue;
        }
        const struct matmul_row row = matmul_row_at(d->j, i, r + c);
        const struct qrn_q8_act *x = drive_x(d, &row, k0);
        for (int64_t b = 0; b < k / 32; b++) {
            memcpy(out->q[b][c], x[b].q, 32);
            out->d[b][c] = x[b].d;
            out->d_sum[b][c] = x[b].d_sum;
        }
        out->out[c] = row.out + g * IMAGE_ROWS;
    }
}

INLINE void many(const struct matmul_form f, const struct drive *d, int64_t i, int64_t g,
                 int64_t k0, const struct matmul_tile *t, struct panels *own)
{
    const int64_t n_rows = matmul_n_rows(d->j, i);
    for (int c = 0; c < t->n_groups; c++)
        unpack_form(f, t->w + (size_t)c * t->group_bytes, t->k, t->mlx_blocks, &own->w[c]);
    for (int64_t r0 = 0; r0 < n_rows; r0 += N_TILES * TILE) {
        int n_tiles = 0;
        for (; n_tiles < N_TILES && r0 + n_tiles * TILE < n_rows; n_tiles++) {
            const int64_t r = r0 + n_tiles * TILE;
            const int n = (int)(n_rows - r < TILE ? n_rows - r : TILE);
            pack_rows(d, i, r, n, k0, t->k, g, own->nowhere, &own->x[n_tiles]);
        }
        for (int c = 0; c < t->n_groups; c++) {
            const int64_t left = t->n - c * IMAGE_ROWS;
            const __mmask16 mask = (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
            for (int n = 0; n < n_tiles; n++)
                product_tile(f, &own->w[c], &own->x[n], t->k / 32, c * IMAGE_ROWS, mask, t->begin);
        }
    }
}

/* Types whose halves have scales would want two integer products for each 32 k. */
#define HALVES(sub) ((sub) == SUB_HALVES || (sub) == SUB_HALVES_MIN)

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t k0,            \
                            const struct matmul_tile *t, char *own)                             \
    {                                                                                           \
        if (!HALVES(sub))                                                                       \
            many((struct matmul_form){bits, blocks, head, sub, offset, levels}, d, i, g, k0, t, \
                 (struct panels *)(void *)own);                                                 \
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
        config.rows[i] = i < 6 ? TILE : 8;
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
    u.many_groups = CHUNK_GROUPS;
    u.many_k = CHUNK_K;
    u.many_bytes = sizeof(struct panels);
    u.enter = enter;
    u.leave = leave;
    return u;
}

static bool takes(const struct matmul_job *j)
{
    return j->q8 && !HALVES(qrn_matmul_form(j->w->dtype)->sub);
}

MATMUL_KERNEL(matmul, amx_q8, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AMX_INT8);
MATMUL_KERNEL(matmul_id, amx_q8, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AMX_INT8);
