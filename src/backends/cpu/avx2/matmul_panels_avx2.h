/* SPDX-License-Identifier: MIT
 * Products of many rounded rows with AVX2: the weights of some groups and columns are unpacked once
 * for some hundreds of rows and stay in the first cache, a group at a time, while rows pass over them
 * four at a time.  Sums wait in the lane's own memory until all columns are in them: rows of out lie
 * far apart, and often a power of two apart. */
#ifndef QUERN_MATMUL_PANELS_AVX2_H
#define QUERN_MATMUL_PANELS_AVX2_H

enum {
    PANEL_K = 512,
    PANEL_BLOCKS = PANEL_K / 32,
    PANEL_ROWS = 4,
    N_PANELS = 4,
    PANEL_GROUPS = 16,
    MOST_ROWS = 528,
    MANY_ROWS = 12 /* fewer of one matrix are not worth unpacking its weights for */
};

/* A group, two halves of 8 rows side by side: codes as dot wants them; small integers of 32 k or their
 * halves, in pairs; pairs for bias and minima; where a head begins or goes on, every four blocks at
 * least, its d and m. */
struct weight_panel {
    __m256i codes[PANEL_BLOCKS][8][2];
    __m256i s[PANEL_BLOCKS][2][2];
    struct sum_pairs pairs[PANEL_BLOCKS][2];
    __m256 d[PANEL_BLOCKS][2], m[PANEL_BLOCKS][2];
};

/* Rows of x lie far apart: four of them side by side. */
struct row_panel {
    struct qrn_q8_act acts[PANEL_ROWS][PANEL_K / QRN_Q8_ACT_BLOCK];
};

/* Sums of four rows with a group. */
typedef __m256 panel_sums[PANEL_ROWS][2];

struct panels {
    struct weight_panel w[PANEL_GROUPS];
    struct row_panel x[N_PANELS];
    panel_sums sums[MOST_ROWS / PANEL_ROWS][PANEL_GROUPS];
};

/* One group of an image; k in whole heads, or in whole halves of heads of 8 blocks. */
INLINE void panel_unpack(const struct matmul_form f, const char *w, int64_t k, int64_t blocks,
                         struct weight_panel *out)
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
                out->s[b][h][half] = pairs_256(sub.s[h], sub.s[h]);
            for (int q = 0; q < 8; q++) out->codes[b][q][half] = v[q];
            out->pairs[b][half] = load_pairs(f, &sub);
            out->d[b][half] = load_head_256(f, head, half, 0);
            if (matmul_has_min(&f)) out->m[b][half] = load_head_256(f, head, half, 1);
        }
    }
}

/* Adds the products of block b with 32 k of the rows, those of the first at x. */
INLINE void panel_block(const struct matmul_form f, const struct weight_panel *w, int64_t b,
                        const int8_t *x, __m256i isum[PANEL_ROWS][2])
{
    enum { NEXT_ROW = sizeof(struct row_panel) / PANEL_ROWS };
    const int most = vectors_in_16_bits(f);
    __m256i part[PANEL_ROWS][2];
    UNROLL for (int q = 0; q < 8; q++)
    {
        const __m256i v[2] = {w->codes[b][q][0], w->codes[b][q][1]};
        const __m256i size[2] = {_mm256_abs_epi8(v[0]), _mm256_abs_epi8(v[1])};
        const __m256i *s = w->s[b][matmul_has_halves(&f) ? q / 4 : 0];
        UNROLL for (int r = 0; r < PANEL_ROWS; r++)
        {
            const __m256i four = broadcast_256(x + NEXT_ROW * r + 4 * q);
            UNROLL for (int half = 0; half < 2; half++)
            {
                const __m256i two =
                    is_signed(f) ? _mm256_maddubs_epi16(size[half], _mm256_sign_epi8(four, v[half]))
                                 : _mm256_maddubs_epi16(v[half], four);
                part[r][half] = q % most ? in_order(_mm256_add_epi16(part[r][half], two)) : two;
                if (q % most < most - 1) continue;
                isum[r][half] = add_pairs(isum[r][half], part[r][half],
                                          f.sub == SUB_NONE ? _mm256_set1_epi16(1) : s[half]);
            }
        }
    }
}

