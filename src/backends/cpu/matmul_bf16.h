/* SPDX-License-Identifier: MIT
 * How vector kernels walk products of bf16 weights with activations rounded to bf16 (QRN_ACT_BF16).
 *
 * The rows of x that a matrix meets are rounded into panels: of up to panel_rows rows 32 columns
 * each, block after block, zeros up to whole blocks.  Weights are an image of pairs
 * (matmul_image.h), also with zeros up to whole blocks: a tail is summed like any other block.
 *
 * One expression for every instruction set, that of AMX's TDPBF16PS: for each block of 32 columns
 *     e = fma(w[2 i], x[2 i], e), o = fma(w[2 i + 1], x[2 i + 1], o) for i = 0 .. 15, from 0
 *     acc = acc + (e + o) */
#ifndef QUERN_BACKENDS_CPU_MATMUL_BF16_H
#define QUERN_BACKENDS_CPU_MATMUL_BF16_H

#include "base/half.h"
#include "backends/cpu/matmul_drive.h"

enum {
    BF16_BLOCK = 32,
    BF16_MOST_ROWS = 512, /* that a product takes together, and whose sums wait in a lane's memory */
    BF16_RUN = 8,         /* blocks of a row that are rounded together */
    BF16_ALONE = 16384    /* elements that each lane rounds by itself rather than wait */
};

/* out[r][0 .. n - 1] of some rows and groups over some blocks of columns: continued from what out
 * holds, or new. */
struct bf16_tile {
    const char *w;      /* image of the first group, at the first block */
    size_t group_bytes; /* from one group to the next */
    int n_groups;
    int64_t n; /* outputs: at most 16 * n_groups */
    int64_t n_blocks;
    bool begin, cold; /* as in struct matmul_tile */
    int n_rows;
    const void *x;      /* [n_blocks][n_rows][32], as the unit's x says; of more than a panel: of the first */
    size_t next_panel;  /* bytes from one panel to the next, which has as many rows */
    size_t next_short;  /* so much less for each row that a last, shorter one lacks */
    const char *next;   /* x of the rows that come next, or NULL */
    const char *next_w; /* of a group of the columns or groups that come next, or NULL */
    float *const *out;  /* of each row */
};

/* How 32 columns of x lie. */
enum bf16_x {
    BF16_PAIRS,  /* as they come */
    BF16_FOURS,  /* of each four the third, the first, the fourth, the second */
    BF16_FLOATS, /* widened */
};

struct bf16_unit {
    int panel_rows;
    int product_rows;     /* that product takes together: whole panels, at most BF16_MOST_ROWS */
    int uncut_rows;       /* up to so many rows that meet packed weights it takes with all columns */
    int chunk_groups;     /* groups that share the walk over rows */
    int64_t chunk_blocks; /* when several panels do, or weights are in rows */
    int64_t sums_rows;    /* for as many rows sums wait in the lane's memory; 0: never */
    enum bf16_x x;
    void (*product)(const struct bf16_tile *t);
    const struct bf16_unit *few; /* better for up to few_tokens of them, or NULL */
    int64_t few_tokens;
};

static inline const struct bf16_unit *bf16_unit_for(const struct matmul_job *j,
                                                    const struct bf16_unit *u)
{
    const int64_t n_tokens = j->ids ? j->n_tokens : j->most_rows;
    return u->few && n_tokens <= u->few_tokens ? u->few : u;
}

static inline int64_t bf16_blocks(const struct matmul_job *j)
{
    return (j->k + BF16_BLOCK - 1) / BF16_BLOCK;
}

static inline size_t bf16_row_bytes(const struct matmul_job *j, const struct bf16_unit *u)
{
    return (size_t)bf16_blocks(j) * BF16_BLOCK * (u->x == BF16_FLOATS ? 4 : 2);
}

