/* SPDX-License-Identifier: MIT
 * Products of many rounded rows on 256-bit vectors: the weights of some groups and columns are unpacked once
 * for some hundreds of rows and stay in the first cache, a group at a time, while panels of rows pass over
 * them.  Sums wait in the lane's own memory until all columns are in them: rows of out lie far apart, and
 * often a power of two apart.  What includes this says beforehand how many rows a panel has, and how many panels
 * stay in the first cache:
 *     enum { PANEL_ROWS = ..., N_PANELS = ... };
 * and, beside what matmul_q8_avx2.inc wants, gives panel_walk a tile, the products of one with a group, and how
 * that wants small integers. */
#ifndef QUERN_MATMUL_PANELS_AVX2_H
#define QUERN_MATMUL_PANELS_AVX2_H

enum {
    PANEL_K = 512,
    PANEL_BLOCKS = PANEL_K / 32,
    PANEL_GROUPS = 16,
    MOST_ROWS = 528,
    MANY_ROWS = 12 /* fewer of one matrix are not worth unpacking its weights for */
};

/* A group, two halves of 8 rows side by side: codes as they enter; small integers of 32 k or their
 * halves, as the tile wants them; pairs for bias and minima, where panel_pairs those of block b and the
 * next one's at b; where a head begins or goes on, every four blocks at least, its d and m. */
struct weight_panel {
    __m256i codes[PANEL_BLOCKS][8][2];
    __m256i s[PANEL_BLOCKS][2][2];
    struct sum_pairs pairs[PANEL_BLOCKS][2];
    __m256 d[PANEL_BLOCKS][2], m[PANEL_BLOCKS][2];
};

/* Rows of x lie far apart: those of a panel side by side.  starts: -bias times the sums of blocks, or of their
 * halves where these have small integers; sums: of blocks, where panel_pairs; run_sums: of runs, where minima have no
 * small integers. */
struct row_panel {
    struct qrn_q8_act acts[PANEL_ROWS][PANEL_K / QRN_Q8_ACT_BLOCK];
    int32_t starts[PANEL_ROWS][2 * PANEL_BLOCKS];
    union {
        int16_t sums[PANEL_ROWS][PANEL_BLOCKS];
        float run_sums[PANEL_ROWS][PANEL_BLOCKS];
    };
};

/* Sums of a panel's rows with a group. */
typedef __m256 panel_sums[PANEL_ROWS][2];

/* A panel against a group, n_blocks blocks, `run` of them under one head; added to total, or new. */
typedef void panel_tile_fn(const struct matmul_form f, const struct weight_panel *w,
                           const struct row_panel *x, int64_t n_blocks, const int run, bool begin,
                           panel_sums *total);
/* Small integers as the tile wants them. */
typedef __m256i panel_factor_fn(const struct matmul_form f, __m256i s);

/* Whether one product of pairs takes the minima of two blocks; `blocks` have one head. */
INLINE bool panel_pairs(const struct matmul_form f, const int64_t blocks)
{
    return blocks % 2 == 0 && !matmul_has_halves(&f);
}

struct panels {
    struct weight_panel w[PANEL_GROUPS];
    struct row_panel x[N_PANELS];
    panel_sums sums[MOST_ROWS / PANEL_ROWS][PANEL_GROUPS];
};

