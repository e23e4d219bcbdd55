/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with vpdpbusd: 16 rows in lanes, for each 32 k an
 * exact integer sum, then the sums in matmul_drive.h. */
#include <string.h>

#include "backends/cpu/avx512/q8_act_avx512.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"
#include "backends/cpu/unroll.h"

enum { PANEL_ROWS = 12, PANEL_K = 512, N_PANELS = 2, PANEL_GROUPS = 16, N_PLANES = 1, ASK_WEIGHTS = 1 };

#include "backends/cpu/matmul_panels_avx512.h"

/* Fewer rows of one matrix are not worth unpacking its weights for; columns that they meet at once. */
enum { MANY_ROWS = 24, FEW_K = 16384 };

/* vpdpbusd wants weights unsigned. */
INLINE int bias_of(const struct matmul_form f)
{
    return f.levels == LEVELS_IQ4 ? 128 : f.levels == LEVELS_FP4 ? 12 : f.offset;
}

/* Whether sums of 128 k times small integers are below 2^24: floats hold them exactly, and multiply
 * and add at once. */
INLINE bool float_sums(const struct matmul_form f)
{
    const int s = f.sub == SUB_SCALE_MIN ? 63 : f.sub == SUB_HALVES_MIN ? 15 : 32;
    const int level = (1 << f.bits) - 1;
    if (f.sub == SUB_NONE || f.levels != LEVELS_LINEAR || f.bits == 6) return false;
    return 128 * 127 * level * s < 1 << 24;
}

INLINE __m512 float_sum(const struct matmul_form f, __m512i sum)
{
    return float_sums(f) ? _mm512_castsi512_ps(sum) : _mm512_cvtepi32_ps(sum);
}

/* Small integers as add_scaled wants them. */
INLINE __m512i as_factor(const struct matmul_form f, __m512i s)
{
    return float_sums(f) ? _mm512_castps_si512(_mm512_cvtepi32_ps(s)) : s;
}

/* sum + dot * s; sum: integers, or floats where those hold them. */
INLINE __m512i add_scaled(const struct matmul_form f, __m512i sum, __m512i dot, __m512i s)
{
    if (float_sums(f))
        return _mm512_castps_si512(_mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_castsi512_ps(s),
                                                   _mm512_castsi512_ps(sum)));
    sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, s));
    __asm__("" : "+v"(sum)); /* here, not with all others at the end */
    return sum;
}

/* What several rows of x add to sums of codes beside them, made once for all groups that they meet: of each block, or
 * half of one, if these have small integers of their own, or run of them, if there are none, -bias times its sum; or of
 * each two blocks their sums as a pair of 16 bits, for minima. */
typedef int32_t few_row[FEW_K / 16 + 8];
struct few_sums {
    few_row of[MAX_TILE_ROWS];
};

INLINE bool has_few_sums(const struct matmul_form f, const int n_rows)
{
    return n_rows > 1 && (f.sub == SUB_SCALE_MIN || bias_of(f));
}

INLINE void few_sums(const struct matmul_form f, const struct matmul_tile *t, const int run, struct few_sums *out)
{
    for (int r = 0; r < t->n_rows; r++) {
        const struct qrn_q8_act *x = t->x[r];
        for (int64_t b = 0; b < t->k / 32; b += 4, x++) {
            const __m128i halves = _mm_loadu_si128((const void *)x->sum);
            __m128i sums = _mm_madd_epi16(halves, _mm_set1_epi16(1));
            if (f.sub == SUB_SCALE_MIN) {
                _mm_storel_epi64((void *)&out->of[r][b / 2], _mm_packs_epi32(sums, sums));
                continue;
            }
            if (matmul_has_halves(&f)) {
                _mm256_storeu_si256((void *)&out->of[r][2 * b],
                                    _mm256_mullo_epi32(_mm256_cvtepi16_epi32(halves), _mm256_set1_epi32(-bias_of(f))));
                continue;
            }
            if (f.sub == SUB_NONE && run >= 2) sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1));
            if (f.sub == SUB_NONE && run == 4) sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
            _mm_storeu_si128((void *)&out->of[r][b], _mm_mullo_epi32(sums, _mm_set1_epi32(-bias_of(f))));
        }
    }
}

/* sum + the products of v with the four codes at x, which the instruction repeats by itself: gcc makes two of it, and the
 * fewer instructions there are, the more weights are under way.  With four rows or more that is not what counts. */
