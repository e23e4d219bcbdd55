/* SPDX-License-Identifier: MIT
 * How the attention kernels share their work.
 *
 * A unit is some tokens x some heads of one group, of one sequence and kv head, with all its
 * blocks.  Units go to lanes as wholes, by cost; where that does not come out even, large units are
 * walked by all lanes together, which compute partials of their blocks apart and then merge them,
 * each lane for its own dimensions.  Both ways give the same bits (attention_panel.h). */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_UNITS_H
#define QUERN_BACKENDS_CPU_ATTENTION_UNITS_H

#include "backends/cpu/attention_panel.h"

struct attention_unit {
    int64_t seq, kv_head, head, n_heads, token, n_tokens; /* tokens within the sequence */
    int64_t n_seq_tokens, n_rows; /* row r: token r / n_heads, head r % n_heads */
    int64_t first_block, end_block, cost;
};

/* Filled by a walk, which begins with it. */
struct attention_work {
    const struct attention_isa *isa;
    int64_t n_seqs, n_kv_heads, group, d_k, d_v;
    float scale, softcap;
    int64_t (*n_tokens)(const struct attention_work *w, int64_t seq);
    /* Keys begin .. end - 1 that a token attends to. */
    void (*range)(const struct attention_work *w, int64_t seq, int64_t token, int64_t *begin,
                  int64_t *end);
    const float *(*q)(const struct attention_work *w, const struct attention_unit *u, int64_t row);
    float *(*out)(const struct attention_work *w, const struct attention_unit *u, int64_t row);
    /* Sets k and v of the block, and what else is masked; false when there is nothing. */
    bool (*block)(const struct attention_work *w, const struct attention_unit *u, int64_t block,
                  struct attention_panel *panel);
    int64_t unit_tokens, unit_heads, unit_rows;
    float *keys, *values, *p, *own; /* this lane's; own: states of unit_rows rows */
    float *shared;                  /* all lanes': partials of split units */
};

enum { LEAST_UNIT_ROWS = 32, UNITS_PER_LANE = 8, SPLIT_ROUNDS = 2 };

/* --- memory --- */

static inline int64_t attention_lane_floats(int64_t d_k, int64_t d_v)
{
    return ATTENTION_BLOCK * (d_k + attention_packed_dims(d_v)) + PANEL_ROWS * ATTENTION_BLOCK +
           attention_rows_floats(PANEL_ROWS, d_v);
}

/* Blocks of a unit of n_rows rows that a lane takes in a round. */
static inline int64_t attention_round_blocks(int64_t n_rows)
{
    return PANEL_ROWS / 2 / n_rows > 1 ? PANEL_ROWS / 2 / n_rows : 1;
}

static inline int64_t attention_round_floats(int64_t d_v)
{
    return PANEL_ROWS * (attention_stride(d_v) + 32);
}

static inline size_t attention_work_bytes(int64_t d_k, int64_t d_v, int64_t own_floats,
                                          int n_threads)
{
    const int64_t lane = attention_lane_floats(d_k, d_v) + own_floats;
    const int64_t split = n_threads > 1 ? SPLIT_ROUNDS * attention_round_floats(d_v) : 0;
    return (size_t)(n_threads * (lane + split)) * sizeof(float);
}

/* Gives each lane its memory; returns own_floats of it for the walk itself. */
static inline float *attention_work_open(struct attention_work *w, const struct qrn_cpu_lane *lane,
                                         int64_t own_floats)
{
    const int64_t lane_floats = attention_lane_floats(w->d_k, w->d_v) + own_floats;
    w->keys = (float *)lane->scratch + lane_floats * lane->i;
    w->values = w->keys + ATTENTION_BLOCK * w->d_k;
    w->p = w->values + ATTENTION_BLOCK * attention_packed_dims(w->d_v);
    w->own = w->p + PANEL_ROWS * ATTENTION_BLOCK;
    w->shared = (float *)lane->scratch + lane_floats * lane->n;
    return w->own + attention_rows_floats(PANEL_ROWS, w->d_v);
}

/* --- units --- */

static inline int64_t at_most(int64_t x, int64_t most)
{
    return x < most ? x : most;
}