/* One group of an image; k in whole heads, or in whole halves of heads of 8 blocks. */
INLINE void panel_unpack(const struct matmul_form f, const char *w, int64_t k, const int64_t blocks,
                         panel_factor_fn factor, struct weight_panel *out)
{
    const __m256i table = levels_256(f, bias_of(f));
    const char *head = w;
    for (int64_t b = 0; b < k / 32; b++, w += image_block_bytes(&f)) {
        if (b % blocks == 0) {
            head = w;
            w += image_head_bytes(&f);
        }
        for (size_t at = 0; at < image_block_bytes(&f); at += 64)
            _mm_prefetch(w + AHEAD_BYTES + at, _MM_HINT_T0);
        for (int half = 0; half < 2; half++) {
            __m256i v[8];
            const struct subs_256 sub = load_subs_256(f, w, half);
            load_weights(f, w, half, table, v);
            for (int h = 0; h < 2 && f.sub != SUB_NONE; h++)
                out->s[b][h][half] = factor(f, sub.s[h]);
            for (int q = 0; q < 8; q++) out->codes[b][q][half] = v[q];
            out->pairs[b][half] = load_pairs(f, &sub);
            out->d[b][half] = load_head_256(f, head, half, 0);
            if (!matmul_has_min(&f)) continue;
            out->m[b][half] = load_head_256(f, head, half, 1);
            if (b % 2 && panel_pairs(f, blocks))
                out->pairs[b - 1][half].min =
                    _mm256_blend_epi16(out->pairs[b - 1][half].min, out->pairs[b][half].min, 0xaa);
        }
    }
}

/* The sums of minima of row r, the run of blocks from b on. */
INLINE __m256i panel_minima(const struct matmul_form f, const struct weight_panel *w,
                            const struct row_panel *x, int64_t b, const int run, int r, int half)
{
    const int step = panel_pairs(f, run) ? 2 : 1;
    const int16_t *sums = step == 2 ? &x->sums[r][b] : &x->acts[r][b / 4].sum[b % 4 * 2];
    __m256i tsum = _mm256_setzero_si256();
    UNROLL
    for (int i = 0; i < run; i += step)
        tsum = add_pairs(tsum, broadcast_256(sums + 2 * i / step), w->pairs[b + i][half].min);
    return tsum;
}

/* What a run of blocks from b on adds to p: integer sums, without their bias, times d, and minima. */
INLINE __m256 panel_finish(const struct matmul_form f, __m256 p, __m256 isum,
                           const struct weight_panel *w, const struct row_panel *x, int64_t b,
                           const int run, int r, int half)
{
    p = _mm256_fmadd_ps(isum, w->d[b][half], p);
    if (!matmul_has_min(&f)) return p;
    if (f.sub == SUB_NONE)
        return _mm256_fmadd_ps(_mm256_set1_ps(x->run_sums[r][b]), w->m[b][half], p);
    return _mm256_fnmadd_ps(_mm256_cvtepi32_ps(panel_minima(f, w, x, b, run, r, half)),
                            w->m[b][half], p);
}

/* 128 k of x, block b on, times d: added to what there is, or new. */
INLINE void panel_end(const struct row_panel *x, int64_t b, bool begin, __m256 p[PANEL_ROWS][2],
                      panel_sums *total)
{
    UNROLL
    for (int r = 0; r < PANEL_ROWS; r++) UNROLL
    for (int half = 0; half < 2; half++) {
        const __m256 acc = begin && b == 0 ? _mm256_setzero_ps() : (*total)[r][half];
        (*total)[r][half] = _mm256_fmadd_ps(p[r][half], _mm256_set1_ps(x->acts[r][b / 4].d), acc);
    }
}

/* Finished sums to the rows they belong to: n_rows rows from r on. */
INLINE void panel_store(const struct drive *d, int64_t i, int64_t g, int64_t r, int64_t n_rows,
                        const struct matmul_tile *t, const struct panels *own)
{
    for (int64_t n = 0; n < n_rows; n++) {
        float *out = matmul_row_at(d->j, i, r + n).out + g * IMAGE_ROWS;
        const panel_sums *sums = own->sums[n / PANEL_ROWS];
        for (int c = 0; c < 2 * t->n_groups; c++)
            _mm256_maskstore_ps(out + 8 * c, first_lanes(t->n - 8 * c),
                                sums[c / 2][n % PANEL_ROWS][c % 2]);
    }
}