INLINE __m512i dot_512(__m512i sum, __m512i v, const int8_t *x)
{
    const struct four {
        int8_t codes[4];
    } *four = (const void *)x;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(v), "m"(*four));
    return sum;
}

/* Block i of x's blocks, 32 k, against 16 weight rows: codes at `codes`, small integers w; added to
 * isum.  Rows inside, so that no sum waits for the one before it; codes are unpacked where they are
 * needed, for registers are few.  Where sums begin: at starts[r][at], that of its second half behind it; NULL: at 0. */
INLINE void add_block(const struct matmul_form f, const char *codes, const struct subs_512 *w,
                      const struct qrn_q8_act *const *x, int i, const few_row *starts, int64_t at, const int n_rows,
                      __m512i *isum)
{
    const bool scaled = f.sub != SUB_NONE;
    const int n_parts = matmul_has_halves(&f) ? 2 : 1, n = 8 / n_parts;
    const __m512i table = levels_512(f, bias_of(f));
    UNROLL
    for (int h = 0; h < n_parts; h++) {
        const __m512i s = as_factor(f, w->s[h]);
        __m512i dots[MAX_TILE_ROWS];
        UNROLL
        for (int r = 0; r < n_rows; r++)
            dots[r] = !scaled  ? isum[r]
                      : starts ? _mm512_set1_epi32(starts[r][at + h])
                               : _mm512_setzero_si512();
        UNROLL
        for (int q = n * h; q < n * h + n; q++) {
            if (q == 4) __asm__("" : "+r"(codes)); /* nothing of the first half is kept */
            __m512i v = load_code_512(f, codes, q);
            if (f.levels != LEVELS_LINEAR) v = _mm512_shuffle_epi8(table, v);
            UNROLL
            for (int r = 0; r < n_rows; r++)
                dots[r] = n_rows < 4 ? dot_512(dots[r], v, x[r]->q + 32 * i + 4 * q)
                                     : _mm512_dpbusd_epi32(dots[r], v, broadcast_512(x[r]->q + 32 * i + 4 * q));
        }
        UNROLL
        for (int r = 0; r < n_rows; r++)
            isum[r] = scaled ? add_scaled(f, isum[r], dots[r], s) : dots[r];
    }
}

/* What the two sums of a block of x are multiplied by, as pairs of 16 bits: factors of the minimum,
 * or, for what codes have too much of, -bias times the small integers. */
INLINE __m512i sum_pairs(const struct matmul_form f, const struct subs_512 *w)
{
    const uint32_t less = (uint32_t)-bias_of(f) & 0xffff;
    if (matmul_has_min(&f)) return min_pairs_512(f, w);
    if (f.sub == SUB_NONE) return _mm512_set1_epi32((int)(less << 16 | less));
    const __m512i s = _mm512_mask_blend_epi16(0xaaaaaaaa, w->s[0],
                                              _mm512_slli_epi32(w->s[matmul_has_halves(&f)], 16));
    return _mm512_mullo_epi16(s, _mm512_set1_epi16((short)-bias_of(f)));
}

/* Where a product is in an image, and the head there; ahead: how weights are asked for, or NULL. */
struct place {
    const char *w;
    __m512 d, m;
    const struct ahead *ahead;
};

INLINE void take_head(const struct matmul_form f, struct place *at)
{
    at->d = load_head_512(f, at->w, 0);
    at->m = matmul_has_min(&f) ? load_head_512(f, at->w, 1) : at->d;
    at->w += image_head_bytes(&f);
}

/* A run's sums of codes, and of the products of sum_pairs, added to p. */
INLINE __m512 finish_sums(const struct matmul_form f, __m512 p, __m512i isum, __m512i tsum,
                          __m512 d, __m512 m)
{
    if (!bias_of(f)) return finish_run(f, p, float_sum(f, isum), tsum, d, m);
    const __m512 sum = float_sums(f)
                           ? _mm512_add_ps(_mm512_castsi512_ps(isum), _mm512_cvtepi32_ps(tsum))
                           : _mm512_cvtepi32_ps(_mm512_add_epi32(isum, tsum));
    return finish_run(f, p, sum, tsum, d, m);
}

/* A run of blocks under one head, from block i on of x's, b of the tile's: added to p, or new.  The products of x's sums
 * come last: before, registers are few. */
