/* SPDX-License-Identifier: MIT
 * How vector kernels walk a product: 16 weight rows (a group) at a time from an image of
 * interleaved rows, which is the packed tensor, or is written for some groups and columns when
 * weights lie in rows.  Cutting K is exact: sums wait in out as they are.
 *
 * Which groups a lane takes says matmul_turns.h, what multiplies them matmul_unit.h.  Any walk gives the same bits.
 *
 * Products of rounded activations, by whatever unit: for blocks of 128 k of x, ascending (the last
 * may be shorter), with p from 0, and for each run of k in it that has one head, ascending,
 *     isum = the exact integer sum of s * level * q       (s, t: see matmul_forms.h; 1 if there is none)
 *     p = fma(isum, d, p)
 *     then, for m: tsum = the exact integer sum of t * q, p = fma(tsum, m, p), or -m where t is
 * and then acc = fma(p, d_x, acc). */
#ifndef QUERN_BACKENDS_CPU_MATMUL_DRIVE_H
#define QUERN_BACKENDS_CPU_MATMUL_DRIVE_H

#include <string.h>
#include "backends/cpu/matmul_turns.h"
#include "backends/cpu/matmul_unit.h"

struct drive {
    const struct matmul_job *j;
    const struct matmul_unit *u;
    const struct qrn_q8_act *acts; /* rows of x that were rounded here */
    char *panels;                  /* for each many_k columns n_panels of them */
    int64_t n_panels;
    char *own; /* this lane's memory */
    int64_t mlx_group;
    const struct qrn_tensor
        *middle; /* what silu_mul makes of finished sums, in place of out; NULL: nothing */
};

/* The panel that row r of matrix i begins, columns k0 and on; the next one lies behind it. */
static inline char *drive_panel(const struct drive *d, int64_t i, int64_t r, int64_t k0)
{
    const struct matmul_unit *u = d->u;
    const int64_t before = d->j->ids ? d->j->first[i] : i * d->j->most_rows;
    const int64_t p = before / u->panel_rows + i + r / u->panel_rows;
    return d->panels + (size_t)(k0 / u->many_k * d->n_panels + p) * u->panel_bytes;
}

/* This lane's share of the panels. */
static inline void drive_lay_out(const struct qrn_cpu_lane *lane, const struct drive *d)
{
    int64_t turn = 0;
    for (int64_t i = 0; i < d->j->n_matrices; i++) {
        if (!drive_many(d->j, d->u, i)) continue;
        for (int64_t r = 0; r < matmul_n_rows(d->j, i); r += d->u->panel_rows)
            if (turn++ % lane->n == lane->i) d->u->lay_out(d, i, r);
    }
}

/* Groups g .. g + n - 1 of matrix i, columns k0 .. k0 + k - 1, in own memory. */
static inline void drive_write(const struct drive *d, int64_t i, int64_t g, int n, int64_t k0,
                               int64_t k, size_t bytes, bool as_f32)
{
    const struct matmul_job *j = d->j;
    for (int c = 0; c < n; c++) {
        struct qrn_weight_row rows[IMAGE_ROWS];
        const int64_t n0 = (g + c) * IMAGE_ROWS;
        const int n_rows = (int)(j->n - n0 < IMAGE_ROWS ? j->n - n0 : IMAGE_ROWS);
        for (int r = 0; r < n_rows; r++) rows[r] = matmul_weight_row(j, i, n0 + r);
        void *out = d->own + (size_t)c * bytes;
        if (as_f32)
            (d->u->write ? d->u->write : qrn_image_write_f32)(rows, n_rows, k0, k, out);
        else
            qrn_image_write(rows, n_rows, k0, k, out);
    }
}

/* A row of x from column k0 on. */
static inline const void *drive_x(const struct drive *d, const struct matmul_row *row, int64_t k0)
{
    return d->acts ? (const char *)(d->acts + row->i_x * matmul_act_blocks(d->j) +
                                    k0 / QRN_Q8_ACT_BLOCK)
                   : (const char *)row->x + qrn_block_offset(d->j->x->dtype, k0);
}

