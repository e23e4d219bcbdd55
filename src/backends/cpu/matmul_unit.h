/* SPDX-License-Identifier: MIT
 * A unit of matrix products, what an instruction set gives: how x is rounded, the product of some groups of 16
 * weight rows with a few rows of x, or with many; and the memory that a walk (matmul_drive.h) wants for it. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_UNIT_H
#define QUERN_BACKENDS_CPU_MATMUL_UNIT_H

#include "backends/cpu/ahead.h"
#include "backends/cpu/matmul_image.h"
#include "backends/cpu/matmul_job.h"
#include "formats/q8_act.h"

enum { MAX_TILE_ROWS = 8 };

/* How far ahead cold weights are asked for; the processor alone looks less far.  FAR_BYTES: where some rows
 * that meet them leave time for the second cache to have them first.  DEEP_BYTES: for both caches at once. */
enum { AHEAD_BYTES = 4096, FAR_BYTES = 16384, DEEP_BYTES = 6144 };

/* out[r][0 .. n - 1] of some rows and groups over k columns: continued from what out holds, or
 * new. */
struct matmul_tile {
    const char *w;      /* image of the first group, at the first column */
    size_t group_bytes; /* from one group to the next */
    size_t skip;        /* the second half of the groups lies so much further on; 0: it goes on */
    int n_groups;
    int64_t n;          /* outputs: at most 16 * n_groups */
    int64_t k;          /* columns */
    int64_t mlx_blocks; /* blocks of 32 under one head, MLX codes only */
    bool begin;         /* not continued */
    bool cold;          /* w comes from memory: the first rows that meet it */
    struct ahead ahead; /* how it is asked for then */
    const char *next_w; /* packed weights that come next, as w lies; NULL: none, or not known */
    int n_rows;         /* 1 .. the unit's tile_rows */
    const void *x[MAX_TILE_ROWS]; /* floats, or struct qrn_q8_act, at the first column */
    float *out[MAX_TILE_ROWS];
};

/* Where group c is, of t's own or of those that come next: w is the first. */
static inline const char *matmul_group(const struct matmul_tile *t, const char *w, int c)
{
    return w + (size_t)c * t->group_bytes + (c < t->n_groups / 2 ? 0 : t->skip);
}

/* Whether a tile's weights are to be asked for; a processor may look far enough by itself. */
static inline bool matmul_tile_asks(const struct matmul_tile *t)
{
    return t->cold && t->ahead.near;
}

/* Asks for what lies AHEAD_BYTES behind n bytes of weights; n is a constant. */
static inline __attribute__((always_inline)) void matmul_ask(const char *w, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64) __builtin_prefetch(w + i + AHEAD_BYTES, 0, 3);
}

/* How group g of t is asked for: where in_groups, what comes after the last groups is the first ones of next_w. */
static inline struct ahead matmul_ahead(const struct matmul_tile *t, int g)
{
    struct ahead a = t->ahead;
    if (!a.in_groups || !t->next_w) return a;
    const int n = (int)((size_t)a.far / t->group_bytes) + 1, next = g + n - t->n_groups;
    a.far = next < 0 ? (ptrdiff_t)t->group_bytes * n
                     : t->next_w - t->w + (ptrdiff_t)t->group_bytes * (next - g);
    return a;
}

/* One group of an image to floats, for each k 16; k in whole heads. */
typedef void (*matmul_unpack_fn)(const char *image, int64_t k, int64_t mlx_blocks, float *out);

/* As qrn_image_write_f32; what rows from n_rows on get does not matter. */
typedef void (*matmul_write_fn)(const struct qrn_weight_row *rows, int n_rows, int64_t k0,
                                int64_t k, float *out);

struct drive;