INLINE void add_run(const struct matmul_form f, struct place *at, const struct qrn_q8_act *const *x,
                    const struct few_sums *sums, int r0, int64_t b, int i, const int run, const bool first,
                    const int n_rows, __m512 *p)
{
    const bool few = has_few_sums(f, n_rows), starts = few && bias_of(f);
    const int n_parts = matmul_has_halves(&f) ? 2 : 1;
    __m512i isum[MAX_TILE_ROWS], pairs[4];
    UNROLL
    for (int r = 0; r < n_rows; r++)
        isum[r] = starts && f.sub == SUB_NONE ? _mm512_set1_epi32(sums->of[r0 + r][b]) : _mm512_setzero_si512();
    NO_UNROLL
    for (int c = 0; c < run; c++, at->w += image_block_bytes(&f)) {
        if (at->ahead) ask_ahead_by(*at->ahead, at->w, image_block_bytes(&f));
        const struct subs_512 subs = load_subs_512(f, at->w);
        add_block(f, at->w + image_block_bytes(&f) - 64 * (size_t)f.bits, &subs, x, i + c,
                  starts ? &sums->of[r0] : NULL, (b + c) * n_parts, n_rows, isum);
        if (!starts) pairs[c] = sum_pairs(f, &subs);
    }
    if (few && !starts)
        for (int c = 0; c < run; c += 2) pairs[c] = _mm512_mask_blend_epi16(0xaaaaaaaa, pairs[c], pairs[c + 1]);
    UNROLL
    for (int r = 0; r < n_rows; r++) {
        const __m512 before = first ? _mm512_setzero_ps() : p[r];
        __m512i tsum = _mm512_setzero_si512();
        UNROLL
        for (int c = 0; c < run; c += few ? 2 : 1)
            if (!starts && (matmul_has_min(&f) || bias_of(f)))
                tsum = _mm512_dpwssd_epi32(tsum, pairs[c],
                                           few ? _mm512_set1_epi32(sums->of[r0 + r][(b + c) / 2])
                                               : broadcast_512(x[r]->sum + 2 * (i + c)));
        p[r] = starts ? finish_run(f, before, float_sum(f, isum[r]), tsum, at->d, at->m)
                      : finish_sums(f, before, isum[r], tsum, at->d, at->m);
    }
}

/* One group against n_rows rows, r0 and on, of the tile; heads of `blocks` blocks. */
INLINE void product_rows(const struct matmul_form f, const struct matmul_tile *t, const struct few_sums *sums,
                         const char *w, int64_t i_group, int r0, const int blocks, const int n_rows)
{
    const int64_t n = t->n - i_group * IMAGE_ROWS, n_blocks = t->k / 32;
    const __mmask16 mask = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    const int run = blocks < 4 ? blocks : 4;
    struct place at = {.w = w, .ahead = t->cold && r0 == 0 ? &t->ahead : NULL};
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    __m512 acc[MAX_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        x[r] = t->x[r0 + r];
        acc[r] = t->begin ? _mm512_setzero_ps()
                          : _mm512_maskz_loadu_ps(mask, t->out[r0 + r] + i_group * IMAGE_ROWS);
    }
    for (int64_t b = 0; b < n_blocks; b += 4) {
        __m512 p[MAX_TILE_ROWS];
        UNROLL
        for (int i = 0; i < 4; i += run) {
            if (i > 0 && b + i >= n_blocks) break;
            if ((b + i) % blocks == 0) take_head(f, &at);
            add_run(f, &at, x, sums, r0, b + i, i, run, i == 0, n_rows, p);
        }
        for (int r = 0; r < n_rows; r++, x[r - 1]++)
            acc[r] = _mm512_fmadd_ps(p[r], _mm512_set1_ps(x[r]->d), acc[r]);
    }
    for (int r = 0; r < n_rows; r++)
        _mm512_mask_storeu_ps(t->out[r0 + r] + i_group * IMAGE_ROWS, mask, acc[r]);
}

/* The usual types have tiles of 8, 4, 2 rows and 1; the others, to keep the object small, of 4 and
 * 1. */