/* How weights are asked for that n_rows rows meet.  Those that are unpacked for more than a tile of rows go on elsewhere after
 * some columns, so far ahead is in vain: a prompt of Q8_0 was 4 % slower.  A core that keeps up with streams does for one row,
 * as long as lines are touched in order; several take so long that it does not look far enough.  One with deep streams wants
 * both requests early, as long as there is little else to do: from memory one alone brings 4 to 10 % less. From the third
 * cache it brings more; the other one then names what is read just now. */
static inline struct ahead drive_ahead(const struct matmul_job *j, int64_t n_rows)
{
    if (!j->streams) return n_rows <= MAX_TILE_ROWS ? AHEAD_WEIGHTS : AHEAD_ROWS;
    if (j->deep && n_rows < 4) return (struct ahead){j->near ? 0 : DEEP_BYTES, DEEP_BYTES, false};
    return n_rows == 1 ? (struct ahead){0, 0, false}
                       : (struct ahead){FAR_BYTES, AHEAD_BYTES, false};
}

/* All rows of matrix i, for the groups and columns that t names. */
static inline void drive_rows(const struct drive *d, int64_t i, int64_t g, int64_t k0,
                              void (*product)(const struct matmul_tile *), struct matmul_tile *t)
{
    const struct matmul_job *j = d->j;
    const int64_t n_rows = matmul_n_rows(j, i);
    for (int64_t r = 0; r < n_rows; r += d->u->tile_rows, t->cold = false) {
        t->n_rows = (int)(n_rows - r < d->u->tile_rows ? n_rows - r : d->u->tile_rows);
        for (int n = 0; n < t->n_rows; n++) {
            const struct matmul_row row = matmul_row_at(j, i, r + n);
            t->x[n] = drive_x(d, &row, k0);
            t->out[n] = row.out + g * IMAGE_ROWS;
        }
        product(t);
    }
}

/* Packed weights of group g of matrix i, from column k0 on. */
static inline const char *drive_image(const struct drive *d, int64_t i, int64_t g, int64_t k0)
{
    const struct matmul_job *j = d->j;
    const int64_t n_groups = (j->n + IMAGE_ROWS - 1) / IMAGE_ROWS;
    return (const char *)j->w->data +
           (size_t)(i * n_groups + g) * image_group_bytes(j->w->dtype, j->k, d->mlx_group) +
           image_group_bytes(j->w->dtype, k0, d->mlx_group);
}

/* The weights of t's groups, g and on, from column k0 on, as the unit wants them. */
static inline void drive_weights(const struct drive *d, int64_t i, int64_t g, int64_t k0,
                                 bool direct, struct matmul_tile *t)
{
    const struct matmul_job *j = d->j;
    const struct matmul_unit *u = d->u;
    const enum qrn_dtype type = j->w->dtype;
    const bool as_image = u->product && u->acts;
    const size_t whole = j->packed ? image_group_bytes(type, j->k, d->mlx_group) : 0;
    const char *image = j->packed ? drive_image(d, i, g, k0) : NULL;
    if (direct) {
        t->cold = true;
        t->w = image;
        t->group_bytes = whole;
        return;
    }
    t->w = d->own;
    t->group_bytes = as_image ? image_group_bytes(type, t->k, d->mlx_group)
                              : (size_t)t->k * IMAGE_ROWS * sizeof(float);
    if (!j->packed)
        drive_write(d, i, g, t->n_groups, k0, t->k, t->group_bytes, !as_image);
    else
        for (int c = 0; c < t->n_groups; c++)
            u->unpack(image + (size_t)c * whole, t->k, d->mlx_group / 32,
                      (float *)(void *)(d->own + (size_t)c * t->group_bytes));
}

/* Rows that are walked together: about equal parts, so that none is too short for what unpacking its
 * weights costs; multiples of 48, which are whole panels of 12, 16 and 24 rows, as `most` is. */
static inline int64_t drive_row_step(int64_t n_rows, int64_t most)
{
    const int64_t n_steps = (n_rows + most - 1) / most, step = (n_rows + n_steps - 1) / n_steps;
    return (step + 47) / 48 * 48;
}

/* Columns that a tile of rows meets at once. */
static inline int64_t drive_tile_k(const struct matmul_job *j, const struct matmul_unit *u, int64_t n_rows)
{
    return n_rows == 1 || u->tile_k == 0 || j->k < u->tile_k ? j->k : u->tile_k;
}

/* A lane's turns: the one that it has, if there are `more`. */
struct drive_turns {
    const struct qrn_cpu_lane *lane;
    int few_groups, many_groups;
    struct drive_turn at;
    bool more;
};