/* Rows that matrices meet, all together. */
static inline int64_t bf16_n_rows(const struct matmul_job *j)
{
    return j->ids ? j->n_tokens * j->top_k : j->n_matrices * j->most_rows;
}

static inline bool bf16_alone(const struct matmul_job *j)
{
    return !j->ids && bf16_n_rows(j) * bf16_blocks(j) * BF16_BLOCK <= BF16_ALONE;
}

static inline size_t bf16_panels_bytes(const struct matmul_job *j, const struct bf16_unit *u)
{
    return round_64((size_t)bf16_n_rows(j) * bf16_row_bytes(j, u));
}

/* A lane's image of weights that are not packed. */
static inline size_t bf16_image_bytes(const struct matmul_job *j, const struct bf16_unit *u)
{
    const int64_t n_blocks = bf16_blocks(j) < u->chunk_blocks ? bf16_blocks(j) : u->chunk_blocks;
    return j->packed ? 0 : (size_t)(n_blocks * u->chunk_groups) * IMAGE_PAIR_BLOCK;
}

static inline bool bf16_sums_wait(const struct bf16_unit *u, int64_t n_rows)
{
    return u->sums_rows && n_rows >= u->sums_rows;
}

/* Floats from row to row of a lane's sums: 16 rows lie in as many sets of a cache. */
static inline size_t bf16_sums_step(const struct bf16_unit *u)
{
    return (size_t)(u->chunk_groups + 1) * IMAGE_ROWS;
}

static inline size_t bf16_sums_bytes(const struct matmul_job *j, const struct bf16_unit *u)
{
    const int64_t n = j->most_rows < BF16_MOST_ROWS ? j->most_rows : BF16_MOST_ROWS;
    return bf16_sums_wait(u, j->most_rows) ? (size_t)n * bf16_sums_step(u) * sizeof(float) : 0;
}

/* A lane's image, then its sums. */
static inline size_t bf16_lane_bytes(const struct matmul_job *j, const struct bf16_unit *u)
{
    return bf16_image_bytes(j, u) + bf16_sums_bytes(j, u);
}

static inline size_t bf16_scratch_bytes(const struct matmul_job *j, const struct bf16_unit *u,
                                        int n_threads)
{
    const size_t n = (size_t)n_threads, panels = bf16_panels_bytes(j, u);
    return matmul_slots_bytes(j) + panels * (bf16_alone(j) ? n : 1) + bf16_lane_bytes(j, u) * n;
}

