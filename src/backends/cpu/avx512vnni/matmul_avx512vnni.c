/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with vpdpbusd: 16 rows in lanes, for each 32 k an
 * exact integer sum, then the sums in matmul_drive.h. */
#include "backends/cpu/avx512/q8_act_avx512.h"
#include "backends/cpu/avx512vnni/matmul_avx512vnni.h"
#include "backends/cpu/avx512vnni/matmul_tiles_avx512vnni.h"
#include "backends/cpu/avx512/panel_silu_avx512.h"
#include "backends/cpu/matmul_silu.h"

/* Columns that few rows meet at once. */
enum { FEW_K = 16384 };

/* Fewer rows of one matrix are not worth unpacking its weights for: eight at a time unpack them faster than these would fill
 * panels.  Experts, whose weights nobody has read just before, are worth it earlier. */
static int many_rows(const struct matmul_job *j)
{
    const struct matmul_form *f = qrn_matmul_form(j->w->dtype);
    return j->ids ? 24 : f->bits == 4 && !matmul_has_halves(f) ? 64 : 48;
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

/* A row of seven is there twice. */
INLINE void few_sums(const struct matmul_form f, const struct matmul_tile *t, const int run, struct few_sums *out)
{
    const int n_rows = t->n_rows == 7 ? 8 : t->n_rows;
    for (int r = 0; r < n_rows; r++) {
        const struct qrn_q8_act *x = t->x[r < t->n_rows ? r : t->n_rows - 1];
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

/* One group against n_rows rows, r0 and on, of the tile, of which `there` are there, or repeated: weights are read and unpacked
 * once for all.  Heads of `blocks` blocks. */
INLINE void product_rows(const struct matmul_form f, const struct matmul_tile *t, const struct few_sums *sums,
                         const char *w, int64_t i_group, int r0, const int blocks, const int n_rows, const int there)
{
    const int64_t n = t->n - i_group * IMAGE_ROWS, n_blocks = t->k / 32;
    const __mmask16 mask = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
    const int run = blocks < 4 ? blocks : 4;
    const struct ahead ahead = matmul_ahead(t, (int)i_group);
    struct place at = {.w = w, .ahead = t->cold && r0 == 0 ? &ahead : NULL};
    const struct qrn_q8_act *x[MAX_TILE_ROWS];
    __m512 acc[MAX_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        const int from = r0 + (r < there ? r : there - 1);
        x[r] = t->x[from];
        acc[r] = t->begin ? _mm512_setzero_ps()
                          : _mm512_maskz_loadu_ps(mask, t->out[from] + i_group * IMAGE_ROWS);
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
    for (int r = 0; r < n_rows && r < there; r++)
        _mm512_mask_storeu_ps(t->out[r0 + r] + i_group * IMAGE_ROWS, mask, acc[r]);
}

/* The usual types have tiles of 8, 4, 2 rows and 1, and one of 8 for seven, which three would unpack weights for; the others, to
 * keep the object small, of 4 and 1. */
INLINE void product_of(const struct matmul_form f, const struct matmul_tile *t, const int blocks)
{
    const bool usual = f.bits == 4 || f.bits == 6 || f.bits == 8;
    struct few_sums sums;
    if (t->n_rows > 1 && has_few_sums(f, 2)) few_sums(f, t, blocks < 4 ? blocks : 4, &sums);
    for (int g = 0; g < t->n_groups; g++) {
        const char *w = t->w + (size_t)g * t->group_bytes;
        int r = 0;
        if (usual)
            for (; r + 7 <= t->n_rows; r += 8) product_rows(f, t, &sums, w, g, r, blocks, 8, t->n_rows - r);
        for (; r + 4 <= t->n_rows; r += 4) product_rows(f, t, &sums, w, g, r, blocks, 4, 4);
        if (usual)
            for (; r + 2 <= t->n_rows; r += 2) product_rows(f, t, &sums, w, g, r, blocks, 2, 2);
        for (; r < t->n_rows; r++) product_rows(f, t, &sums, w, g, r, blocks, 1, 1);
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

#define X(NAME, bits, blocks, head, sub, offset, levels)                           \
    static void product_##NAME(const struct matmul_tile *t)                        \
    {                                                                              \
        product((struct matmul_form){bits, blocks, head, sub, offset, levels}, t); \
    }
MATMUL_FORMS(X)
#undef X

#define X(NAME, bits, blocks, head, sub, offset, levels)                                        \
    static void many_##NAME(const struct drive *d, int64_t i, int64_t g, int64_t r,             \
                            int64_t n_rows, int64_t k0, const struct matmul_tile *t, char *own) \
    {                                                                                           \
        const struct matmul_form f = {bits, blocks, head, sub, offset, levels};                 \
        panel_walk(f, bias_codes, panel_tiles, panel_silu, d, i, g, r, n_rows, k0, t, own);     \
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
    const struct matmul_form f = *qrn_matmul_form(d->j->w->dtype);
    panel_rows(d, i, r, bias_of(f));
    if (short_sums(f) != SHORT_OFTEN) return;
    const int64_t n_acts = matmul_act_blocks(d->j);
    for (int64_t b = 0; b < n_acts; b += PANEL_ACTS)
        panel_squares((void *)drive_panel(d, i, r, b * QRN_Q8_ACT_BLOCK),
                      (int)(n_acts - b < PANEL_ACTS ? n_acts - b : PANEL_ACTS));
}

struct matmul_unit qrn_matmul_unit_avx512vnni(const struct matmul_job *j)
{
    const int least = many_rows(j);
    const bool many = j->most_rows >= least;
    return (struct matmul_unit){
        .tile_rows = 8,
        .chunk_groups = 8,
        .chunk_k = 1024,
        .tile_k = FEW_K,
        .acts = true,
        .round = q8_act_512,
        .product = products[j->w->dtype],
        .many = many ? manys[j->w->dtype] : NULL,
        .many_rows = least,
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
MATMUL_SILU_JOINT(avx512vnni);