static inline void drive_advance(const struct drive *d, struct drive_turns *t)
{
    t->more = drive_next(t->lane, d->j, t->few_groups, t->many_groups, d->u->many_rows, &t->at);
}

/* Takes the next turn, if turns are taken; its first weights, if they are packed, or NULL. */
static inline const char *drive_after(const struct drive *d, struct drive_turns *turns)
{
    if (!turns) return NULL;
    drive_advance(d, turns);
    return turns->more && d->j->packed ? drive_image(d, turns->at.i, turns->at.g, 0) : NULL;
}

/* Groups g .. g + n - 1 of matrix i: for each run of columns the weights as the unit wants them,
 * then all rows, or as many as the unit takes at once.  With the last run the lane's next turn is taken. */
static inline void drive_chunk(const struct drive *d, int64_t i, int64_t g, int n, struct drive_turns *turns)
{
    const struct matmul_job *j = d->j;
    const struct matmul_unit *u = d->u;
    const int64_t n_rows = matmul_n_rows(j, i), n0 = g * IMAGE_ROWS;
    const bool direct = drive_direct(j, u, n_rows), as_image = u->product && u->acts;
    const bool one_tile = n_rows <= u->tile_rows, many = drive_many(j, u, i);
    const int64_t step = many ? u->many_k : direct && one_tile ? drive_tile_k(j, u, n_rows) : u->chunk_k;
    const int64_t row_step = many ? drive_row_step(n_rows, u->many_step) : n_rows;
    for (int64_t r = 0; r < n_rows; r += row_step)
        for (int64_t k0 = 0; k0 < j->k; k0 += step) {
            struct matmul_tile t = {
                .n_groups = n,
                .n = j->n - n0 < n * IMAGE_ROWS ? j->n - n0 : n * IMAGE_ROWS,
                .k = j->k - k0 < step ? j->k - k0 : step,
                .mlx_blocks = d->mlx_group / 32,
                .begin = k0 == 0,
                .ahead = drive_ahead(j, n_rows),
            };
            if (k0 + t.k < j->k)
                t.next_w = j->packed ? drive_image(d, i, g, k0 + t.k) : NULL;
            else if (r + row_step >= n_rows)
                t.next_w = drive_after(d, turns);
            drive_weights(d, i, g, k0, direct, &t);
            if (many)
                u->many(d, i, g, r, n_rows - r < row_step ? n_rows - r : row_step, k0, &t,
                        d->own + drive_lane_bytes(j, u));
            else
                drive_rows(d, i, g, k0, direct || as_image ? u->product : u->product_f32, &t);
        }
}

/* Whether lanes share the rows of x: of groups the busiest would have a quarter more than an equal
 * share. */
static inline bool drive_by_rows(const struct matmul_job *j, const struct matmul_unit *u,
                                 int n_lanes)
{
    const int64_t n_groups = (j->n + IMAGE_ROWS - 1) / IMAGE_ROWS;
    const int64_t busiest = (n_groups + n_lanes - 1) / n_lanes;
    return !j->ids && j->n_matrices == 1 && j->n_x == j->m && j->k > 0 &&
           j->m >= (int64_t)4 * n_lanes * u->tile_rows && 4 * busiest * n_lanes > 5 * n_groups;
}

/* Rows begin .. begin + n - 1 of a job that drive_by_rows accepts; its tensors lie in own. */
static inline struct matmul_job
drive_part_of_rows(const struct matmul_job *j, struct qrn_tensor own[2], int64_t begin, int64_t n)
{
    struct matmul_job part = *j;
    own[0] = qrn_tensor_slice(*j->x, j->x->n_dims - 2, begin, n);
    own[1] = qrn_tensor_slice(*j->out, j->out->n_dims - 2, begin, n);
    part.x = &own[0];
    part.out = &own[1];
    part.m = part.n_x = part.most_rows = n;
    return part;
}