/* Units as large as leaves each lane some: a packed block serves all rows of a unit. */
static inline void attention_choose_units(struct attention_work *w, int n_lanes)
{
    int64_t rows = PANEL_ROWS;
    for (; rows > LEAST_UNIT_ROWS; rows /= 2) {
        int64_t n_units = 0;
        for (int64_t s = 0; s < w->n_seqs; s++)
            n_units += attention_n_tiles(w->n_tokens(w, s) * w->group, rows) * w->n_kv_heads;
        if (n_units >= (int64_t)n_lanes * UNITS_PER_LANE) break;
    }
    w->unit_heads = at_most(w->group, rows);
    w->unit_tokens = rows / w->unit_heads;
    w->unit_rows = w->unit_heads * w->unit_tokens;
}

static inline void unit_measure(const struct attention_work *w, struct attention_unit *u)
{
    int64_t begin, end, unused;
    const int64_t heads_left = (u->kv_head + 1) * w->group - u->head;
    u->n_heads = at_most(heads_left, w->unit_heads);
    u->n_tokens = at_most(u->n_seq_tokens - u->token, w->unit_tokens);
    u->n_rows = u->n_heads * u->n_tokens;
    w->range(w, u->seq, u->token, &begin, &unused);
    w->range(w, u->seq, u->token + u->n_tokens - 1, &unused, &end);
    u->first_block = begin / ATTENTION_BLOCK;
    u->end_block = attention_n_tiles(end, ATTENTION_BLOCK);
    if (u->end_block < u->first_block) u->end_block = u->first_block;
    u->cost = (u->end_block - u->first_block) * (u->n_rows + 4) + 1;
}

/* The unit after u, in a fixed order; the first one after {.seq = -1}.  False past the last. */
static inline bool next_unit(const struct attention_work *w, struct attention_unit *u)
{
    bool begins = u->seq < 0;
    if (!begins) {
        u->head += u->n_heads;
        if (u->head == (u->kv_head + 1) * w->group) {
            u->head = u->kv_head * w->group;
            u->token += u->n_tokens;
        }
        if (u->token == u->n_seq_tokens) {
            u->token = 0;
            u->head = ++u->kv_head * w->group;
        }
        begins = u->kv_head == w->n_kv_heads;
    }
    if (begins) {
        u->kv_head = u->head = u->token = 0;
        do {
            if (++u->seq == w->n_seqs) return false;
            u->n_seq_tokens = w->n_tokens(w, u->seq);
        } while (u->n_seq_tokens == 0);
    }
    unit_measure(w, u);
    return true;
}

/* --- the work --- */

struct unit_rows { /* of a unit, whatever the block */
    int64_t begin[PANEL_ROWS], end[PANEL_ROWS];
};

static inline void unit_open(const struct attention_work *w, const struct attention_unit *u,
                             struct unit_rows *rows, struct attention_panel *panel)
{
    panel->n_rows = u->n_rows;
    panel->d_k = w->d_k;
    panel->d_v = w->d_v;
    panel->scale = w->scale;
    panel->softcap = w->softcap;
    panel->p = w->p;
    for (int64_t r = 0; r < u->n_rows; r++) {
        w->range(w, u->seq, u->token + r / u->n_heads, &rows->begin[r], &rows->end[r]);
        panel->q[r] = w->q(w, u, r);
        panel->mask[r] = NULL;
    }
}

static inline void unit_block(const struct attention_work *w, const struct attention_unit *u,
                              int64_t block, const struct unit_rows *rows,
                              struct attention_panel *panel)
{
    const int64_t first = block * ATTENTION_BLOCK;
    for (int64_t r = 0; r < u->n_rows; r++) {
        panel->begin[r] = within_block(rows->begin[r], first);
        panel->end[r] = within_block(rows->end[r], first);
    }
    if (w->block(w, u, block, panel))
        w->isa->panel(panel);
    else if (panel->apart)
        memset(panel->rows.l, 0, (size_t)u->n_rows * sizeof *panel->rows.l);
}

/* k and v as packed in w->keys and w->values. */
static inline void panel_is_packed(const struct attention_work *w, struct attention_panel *panel)
{
    panel->k = w->keys;
    panel->v = w->values;
    panel->k_dim = panel->v_key = w->isa->width;
    panel->k_panel = w->d_k * w->isa->width;
    panel->v_panel = ATTENTION_BLOCK * w->isa->width;
    panel->half = false;
    panel->ahead = NULL;
}