struct matmul_unit {
    int tile_rows;
    int chunk_groups; /* groups that share the walk over rows */
    int64_t chunk_k;  /* columns, in multiples of 256, when several tiles of rows do */
    int64_t tile_k;   /* when one tile of two rows or more does; 0: all */
    bool acts;        /* x as struct qrn_q8_act */
    void (*round)(const float *x, struct qrn_q8_act *out); /* a whole block */
    /* The product from an image of the weights' type, or NULL: it goes by floats. */
    void (*product)(const struct matmul_tile *t);
    void (*product_f32)(const struct matmul_tile *t); /* from floats */
    int64_t direct_rows; /* without acts: for more rows than this, product gives way to floats */
    matmul_unpack_fn unpack;
    matmul_write_fn write; /* of rows without an image, or NULL: as any type */
    /* Or, for a matrix that meets many_rows rows or more: rows, groups and columns that are walked
     * together, n_rows rows of matrix i, at most many_step, from r on, against the groups from g on and the
     * columns from k0 on that t names (w, n_groups, group_bytes, n, k, mlx_blocks, begin), in
     * many_bytes of own memory, which between runs of columns stays as it is.  NULL: none. */
    void (*many)(const struct drive *d, int64_t i, int64_t g, int64_t r, int64_t n_rows, int64_t k0,
                 const struct matmul_tile *t, char *own);
    int many_rows, many_groups; /* groups: a multiple of MANY_TURN */
    int64_t many_step, many_k;
    size_t many_bytes;
    /* Such rows as many wants them: lay_out puts rows r .. r + panel_rows - 1 of those that matrix i meets
     * into panels, all columns, panel_bytes for each many_k of them, drive_panel says where; beforehand, all
     * lanes together.  panel_rows 0: none. */
    int64_t panel_rows;
    size_t panel_bytes;
    void (*lay_out)(const struct drive *d, int64_t i, int64_t r);
    /* Around a lane's products, or NULL. */
    void (*enter)(void);
    void (*leave)(void);
};

static inline size_t round_64(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* For rounded rows of x. */
static inline size_t drive_acts_bytes(const struct matmul_job *j, const struct matmul_unit *u)
{
    if (!u->acts || j->acts) return 0;
    return round_64((size_t)(j->n_x * matmul_act_blocks(j)) * sizeof(struct qrn_q8_act));
}

/* Whether n_rows rows meet packed weights as they lie. */
static inline bool drive_direct(const struct matmul_job *j, const struct matmul_unit *u,
                                int64_t n_rows)
{
    return u->product && j->packed && (u->acts || n_rows <= u->direct_rows);
}

/* For each lane: an image, or floats, of the groups and columns that are walked together. */
static inline size_t drive_lane_bytes(const struct matmul_job *j, const struct matmul_unit *u)
{
    const int64_t most_k = u->chunk_k > u->many_k ? u->chunk_k : u->many_k;
    const int most = u->chunk_groups > u->many_groups ? u->chunk_groups : u->many_groups;
    const int64_t k = j->k < most_k ? j->k : most_k;
    if (drive_direct(j, u, j->most_rows)) return 0;
    const size_t group = u->product && u->acts ? image_group_bytes(j->w->dtype, k, 32)
                                               : (size_t)k * IMAGE_ROWS * sizeof(float);
    return round_64(group * (size_t)most);
}

/* For each lane: that, and what the unit wants for many rows. */
static inline size_t drive_own_bytes(const struct matmul_job *j, const struct matmul_unit *u)
{
    return drive_lane_bytes(j, u) + round_64(u->many_bytes);
}

static inline bool drive_many(const struct matmul_job *j, const struct matmul_unit *u, int64_t i)
{
    return u->many && matmul_n_rows(j, i) >= u->many_rows;
}

/* Panels of rows: no fewer than the rows of all matrices fill, each alone, and in parts for lanes. */
static inline int64_t drive_n_panels(const struct matmul_job *j, const struct matmul_unit *u,
                                     int n_threads)
{
    if (!u->many || !u->panel_rows) return 0;
    const int64_t n_rows = j->ids ? j->most_rows : j->n_matrices * j->most_rows;
    return n_rows / u->panel_rows + j->n_matrices + n_threads;
}

static inline size_t drive_panels_bytes(const struct matmul_job *j, const struct matmul_unit *u,
                                        int n_threads)
{
    const int64_t n = drive_n_panels(j, u, n_threads);
    return n ? (size_t)(n * ((j->k + u->many_k - 1) / u->many_k)) * u->panel_bytes : 0;
}

static inline size_t drive_scratch_bytes(const struct matmul_job *j, const struct matmul_unit *u,
                                         int n_threads)
{
    return matmul_slots_bytes(j) + drive_acts_bytes(j, u) + drive_panels_bytes(j, u, n_threads) +
           drive_own_bytes(j, u) * (size_t)n_threads;
}

static inline bool drive_supports(const struct matmul_job *j)
{
    if (j->x->dtype == QRN_BF16 && !j->bf16) return false;
    return !j->packed || (image_exists(j->w->dtype) && image_mlx_group(j->w) > 0);
}

#endif