static inline void drive_products(const struct qrn_cpu_lane *lane, const struct drive *d)
{
    const struct matmul_job *j = d->j;
    const struct matmul_unit *u = d->u;
    struct drive_part part = drive_part(lane, j);
    if (drive_in_turns(lane, j)) {
        const bool few = drive_direct(j, u, j->most_rows) && j->most_rows <= u->tile_rows;
        struct drive_turns turns = {.lane = lane,
                                    .few_groups = few ? FEW_GROUPS : u->chunk_groups,
                                    .many_groups = u->many ? u->many_groups : u->chunk_groups};
        for (drive_advance(d, &turns); turns.more;) {
            const struct drive_turn now = turns.at;
            drive_chunk(d, now.i, now.g, now.n, &turns);
        }
        return;
    }
    for (int64_t i = 0; i < j->n_matrices && part.from < part.high; i++) {
        const bool many = drive_many(j, u, i);
        const int64_t most = many ? u->many_groups : u->chunk_groups;
        int64_t begin, end;
        drive_take(&part, j, i, &begin, &end);
        const int64_t n_chunks = (end - begin + most - 1) / most;
        const int64_t equal = n_chunks ? (end - begin + n_chunks - 1) / n_chunks : 0;
        const int64_t chunk = many ? (equal + MANY_TURN - 1) / MANY_TURN * MANY_TURN : equal;
        for (int64_t g = begin; g < end; g += chunk)
            drive_chunk(d, i, g, (int)(end - g < chunk ? end - g : chunk), NULL);
    }
}

/* Groups of gates that one turn has, with those of their ups: whole blocks of what the middle may be rounded to. */
enum { PAIRS_TURN = QRN_Q8_ACT_BLOCK / IMAGE_ROWS };

/* One turn, gates from group g on: all rows, or as many as the unit takes at once; next: of the lane's turns, taken with the last
 * columns. */
static inline void drive_pairs_turn(const struct qrn_cpu_lane *lane, const struct drive *d,
                                    int64_t g, int64_t *next)
{
    const struct matmul_job *j = d->j;
    const struct matmul_unit *u = d->u;
    const int64_t n_pairs = j->n / 2 / IMAGE_ROWS,
                  row_step = drive_row_step(j->most_rows, u->many_step);
    for (int64_t r = 0; r < j->most_rows; r += row_step)
        for (int64_t k0 = 0; k0 < j->k; k0 += u->many_k) {
            struct matmul_tile t = {
                .n_groups = 2 * PAIRS_TURN,
                .n = 2 * PAIRS_TURN * IMAGE_ROWS,
                .k = j->k - k0 < u->many_k ? j->k - k0 : u->many_k,
                .mlx_blocks = d->mlx_group / 32,
                .begin = k0 == 0,
                .ahead = drive_ahead(j, j->most_rows),
            };
            if (k0 + t.k < j->k) {
                t.next_w = drive_image(d, 0, g, k0 + t.k);
            } else if (r + row_step >= j->most_rows) {
                *next = qrn_cpu_take(lane) * PAIRS_TURN;
                t.next_w = *next < n_pairs ? drive_image(d, 0, *next, 0) : NULL;
            }
            drive_weights(d, 0, g, k0, true, &t);
            t.skip = (size_t)(n_pairs - PAIRS_TURN) * t.group_bytes;
            u->many(d, 0, g, r, j->most_rows - r < row_step ? j->most_rows - r : row_step, k0, &t,
                    d->own + drive_lane_bytes(j, u));
        }
}

/* A product whose first half of outputs are gates and whose second ups. */
static inline void drive_pairs(const struct qrn_cpu_lane *lane, const struct drive *d)
{
    const int64_t n_pairs = d->j->n / 2 / IMAGE_ROWS;
    for (int64_t g = qrn_cpu_take(lane) * PAIRS_TURN, next = n_pairs; g < n_pairs; g = next)
        drive_pairs_turn(lane, d, g, &next);
}

static inline void drive_round(const struct qrn_cpu_lane *lane, const struct matmul_job *j,
                               const struct matmul_unit *u, struct qrn_q8_act *acts)
{
    const int64_t n_blocks = matmul_act_blocks(j);
    int64_t begin, end;
    qrn_cpu_share(lane, j->n_x * n_blocks, 1, &begin, &end);
    for (int64_t b = begin; b < end; b++) {
        const int64_t k0 = b % n_blocks * QRN_Q8_ACT_BLOCK;
        const float *x = qrn_row_f32(j->x, b / n_blocks) + k0;
        float padded[QRN_Q8_ACT_BLOCK] = {0.0f};
        if (j->k - k0 < QRN_Q8_ACT_BLOCK) x = memcpy(padded, x, (size_t)(j->k - k0) * sizeof *x);
        u->round(x, acts + b);
    }
}