/* What a run of blocks adds to p: sums without their bias, times d, and minima. */
INLINE __m256 panel_finish(const struct matmul_form f, __m256 p, __m256i isum,
                           const struct weight_panel *w, int64_t b, const int run,
                           const int16_t *sums, int half)
{
    __m256i tsum = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < run; i++)
    {
        const __m256i two = broadcast_256(sums + 2 * i);
        if (bias_of(f)) isum = add_pairs(isum, two, w->pairs[b + i][half].bias);
        if (matmul_has_min(&f)) tsum = add_pairs(tsum, two, w->pairs[b + i][half].min);
    }
    p = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), w->d[b][half], p);
    if (!matmul_has_min(&f)) return p;
    const __m256 t = _mm256_cvtepi32_ps(tsum), m = w->m[b][half];
    return f.sub == SUB_NONE ? _mm256_fmadd_ps(t, m, p) : _mm256_fnmadd_ps(t, m, p);
}

/* Four rows against a group, n_blocks blocks, `run` of them under one head. */
INLINE void panel_tile(const struct matmul_form f, const struct weight_panel *w,
                       const struct row_panel *x, int64_t n_blocks, const int run, bool begin,
                       panel_sums *total)
{
    const __m256 zero = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b += 4) {
        __m256 p[PANEL_ROWS][2];
        for (int r = 0; r < PANEL_ROWS; r++) p[r][0] = p[r][1] = zero;
        for (int64_t i = 0; i < 4 && b + i < n_blocks; i += run) {
            __m256i isum[PANEL_ROWS][2];
            for (int r = 0; r < PANEL_ROWS; r++) isum[r][0] = isum[r][1] = _mm256_setzero_si256();
            for (int c = 0; c < run; c++)
                panel_block(f, w, b + i + c, x->acts[0][b / 4].q + 32 * (i + c), isum);
            UNROLL for (int r = 0; r < PANEL_ROWS; r++) UNROLL for (int half = 0; half < 2; half++)
                p[r][half] = panel_finish(f, p[r][half], isum[r][half], w, b + i, run,
                                          x->acts[r][b / 4].sum + 2 * i, half);
        }
        for (int r = 0; r < PANEL_ROWS; r++)
            for (int half = 0; half < 2; half++) {
                const __m256 acc = begin && b == 0 ? zero : (*total)[r][half];
                (*total)[r][half] =
                    _mm256_fmadd_ps(p[r][half], _mm256_set1_ps(x->acts[r][b / 4].d), acc);
            }
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

/* Rows r and on of those that matrix i meets, then zeros; columns k0 .. k0 + k - 1. */
INLINE void panel_rows(const struct drive *d, int64_t i, int64_t r, int64_t k0, int64_t k,
                       struct row_panel *out)
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
    }
}

/* A walk with as many blocks under a head. */
INLINE void panel_walk_of(const struct matmul_form f, const int64_t blocks, const struct drive *d,
                          int64_t i, int64_t g, int64_t r, int64_t n_rows, int64_t k0,
                          const struct matmul_tile *t, struct panels *own)
{
    const int n_panels = (int)((n_rows + PANEL_ROWS - 1) / PANEL_ROWS);
    for (int c = 0; c < t->n_groups; c++)
        panel_unpack(f, t->w + (size_t)c * t->group_bytes, t->k, blocks, &own->w[c]);
    for (int p = 0; p < n_panels; p += N_PANELS) {
        const int n = n_panels - p < N_PANELS ? n_panels - p : N_PANELS;
        for (int s = 0; s < n; s++)
            panel_rows(d, i, r + (p + s) * PANEL_ROWS, k0, t->k, &own->x[s]);
        for (int c = 0; c < t->n_groups; c++)
            for (int s = 0; s < n; s++)
                panel_tile(f, &own->w[c], &own->x[s], t->k / 32, blocks < 4 ? (int)blocks : 4,
                           t->begin, &own->sums[p + s][c]);
    }
    if (k0 + t->k == d->j->k) panel_store(d, i, g, r, n_rows, t, own);
}

/* matmul_unit's many. */
INLINE void panel_walk(const struct matmul_form f, const struct drive *d, int64_t i, int64_t g,
                       int64_t r, int64_t n_rows, int64_t k0, const struct matmul_tile *t,
                       char *memory)
{
    struct panels *own = (struct panels *)(void *)memory;
    if (f.blocks)
        panel_walk_of(f, f.blocks, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 1)
        panel_walk_of(f, 1, d, i, g, r, n_rows, k0, t, own);
    else if (t->mlx_blocks == 2)
        panel_walk_of(f, 2, d, i, g, r, n_rows, k0, t, own);
    else
        panel_walk_of(f, 4, d, i, g, r, n_rows, k0, t, own);
}

#endif