static inline void whole_unit(const struct attention_work *w, const struct attention_unit *u)
{
    struct attention_panel panel;
    struct unit_rows rows;
    unit_open(w, u, &rows, &panel);
    panel.apart = false;
    panel.rows = attention_rows_at(w->own, u->n_rows, w->d_v);
    attention_rows_clear(&panel.rows, u->n_rows);
    for (int64_t b = u->first_block; b < u->end_block; b++) unit_block(w, u, b, &rows, &panel);
    for (int64_t r = 0; r < u->n_rows; r++)
        w->isa->finish(panel.rows.o + r * panel.rows.stride, panel.rows.l[r], w->out(w, u, r),
                       w->d_v);
}

/* A round's partials lie in one of two buffers: nobody is still merging the one that is written,
 * for all have met after the round in between.  Returns the number of the next round. */
static inline int64_t split_unit(const struct qrn_cpu_lane *lane, const struct attention_work *w,
                                 const struct attention_unit *u, int64_t i_round)
{
    struct attention_panel panel;
    struct unit_rows rows;
    const int64_t n_rows = u->n_rows, floats = attention_rows_floats(n_rows, w->d_v);
    const int64_t round = attention_round_blocks(n_rows) * lane->n;
    int64_t d, d_end, begin, end;
    const struct attention_rows state = attention_rows_at(w->own, n_rows, w->d_v);
    qrn_cpu_share(lane, w->d_v, 16, &d, &d_end);
    unit_open(w, u, &rows, &panel);
    panel.apart = true;
    attention_rows_clear(&state, n_rows);
    for (int64_t b = u->first_block; b < u->end_block; b += round, i_round++) {
        float *buffer =
            w->shared + i_round % SPLIT_ROUNDS * lane->n * attention_round_floats(w->d_v);
        const int64_t n = at_most(u->end_block - b, round);
        qrn_cpu_share(lane, n, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            panel.rows = attention_rows_at(buffer + i * floats, n_rows, w->d_v);
            unit_block(w, u, b + i, &rows, &panel);
        }
        qrn_cpu_lane_wait(lane);
        for (int64_t i = 0; i < n; i++) {
            struct attention_rows partial = attention_rows_at(buffer + i * floats, n_rows, w->d_v);
            partial.o += d;
            w->isa->merge(&state, &partial, n_rows, d_end - d);
        }
    }
    for (int64_t r = 0; r < n_rows && d < d_end; r++)
        w->isa->finish(state.o + r * state.stride, state.l[r], w->out(w, u, r) + d, d_end - d);
    return i_round;
}

/* --- who does what --- */

/* The lane of a unit of this cost, when `done` of `total` are given out before it. */
static inline int64_t lane_of(int64_t done, int64_t cost, int64_t total, int64_t n_lanes)
{
    return (2 * done + cost) * n_lanes / (2 * total);
}

/* The cost from which on units are split. */
static inline int64_t attention_split_cost(const struct attention_work *w, int64_t total,
                                           int64_t n_lanes)
{
    int64_t done = 0, lane = 0, load = 0, most = 0;
    if (n_lanes == 1) return INT64_MAX;
    for (struct attention_unit u = {.seq = -1}; next_unit(w, &u); done += u.cost) {
        const int64_t of = lane_of(done, u.cost, total, n_lanes);
        load = of == lane ? load + u.cost : u.cost;
        lane = of;
        if (load > most) most = load;
    }
    const bool even = most * n_lanes <= total + total / 16;
    return even ? INT64_MAX : total / (n_lanes * 8) + 1;
}

static inline void attention_run(const struct qrn_cpu_lane *lane, struct attention_work *w)
{
    int64_t total = 0, whole = 0, done = 0, i_round = 0;
    for (struct attention_unit u = {.seq = -1}; next_unit(w, &u);) total += u.cost;
    if (total == 0) return;
    const int64_t split = attention_split_cost(w, total, lane->n);
    for (struct attention_unit u = {.seq = -1}; next_unit(w, &u);)
        if (u.cost < split) whole += u.cost;
    for (struct attention_unit u = {.seq = -1}; next_unit(w, &u);) {
        if (u.cost >= split) continue;
        if (lane_of(done, u.cost, whole, lane->n) == lane->i) whole_unit(w, &u);
        done += u.cost;
    }
    if (split == INT64_MAX) return;
    for (struct attention_unit u = {.seq = -1}; next_unit(w, &u);)
        if (u.cost >= split) i_round = split_unit(lane, w, &u, i_round);
}

#endif