/* middle: as of struct drive. */
static inline void drive_run(const struct qrn_cpu_lane *lane, struct matmul_job *j,
                             const struct matmul_unit *u, const struct qrn_tensor *middle)
{
    char *at = lane->scratch;
    j->streams = lane->features & QRN_CPU_STREAMS;
    j->deep = lane->features & QRN_CPU_DEEP_STREAMS;
    j->near = lane->near;
    j->first = (int32_t *)(void *)at;
    j->slots = j->ids ? j->first + j->n_matrices + 1 : NULL;
    struct qrn_q8_act *acts = (struct qrn_q8_act *)(void *)(at + matmul_slots_bytes(j));
    const bool round = u->acts && !j->acts;
    char *panels = at + matmul_slots_bytes(j) + drive_acts_bytes(j, u);
    struct drive d = {
        .j = j,
        .u = u,
        .acts = round ? acts : NULL,
        .panels = panels,
        .n_panels = drive_n_panels(j, u, lane->n),
        .own = panels + drive_panels_bytes(j, u, lane->n) + drive_own_bytes(j, u) * (size_t)lane->i,
        .mlx_group = j->packed                   ? image_mlx_group(j->w)
                     : j->scales->n_dims && j->k ? qrn_mlx_group(j->w, j->scales)
                                                 : 32,
        .middle = middle,
    };
    if (j->ids && lane->i == 0) matmul_sort_slots(j);
    if (round) drive_round(lane, j, u, acts);
    if (j->ids || round) qrn_cpu_lane_wait(lane);
    struct qrn_cpu_lane share = *lane;
    struct qrn_tensor own[2];
    struct matmul_job part;
    if (drive_by_rows(j, u, lane->n)) {
        int64_t begin, end;
        qrn_cpu_share(lane, j->m, u->tile_rows, &begin, &end);
        part = drive_part_of_rows(j, own, begin, end - begin);
        d.j = &part;
        if (d.acts) d.acts += begin * matmul_act_blocks(j);
        if (d.n_panels) d.panels += (size_t)(begin / u->panel_rows + lane->i) * u->panel_bytes;
        share.i = 0;
        share.n = 1;
    }
    if (d.n_panels) {
        drive_lay_out(&share, &d);
        if (share.n > 1) qrn_cpu_lane_wait(lane);
    }
    if (u->enter) u->enter();
    if (middle)
        drive_pairs(&share, &d);
    else
        drive_products(&share, &d);
    if (u->leave) u->leave();
}

/* The kernel, from the functions of its op and the text serves. */
#define MATMUL_KERNEL_STRUCT(op_, variant, features)                     \
    const struct qrn_kernel qrn_cpu_##op_##_##variant = {                \
        .op = QRN_OP_##op_,                                              \
        .name = "cpu." #op_ "." #variant,                                \
        .needs = (features),                                             \
        .wants = (features)&QRN_CPU_AVX512_BF16 ? QRN_CPU_BF16_DOTS : 0, \
        .serves = serves,                                                \
        .supports = op_##_supports,                                      \
        .scratch_bytes = op_##_scratch,                                  \
        .run = op_##_run,                                                \
    }

/* The functions of a kernel of one op, from unit(job), takes(job) and the text
 * serves, and the kernel. */
#define MATMUL_KERNEL(op_, variant, features)                    \
    static size_t op_##_scratch(const void *args, int n_threads) \
    {                                                            \
        const struct matmul_job j = op_##_job(args);             \
        const struct matmul_unit u = unit(&j);                   \
        return drive_scratch_bytes(&j, &u, n_threads);           \
    }                                                            \
    static void op_##_run(void *lane, const void *args)          \
    {                                                            \
        struct matmul_job j = op_##_job(args);                   \
        const struct matmul_unit u = unit(&j);                   \
        drive_run(lane, &j, &u, NULL);                           \
    }                                                            \
    static bool op_##_supports(const void *args)                 \
    {                                                            \
        const struct matmul_job j = op_##_job(args);             \
        return takes(&j) && drive_supports(&j);                  \
    }                                                            \
    MATMUL_KERNEL_STRUCT(op_, variant, features)

#endif