/* What is worked out of sums of row r, 128 k from block b on. */
INLINE void panel_row_sums(const struct matmul_form f, const int64_t blocks, int64_t b, int r,
                           struct row_panel *out)
{
    const __m128i halves = _mm_loadu_si128((const void *)out->acts[r][b / 4].sum);
    __m128i sums = _mm_madd_epi16(halves, _mm_set1_epi16(1));
    if (bias_of(f) && matmul_has_halves(&f))
        _mm256_storeu_si256(
            (void *)&out->starts[r][2 * b],
            _mm256_mullo_epi32(_mm256_cvtepi16_epi32(halves), _mm256_set1_epi32(-bias_of(f))));
    else if (bias_of(f))
        _mm_storeu_si128((void *)&out->starts[r][b],
                         _mm_mullo_epi32(sums, _mm_set1_epi32(-bias_of(f))));
    if (!matmul_has_min(&f)) return;
    if (f.sub == SUB_NONE) {
        if (blocks > 1) sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1));
        if (blocks > 2) sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
        _mm_storeu_ps(&out->run_sums[r][b], _mm_cvtepi32_ps(sums));
    } else if (panel_pairs(f, blocks)) {
        _mm_storel_epi64((void *)&out->sums[r][b], _mm_packs_epi32(sums, sums));
    }
}

/* Rows r and on of those that matrix i meets, then zeros; columns k0 .. k0 + k - 1. */
INLINE void panel_rows(const struct matmul_form f, const int64_t blocks, const struct drive *d,
                       int64_t i, int64_t r, int64_t k0, int64_t k, struct row_panel *out)
{
    const int64_t n_rows = matmul_n_rows(d->j, i) - r;
    const size_t n_acts = (size_t)((k + QRN_Q8_ACT_BLOCK - 1) / QRN_Q8_ACT_BLOCK);
    for (int c = 0; c < PANEL_ROWS; c++) {
        struct qrn_q8_act *acts = out->acts[c];
        if (c < n_rows) {
            const struct matmul_row row = matmul_row_at(d->j, i, r + c);
            memcpy(acts, drive_x(d, &row, k0), n_acts * sizeof *acts);
        } else {
            memset(acts, 0, n_acts * sizeof *acts);
        }
        for (int64_t b = 0; b < 4 * (int64_t)n_acts; b += 4) panel_row_sums(f, blocks, b, c, out);
    }
}

/* A walk with as many blocks under a head. */
INLINE void panel_walk_of(const struct matmul_form f, const int64_t blocks, panel_factor_fn factor,
                          panel_tile_fn tile, const struct drive *d, int64_t i, int64_t g,
                          int64_t r, int64_t n_rows, int64_t k0, const struct matmul_tile *t,
                          struct panels *own)
{
    const int n_panels = (int)((n_rows + PANEL_ROWS - 1) / PANEL_ROWS);
    for (int c = 0; c < t->n_groups; c++)
        panel_unpack(f, t->w + (size_t)c * t->group_bytes, t->k, blocks, factor, &own->w[c]);
    for (int p = 0; p < n_panels; p += N_PANELS) {
        const int n = n_panels - p < N_PANELS ? n_panels - p : N_PANELS;
        for (int s = 0; s < n; s++)
            panel_rows(f, blocks, d, i, r + (p + s) * PANEL_ROWS, k0, t->k, &own->x[s]);
        for (int c = 0; c < t->n_groups; c++)
            for (int s = 0; s < n; s++)
                tile(f, &own->w[c], &own->x[s], t->k / 32, blocks < 4 ? (int)blocks : 4, t->begin,
                     &own->sums[p + s][c]);
    }
    if (k0 + t->k == d->j->k) panel_store(d, i, g, r, n_rows, t, own);
}

/* matmul_unit's many. */
INLINE void panel_walk(const struct matmul_form f, panel_factor_fn factor, panel_tile_fn tile,
                       const struct drive *d, int64_t i, int64_t g, int64_t r, int64_t n_rows,
                       int64_t k0, const struct matmul_tile *t, char *memory)
{
    struct panels *own = (struct panels *)(void *)memory;
    if (f.blocks)
        panel_walk_of(f, f.blocks, factor, tile, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 1)
        panel_walk_of(f, 1, factor, tile, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 2)
        panel_walk_of(f, 2, factor, tile, d, i, g, r, n_rows, k0, t, own);
    else
        panel_walk_of(f, 4, factor, tile, d, i, g, r, n_rows, k0, t, own);
}

#endif