INLINE void product_of(const struct matmul_form f, const struct matmul_tile *t, const int blocks)
{
    const bool usual = f.bits == 4 || f.bits == 6 || f.bits == 8;
    struct few_sums sums;
    if (t->n_rows > 1 && has_few_sums(f, 2)) few_sums(f, t, blocks < 4 ? blocks : 4, &sums);
    for (int g = 0; g < t->n_groups; g++) {
        const char *w = t->w + (size_t)g * t->group_bytes;
        int r = 0;
        if (usual)
            for (; r + 8 <= t->n_rows; r += 8) product_rows(f, t, &sums, w, g, r, blocks, 8);
        for (; r + 4 <= t->n_rows; r += 4) product_rows(f, t, &sums, w, g, r, blocks, 4);
        if (usual)
            for (; r + 2 <= t->n_rows; r += 2) product_rows(f, t, &sums, w, g, r, blocks, 2);
        for (; r < t->n_rows; r++) product_rows(f, t, &sums, w, g, r, blocks, 1);
    }
}

INLINE void product(const struct matmul_form f, const struct matmul_tile *t)
{
    if (f.blocks)
        product_of(f, t, f.blocks);
    else if (t->mlx_blocks == 1)
        product_of(f, t, 1);
    else if (t->mlx_blocks == 2)
        product_of(f, t, 2);
    else
        product_of(f, t, 4);
}

/* A tile is half of a panel's rows by two groups: what is loaded of x meets both, for a processor that multiplies twice a
 * cycle loads no more often.  Sums of row r and group c are [TILE_ROWS * c + r]. */
enum { TILE_GROUPS = 2, TILE_ROWS = PANEL_ROWS / TILE_GROUPS };

struct panel_tile {
    const struct weight_panel *w[TILE_GROUPS];
    const struct row_panel *x;
    const char *next; /* the panel that comes into the first cache meanwhile, a part with each tile of this one, or NULL */
    int r0;           /* of the panel's rows the first */
    /* Finished sums: rows of the output from the first group on, of which n_rows are there; NULL: sums go on. */
    float *const *out;
    int n_rows;
    bool stream;
    __mmask16 mask[TILE_GROUPS];
};

/* What a tile asks for as it comes to blocks b and on: a step of 128 k. */
INLINE void tile_ask(const struct matmul_form f, const struct panel_tile *t, int64_t b)
{
    enum { STEPS = PANEL_BLOCKS / 4 * TILE_GROUPS };
    const int each = (int)(panel_bytes(f) + STEPS - 1) / STEPS;
    if (!t->next) return;
    const char *at = t->next + (b / 4 * TILE_GROUPS + t->r0 / TILE_ROWS) * each;
    for (int i = 0; i < each; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
}

/* Block b of a tile: integer sums, new or added to. */
INLINE void panel_block(const struct matmul_form f, const struct panel_tile *t, int64_t b, bool first, __m512i *isum)
{
    const bool scaled = f.sub != SUB_NONE;
    const int n_parts = matmul_has_halves(&f) ? 2 : 1, n = 8 / n_parts;
    const int8_t *codes = panel_q(t->x, b, t->r0); /* rows 64 bytes apart */
    const __m512i zero = _mm512_setzero_si512();
    UNROLL
    for (int h = 0; h < n_parts; h++) {
        __m512i dots[PANEL_ROWS];
        const int32_t *of_bias = n_parts == 2 ? &t->x->of_bias_halves[b / 4][t->r0][b % 4 * 2 + h]
                                              : &t->x->of_bias[b / 4][t->r0][b % 4];
        UNROLL_16
        for (int i = 0; i < PANEL_ROWS; i++) {
            dots[i] = bias_of(f) ? _mm512_set1_epi32(of_bias[4 * n_parts * (i % TILE_ROWS)]) : zero;
            if (!scaled && !first) dots[i] = _mm512_add_epi32(dots[i], isum[i]);
        }
        UNROLL
        for (int q = n * h; q < n * h + n; q++) {
            const __m512i v[TILE_GROUPS] = {_mm512_load_si512(t->w[0]->codes[0][b][q]),
                                            _mm512_load_si512(t->w[1]->codes[0][b][q])};
            UNROLL
            for (int r = 0; r < TILE_ROWS; r++) {
                const __m512i x = broadcast_512(codes + 64 * r + 4 * q);
                dots[r] = _mm512_dpbusd_epi32(dots[r], v[0], x);
                dots[TILE_ROWS + r] = _mm512_dpbusd_epi32(dots[TILE_ROWS + r], v[1], x);
            }
        }
        UNROLL
        for (int c = 0; c < TILE_GROUPS; c++) {
            const __m512i s = scaled ? _mm512_load_si512(t->w[c]->s[b][h]) : zero;
            UNROLL
            for (int i = TILE_ROWS * c; i < TILE_ROWS * (c + 1); i++)
                isum[i] = scaled ? add_scaled(f, first && h == 0 ? zero : isum[i], dots[i], s) : dots[i];
        }
    }
}

/* A run of blocks of a tile from b on: added to p, or new. */
INLINE void panel_run(const struct matmul_form f, const struct panel_tile *tile, int64_t b, const int run, const bool first,
                      __m512 *p)
{
    const __m512 zero = _mm512_setzero_ps();
    __m512i isum[PANEL_ROWS];
    UNROLL
    for (int c = 0; c < run; c++) panel_block(f, tile, b + c, c == 0, isum);
    UNROLL
    for (int c = 0; c < TILE_GROUPS; c++) {
        const struct weight_panel *w = tile->w[c];
        const __m512 d = _mm512_load_ps(w->d[b]), m = _mm512_load_ps(w->m[b]);
        const __m512i *t = (const void *)w->t[b];
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++) {
            const int i = TILE_ROWS * c + r;
            const __m512i tsum = matmul_has_min(&f) ? panel_minima(f, _mm512_setzero_si512(), t, tile->x, b, run,
                                                                   tile->r0 + r)
                                                    : isum[i];
            p[i] = finish_run(f, first ? zero : p[i], float_sum(f, isum[i]), tsum, d, m);
        }
    }
}