/* To the nearest bf16, halves to even. */
static inline uint16_t bf16_round(uint32_t bits)
{
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)((nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Columns 0 .. 3 of four, the first in the lowest bits: 2, 0, 3, 1. */
static inline uint64_t bf16_four(uint64_t x)
{
    const uint64_t half = 0xffff;
    return (x >> 32 & half) | (x & half) << 16 | (x >> 16 & half << 32) | (x & half << 16) << 32;
}

/* 32 columns of a row of x. */
static inline void bf16_put_block(const void *x, bool is_bf16, enum bf16_x form, void *out)
{
    uint16_t halves[BF16_BLOCK];
    uint64_t fours[BF16_BLOCK / 4];
    if (is_bf16) {
        memcpy(halves, x, sizeof halves);
    } else {
        uint32_t bits[BF16_BLOCK];
        memcpy(bits, x, sizeof bits);
        for (int i = 0; i < BF16_BLOCK; i++) halves[i] = bf16_round(bits[i]);
    }
    if (form == BF16_FLOATS) {
        for (int i = 0; i < BF16_BLOCK; i++) ((uint32_t *)out)[i] = (uint32_t)halves[i] << 16;
        return;
    }
    memcpy(fours, halves, sizeof fours);
    for (int i = 0; i < BF16_BLOCK / 4 && form == BF16_FOURS; i++) fours[i] = bf16_four(fours[i]);
    memcpy(out, fours, sizeof fours);
}

/* Rows r .. of those that a matrix meets share a panel. */
static inline int64_t bf16_panel_rows(const struct bf16_unit *u, int64_t n_rows, int64_t r)
{
    return n_rows - r < u->panel_rows ? n_rows - r : u->panel_rows;
}

static inline size_t bf16_block_bytes(const struct bf16_unit *u)
{
    return BF16_BLOCK * (u->x == BF16_FLOATS ? 4 : 2);
}

/* Blocks b0 .. b1 - 1 of row i_x of x; out: of block 0, step to the next. */
static inline void bf16_round_row(const struct matmul_job *j, const struct bf16_unit *u,
                                  int64_t i_x, int64_t b0, int64_t b1, char *out, size_t step)
{
    const bool is_bf16 = j->x->dtype == QRN_BF16;
    const size_t element = is_bf16 ? 2 : 4;
    const char *x = (const char *)j->x->data + (size_t)qrn_row_at(j->x, i_x) * element;
    for (int64_t b = b0; b < b1; b++) {
        const char *from = x + (size_t)(b * BF16_BLOCK) * element;
        const int64_t rest = j->k - b * BF16_BLOCK;
        char tail[BF16_BLOCK * 4] = {0};
        if (rest < BF16_BLOCK) from = memcpy(tail, from, (size_t)rest * element);
        bf16_put_block(from, is_bf16, u->x, out + (size_t)b * step);
    }
}

/* This lane's part, or all, of the rows that the matrices meet: some blocks of all rows of a panel
 * at a time, so that what is written stays near. */
static inline void bf16_round_rows(const struct qrn_cpu_lane *lane, const struct matmul_job *j,
                                   const struct bf16_unit *u, char *panels)
{
    const int64_t n_blocks = bf16_blocks(j), n_runs = (n_blocks + BF16_RUN - 1) / BF16_RUN;
    int64_t n_panels = 0, begin = 0, end, at = 0;
    for (int64_t i = 0; i < j->n_matrices; i++)
        n_panels += (matmul_n_rows(j, i) + u->panel_rows - 1) / u->panel_rows;
    end = n_panels * n_runs;
    if (!bf16_alone(j)) qrn_cpu_share(lane, n_panels * n_runs, 1, &begin, &end);
    for (int64_t i = 0; i < j->n_matrices && at < end; i++) {
        const int64_t n_rows = matmul_n_rows(j, i);
        for (int64_t r = 0; r < n_rows; r += u->panel_rows) {
            const int64_t n = bf16_panel_rows(u, n_rows, r);
            for (int64_t run = 0; run < n_runs; run++, at++) {
                const int64_t b = run * BF16_RUN;
                const int64_t e = b + BF16_RUN < n_blocks ? b + BF16_RUN : n_blocks;
                for (int64_t m = 0; m < n && at >= begin && at < end; m++)
                    bf16_round_row(j, u, matmul_row_at(j, i, r + m).i_x, b, e,
                                   panels + (size_t)m * bf16_block_bytes(u),
                                   (size_t)n * bf16_block_bytes(u));
            }
            panels += (size_t)n * bf16_row_bytes(j, u);
        }
    }
}

/* Groups g .. g + n - 1 of matrix i against its rows r0 .. r1 - 1, all of which lie in panels. */
struct bf16_walk {
    const struct matmul_job *j;
    const struct bf16_unit *u;
    int64_t i, g, r0, r1;
    int n;
    char *panels, *own;
    float *sums; /* NULL: in out */
};

/* The weights of some blocks from b on. */
static inline void bf16_weights(const struct bf16_walk *k, int64_t b, struct bf16_tile *t)
{
    const struct matmul_job *j = k->j;
    const size_t whole = (size_t)bf16_blocks(j) * IMAGE_PAIR_BLOCK;
    const size_t part = (size_t)t->n_blocks * IMAGE_PAIR_BLOCK;
    if (j->packed) {
        const int64_t n_groups = (j->n + IMAGE_ROWS - 1) / IMAGE_ROWS;
        const char *first = (const char *)j->w->data + (size_t)(k->i * n_groups + k->g) * whole;
        const bool last = b + t->n_blocks == bf16_blocks(j);
        t->w = first + (size_t)b * IMAGE_PAIR_BLOCK;
        t->next_w = last ? first + (size_t)k->n * whole : t->w + part;
        t->group_bytes = whole;
        return;
    }
    const struct drive d = {.j = j, .own = k->own};
    const int64_t k0 = b * BF16_BLOCK, rest = j->k - k0;
    t->w = k->own;
    t->group_bytes = part;
    drive_write(&d, k->i, k->g, k->n, k0,
                rest < t->n_blocks * BF16_BLOCK ? rest : t->n_blocks * BF16_BLOCK, part, false);
}

/* The panel of rows r and on, from block b on. */
static inline const char *bf16_panel(const struct bf16_walk *k, int64_t r, int64_t b)
{
    const int64_t n = bf16_panel_rows(k->u, matmul_n_rows(k->j, k->i), r);
    return k->panels + (size_t)r * bf16_row_bytes(k->j, k->u) +
           (size_t)(b * n) * bf16_block_bytes(k->u);
}

/* Blocks b .. b + t->n_blocks - 1 of all rows. */
static inline void bf16_rows(const struct bf16_walk *k, int64_t b, struct bf16_tile *t)
{
    const struct bf16_unit *u = k->u;
    const char *next_w = t->next_w; /* a group for each panel */
    float *out[BF16_MOST_ROWS];
    int asked = 0;
    t->out = out;
    t->next_panel = (size_t)u->panel_rows * bf16_row_bytes(k->j, u);
    t->next_short = (size_t)b * bf16_block_bytes(u);
    for (int64_t r = k->r0; r < k->r1; r += u->product_rows, t->cold = false) {
        t->next_w = next_w && asked < k->n ? next_w + (size_t)asked++ * t->group_bytes : NULL;
        const int64_t after = r + u->product_rows;
        t->n_rows = (int)(k->r1 - r < u->product_rows ? k->r1 - r : u->product_rows);
        t->x = bf16_panel(k, r, b);
        t->next = after < k->r1 ? bf16_panel(k, after, b) : NULL;
        for (int m = 0; m < t->n_rows; m++)
            out[m] = k->sums ? k->sums + (size_t)(r - k->r0 + m) * bf16_sums_step(u)
                             : matmul_row_at(k->j, k->i, r + m).out + k->g * IMAGE_ROWS;
        u->product(t);
    }
}

/* All columns. */
static inline void bf16_chunk(const struct bf16_walk *k)
{
    const struct matmul_job *j = k->j;
    const int64_t n_blocks = bf16_blocks(j), left = j->n - k->g * IMAGE_ROWS;
    const int64_t all = (int64_t)k->n * IMAGE_ROWS, n = left < all ? left : all;
    const bool uncut = j->packed && k->r1 - k->r0 <= k->u->uncut_rows;
    const int64_t step = uncut ? n_blocks : k->u->chunk_blocks;
    const bool cold = j->packed && !j->streams; /* blocks lie in order: a stream needs no help */
    for (int64_t b = 0; b < n_blocks; b += step) {
        struct bf16_tile t = {.n_groups = k->n, .begin = b == 0, .cold = cold};
        t.n = k->sums ? all : n;
        t.n_blocks = n_blocks - b < step ? n_blocks - b : step;
        bf16_weights(k, b, &t);
        bf16_rows(k, b, &t);
    }
    for (int64_t r = k->r0; r < k->r1 && k->sums; r++)
        memcpy(matmul_row_at(j, k->i, r).out + k->g * IMAGE_ROWS,
               k->sums + (size_t)(r - k->r0) * bf16_sums_step(k->u), (size_t)n * sizeof(float));
}

/* All rows of k's matrix against its groups. */
static inline void bf16_groups(struct bf16_walk k)
{
    const int64_t n_rows = matmul_n_rows(k.j, k.i);
    const bool wait = bf16_sums_wait(k.u, n_rows);
    const int64_t most = wait ? BF16_MOST_ROWS / k.u->panel_rows * k.u->panel_rows : n_rows;
    if (wait) k.sums = (float *)(void *)(k.own + bf16_image_bytes(k.j, k.u));
    for (k.r0 = 0; k.r0 < n_rows; k.r0 += most) {
        k.r1 = n_rows - k.r0 < most ? n_rows : k.r0 + most;
        bf16_chunk(&k);
    }
}

static inline void bf16_products(const struct qrn_cpu_lane *lane, const struct matmul_job *j,
                                 const struct bf16_unit *u, char *panels, char *own)
{
    const int chunk = u->chunk_groups;
    const size_t row_bytes = bf16_row_bytes(j, u);
    struct bf16_walk k = {.j = j, .u = u, .panels = panels, .own = own};
    struct drive_part part = drive_part(lane, j);
    struct drive_turn turn = {0};
    if (drive_in_turns(lane, j)) {
        while (drive_next(lane, j, chunk, chunk, 0, &turn)) {
            k.i = turn.i, k.g = turn.g, k.n = turn.n;
            k.panels = panels + (size_t)turn.rows * row_bytes;
            bf16_groups(k);
        }
        return;
    }
    for (; k.i < j->n_matrices && part.from < part.high; k.i++) {
        int64_t begin, end;
        drive_take(&part, j, k.i, &begin, &end);
        for (k.g = begin; k.g < end; k.g += chunk) {
            k.n = (int)(end - k.g < chunk ? end - k.g : chunk);
            bf16_groups(k);
        }
        k.panels += (size_t)matmul_n_rows(j, k.i) * row_bytes;
    }
}

static inline void bf16_run(const struct qrn_cpu_lane *lane, struct matmul_job *j,
                            const struct bf16_unit *u)
{
    char *at = lane->scratch;
    const size_t panels = bf16_panels_bytes(j, u);
    const bool alone = bf16_alone(j);
    j->streams = lane->features & QRN_CPU_STREAMS;
    j->first = (int32_t *)(void *)at;
    j->slots = j->ids ? j->first + j->n_matrices + 1 : NULL;
    at += matmul_slots_bytes(j);
    if (j->ids) {
        if (lane->i == 0) matmul_sort_slots(j);
        qrn_cpu_lane_wait(lane);
    }
    char *own =
        at + panels * (size_t)(alone ? lane->n : 1) + bf16_lane_bytes(j, u) * (size_t)lane->i;
    if (alone) at += panels * (size_t)lane->i;
    bf16_round_rows(lane, j, u, at);
    if (!alone) qrn_cpu_lane_wait(lane);
    bf16_products(lane, j, u, at, own);
}

/* The functions of a kernel of one op, from its unit and a constant, serves, and the kernel. */
#define MATMUL_BF16_KERNEL(op_, variant, unit, features)                      \
    static size_t op_##_scratch(const void *args, int n_threads)              \
    {                                                                         \
        const struct matmul_job j = op_##_job(args);                          \
        return bf16_scratch_bytes(&j, bf16_unit_for(&j, &(unit)), n_threads); \
    }                                                                         \
    static void op_##_run(void *lane, const void *args)                       \
    {                                                                         \
        struct matmul_job j = op_##_job(args);                                \
        bf16_run(lane, &j, bf16_unit_for(&j, &(unit)));                       \
    }                                                                         \
    static bool op_##_supports(const void *args)                              \
    {                                                                         \
        const struct matmul_job j = op_##_job(args);                          \
        return j.bf16 && drive_supports(&j);                                  \
    }                                                                         \
    MATMUL_KERNEL_STRUCT(op_, variant, features)

#endif