/* Finished sums of a tile to where they belong. */
INLINE void tile_store(const struct panel_tile *t, const __m512 *acc)
{
    UNROLL_16
    for (int i = 0; i < PANEL_ROWS; i++) {
        const int r = i % TILE_ROWS, c = i / TILE_ROWS;
        float *out = t->out[r] + c * IMAGE_ROWS;
        if (t->stream)
            _mm512_stream_ps(out, acc[i]);
        else
            _mm512_mask_storeu_ps(out, r < t->n_rows ? t->mask[c] : 0, acc[i]);
    }
}

/* The same for all blocks; total: of each group, asked for before the first ones are wanted.  Every count is constant, so
 * that no sum of a step goes to memory. */
INLINE void panel_tile_sums(const struct matmul_form f, const struct panel_tile *t, int64_t n_blocks, const int run,
                            panel_sums *const *total, bool begin)
{
    UNROLL_16
    for (int i = 0; i < PANEL_ROWS && !begin; i++)
        _mm_prefetch((*total[i / TILE_ROWS])[t->r0 + i % TILE_ROWS], _MM_HINT_T0);
    for (int64_t b = 0; b < n_blocks; b += 4) {
        tile_ask(f, t, b);
        __m512 p[PANEL_ROWS];
        UNROLL
        for (int i = 0; i < 4; i += run) panel_run(f, t, b + i, run, i == 0, p);
        UNROLL_16
        for (int i = 0; i < PANEL_ROWS; i++) {
            const float *sums = (*total[i / TILE_ROWS])[t->r0 + i % TILE_ROWS];
            const __m512 acc = begin && b == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sums);
            const __m512 d = _mm512_set1_ps(t->x->d[b / 4][t->r0 + i % TILE_ROWS]);
            p[i] = _mm512_fmadd_ps(p[i], d, acc);
        }
        if (t->out && b + 4 >= n_blocks) {
            tile_store(t, p);
            return;
        }
        UNROLL_16
        for (int i = 0; i < PANEL_ROWS; i++) _mm512_store_ps((*total[i / TILE_ROWS])[t->r0 + i % TILE_ROWS], p[i]);
    }
}

/* What follows panel n of a job's in the first cache: its second panel with the first groups, the next job's first one with
 * the last ones. */
INLINE const char *panel_next(const struct matmul_form f, const struct panel_job *job, int c, int n)
{
    if (n + 1 < job->n_panels) return c == 0 ? (const char *)panel_at(f, job->x, n + 1) : NULL;
    return c + TILE_GROUPS >= job->n_groups ? job->ahead.x : NULL;
}

/* The last of an odd number of groups goes twice, once in vain. */
INLINE void panel_tiles(const struct matmul_form f, const struct panel_job *job, const int run)
{
    _Alignas(64) panel_sums unused;
    if (job->n_groups % TILE_GROUPS) memset(unused, 0, sizeof unused);
    for (int c = 0; c < job->n_groups; c += TILE_GROUPS) {
        const bool odd = c + 1 == job->n_groups;
        for (int n = 0; n < job->n_panels; n++) {
            panel_sums *total[TILE_GROUPS] = {&job->total[n][c], odd ? &unused : &job->total[n][c + 1]};
            struct panel_tile t = {
                .w = {&job->w[c], &job->w[c + !odd]},
                .x = panel_at(f, job->x, n),
                .next = panel_next(f, job, c, n),
                .stream = job->stream && !odd,
                .mask = {panel_mask(job, c), odd ? 0 : panel_mask(job, c + 1)},
            };
            for (int r; t.r0 < PANEL_ROWS && (r = n * PANEL_ROWS + t.r0) < job->n_rows; t.r0 += TILE_ROWS) {
                float *out[TILE_ROWS];
                for (int i = 0; i < TILE_ROWS && job->end; i++) out[i] = job->out[r + i] + c * IMAGE_ROWS;
                t.out = job->end ? out : NULL;
                t.n_rows = job->n_rows - r;
                panel_tile_sums(f, &t, job->n_blocks, run, total, job->begin);
            }
        }
        for (int part = 0; part < (odd ? 1 : TILE_GROUPS) * ASKED_PARTS; part++)
            panel_ask(f, job, c + part / ASKED_PARTS, part % ASKED_PARTS);
    }
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                           \
    static void product_##NAME(const struct matmul_tile *t)                        \
    {                                                                              \
        product((struct matmul_form){bits, blocks, head, sub, offset, levels}, t); \
    }
MATMUL_FORMS(X)
#undef X

/* The codes and factors of a block as they enter. */
INLINE void bias_codes(const struct matmul_form f, const struct subs_512 *subs, __m512i v[8],
                       struct weight_panel *out, int64_t b)
{
    for (int h = 0; h <= matmul_has_halves(&f) && f.sub != SUB_NONE; h++)
        _mm512_store_si512(out->s[b][h], as_factor(f, subs->s[h]));
    for (int q = 0; q < 8; q++) {
        if (f.levels != LEVELS_LINEAR) v[q] = _mm512_shuffle_epi8(levels_512(f, bias_of(f)), v[q]);
        _mm512_store_si512(out->codes[0][b][q], v[q]);
    }
}

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t r,             \
                            int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *own) \
    {                                                                                           \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                 \
        panel_walk(f, bias_codes, panel_tiles, d, i, g, r, n_rows, k0, t, own);                 \
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

static void (*const products[QRN_DTYPE_COUNT])(const struct matmul_tile *) = {
#define X(NAME, bits, blocks, head, sub, offset, levels) [QRN_##NAME] = product_##NAME,
    MATMUL_FORMS(X)
#undef X
};

static void lay_out(const struct drive *d, int64_t i, int64_t r)
{
    panel_rows(d, i, r, bias_of(*qrn_matmul_form(d->j->w->dtype)));
}

struct matmul_unit qrn_matmul_unit_avx512vnni(const struct matmul_job *j)
{
    const bool many = j->most_rows >= MANY_ROWS;
    return (struct matmul_unit){
        .tile_rows = 8,
        .chunk_groups = 8,
        .chunk_k = 1024,
        .tile_k = FEW_K,
        .acts = true,
        .round = q8_act_512,
        .product = products[j->w->dtype],
        .many = many ? manys[j->w->dtype] : NULL,
        .many_rows = MANY_ROWS,
        .many_groups = many ? PANEL_GROUPS : 0,
        .many_step = MOST_ROWS,
        .many_k = many ? PANEL_K : 0,
        .many_bytes = many ? sizeof(struct panels) : 0,
        .panel_rows = PANEL_ROWS,
        .panel_bytes = panel_bytes(*qrn_matmul_form(j->w->dtype)),
        .lay_out = lay_out,
    };
}

static struct matmul_unit unit(const struct matmul_job *j)
{
    return qrn_matmul_unit_avx512vnni(j);
}

static bool takes(const struct matmul_job *j)
{
    return j->q8;
}

static const char serves[] =
    "rounded activations: vpdpbusd, exact sums; 3 x multiply-adds on 512 rows";

MATMUL_KERNEL(matmul, avx512vnni, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI);
MATMUL_KERNEL(matmul_id, avx512vnni, QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI);
