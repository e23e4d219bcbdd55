/* SPDX-License-Identifier: MIT
 * The walk that the variants of attention_paged share.
 *
 * A unit is up to 32 rows (new tokens x heads of one group) of one sequence and kv head, with all
 * their blocks.  Units go to lanes as wholes, by cost; a unit too long for one lane is walked by
 * all lanes together, which compute partials of its blocks and then merge them, rows shared.  Both
 * ways give the same bits (attention_panel.h). */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_PAGED_WALK_H
#define QUERN_BACKENDS_CPU_ATTENTION_PAGED_WALK_H

#include "backends/cpu/attention_panel.h"
#include "ops/kv_pages.h"

enum { UNIT_ROWS = 32, ROUND_BLOCKS = 4 /* of a split unit, for each lane */ };

struct paged {
    const struct qrn_attention_paged_args *a;
    const struct attention_isa *isa;
    struct kv_pages pages;
    int64_t group, d, stride;
    float *k, *v;          /* this lane's block as floats; NULL when pages hold floats */
    float *p, *partial;    /* this lane's [4][64], [4][stride] */
    float *state;          /* this lane's [UNIT_ROWS][stride] */
    float *split_state;    /* all lanes' [UNIT_ROWS][stride] */
    float *split_partials; /* all lanes' [blocks of a round][UNIT_ROWS][stride] */
};

struct unit {
    int64_t seq, kv_head, first_row, n_rows, n_seq_rows;
    int64_t first_block, end_block, cost;
};

static inline void row_range(const struct paged *w, const struct unit *u, int64_t row,
                             int64_t *begin, int64_t *end)
{
    const int64_t p = kv_pages_i32(&w->a->position)[u->seq] + (u->first_row + row) / w->group;
    qrn_attention_range(p, true, w->a->window, p + 1, begin, end);
}

/* The unit after u, in a fixed order; the first one after {.seq = -1}.  False past the last. */
static inline bool next_unit(const struct paged *w, struct unit *u)
{
    const int32_t *begin = kv_pages_i32(&w->a->seq_begin);
    int64_t unused;
    if (u->seq >= 0) u->first_row += UNIT_ROWS;
    if (u->seq >= 0 && u->first_row >= u->n_seq_rows) {
        u->first_row = 0;
        u->kv_head++;
    }
    if (u->seq < 0 || u->kv_head == w->pages.n_kv_heads) {
        u->kv_head = u->first_row = 0;
        do
            if (++u->seq == kv_pages_n_seqs(&w->a->position)) return false;
        while (begin[u->seq + 1] == begin[u->seq]);
        u->n_seq_rows = (begin[u->seq + 1] - begin[u->seq]) * w->group;
    }
    const int64_t rest = u->n_seq_rows - u->first_row;
    u->n_rows = rest < UNIT_ROWS ? rest : UNIT_ROWS;
    row_range(w, u, 0, &u->first_block, &unused);
    row_range(w, u, u->n_rows - 1, &unused, &u->end_block);
    u->first_block /= ATTENTION_BLOCK;
    u->end_block = (u->end_block + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    u->cost = (u->end_block - u->first_block) * ((u->n_rows + PANEL_ROWS - 1) / PANEL_ROWS + 1);
    return true;
}

/* One block for all rows of a unit: partials[row] when given, else merged into the lane's state. */
static inline void unit_block(const struct paged *w, const struct unit *u, int64_t block,
                              float *partials)
{
    const struct qrn_attention_paged_args *a = w->a;
    const int64_t first = block * ATTENTION_BLOCK, n = w->d * ATTENTION_BLOCK;
    struct attention_panel panel = {
        .d_k = w->d,
        .d_v = w->d,
        .scale = a->scale,
        .softcap = a->softcap,
        .p = w->p,
        .k = kv_page_head(&w->pages, u->seq, block, u->kv_head, false),
        .v = kv_page_head(&w->pages, u->seq, block, u->kv_head, true),
        .v_stride = w->d,
        .half = a->kv_type == QRN_F16,
    };
    if (panel.half && (u->n_rows > PANEL_ROWS || !w->isa->reads_halves)) {
        w->isa->widen(panel.k, w->k, n);
        w->isa->widen(panel.v, w->v, n);
        panel.k = w->k;
        panel.v = w->v;
        panel.half = false;
    }
    for (int64_t r = 0; r < u->n_rows; r += PANEL_ROWS) {
        panel.n_rows = u->n_rows - r < PANEL_ROWS ? u->n_rows - r : PANEL_ROWS;
        for (int64_t i = 0; i < panel.n_rows; i++) {
            const int64_t row = u->first_row + r + i, head = u->kv_head * w->group + row % w->group;
            const int64_t token = kv_pages_i32(&a->seq_begin)[u->seq] + row / w->group;
            int64_t begin, end;
            row_range(w, u, r + i, &begin, &end);
            panel.begin[i] = within_block(begin, first);
            panel.end[i] = within_block(end, first);
            panel.q[i] = (const float *)a->q.data + token * a->q.stride[0] + head * a->q.stride[1];
            panel.out[i] = partials ? partials + (r + i) * w->stride : w->partial + i * w->stride;
        }
        if (panel_attends(&panel)) w->isa->panel(&panel);
        for (int64_t i = 0; i < panel.n_rows && !partials; i++)
            w->isa->merge(w->state + (r + i) * w->stride, panel.out[i], w->d);
    }
}

static inline void write_row(const struct paged *w, const struct unit *u, int64_t r,
                             const float *state)
{
    const struct qrn_attention_paged_args *a = w->a;
    const int64_t row = u->first_row + r, head = u->kv_head * w->group + row % w->group;
    const int64_t token = kv_pages_i32(&a->seq_begin)[u->seq] + row / w->group;
    attention_state_finish(
        state, (float *)a->out.data + token * a->out.stride[0] + head * a->out.stride[1], w->d);
}

static inline void whole_unit(const struct paged *w, const struct unit *u)
{
    for (int64_t r = 0; r < u->n_rows; r++) attention_state_clear(w->state + r * w->stride, w->d);
    for (int64_t b = u->first_block; b < u->end_block; b++) unit_block(w, u, b, NULL);
    for (int64_t r = 0; r < u->n_rows; r++) write_row(w, u, r, w->state + r * w->stride);
}

static inline void split_unit(const struct qrn_cpu_lane *lane, const struct paged *w,
                              const struct unit *u)
{
    const int64_t round = (int64_t)lane->n * ROUND_BLOCKS, block_stride = UNIT_ROWS * w->stride;
    int64_t begin, end;
    /* Row r belongs to lane r mod n in every split unit, so that none is cleared while in use. */
    for (int64_t r = lane->i; r < u->n_rows; r += lane->n)
        attention_state_clear(w->split_state + r * w->stride, w->d);
    for (int64_t b = u->first_block; b < u->end_block; b += round) {
        const int64_t n = u->end_block - b < round ? u->end_block - b : round;
        qrn_cpu_share(lane, n, 1, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            unit_block(w, u, b + i, w->split_partials + i * block_stride);
        qrn_cpu_lane_wait(lane);
        for (int64_t r = lane->i; r < u->n_rows; r += lane->n)
            for (int64_t i = 0; i < n; i++)
                w->isa->merge(w->split_state + r * w->stride,
                              w->split_partials + i * block_stride + r * w->stride, w->d);
        qrn_cpu_lane_wait(lane);
    }
    for (int64_t r = lane->i; r < u->n_rows; r += lane->n)
        write_row(w, u, r, w->split_state + r * w->stride);
}

static inline int64_t paged_lane_floats(const struct qrn_attention_paged_args *a)
{
    const int64_t d = a->q.shape[2], stride = partial_stride(d);
    const int64_t widened = a->kv_type == QRN_F16 ? 2 * ATTENTION_BLOCK * d : 0;
    return widened + PANEL_ROWS * ATTENTION_BLOCK + (PANEL_ROWS + UNIT_ROWS) * stride;
}

static inline size_t attention_paged_scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_attention_paged_args *a = args;
    const int64_t n = n_threads, unit = UNIT_ROWS * partial_stride(a->q.shape[2]);
    const int64_t split = n > 1 ? unit + n * ROUND_BLOCKS * unit : 0;
    return (size_t)(n * paged_lane_floats(a) + split) * sizeof(float);
}

static inline void paged_open(const struct qrn_cpu_lane *lane, const struct attention_isa *isa,
                              const struct qrn_attention_paged_args *a, struct paged *w)
{
    float *all = lane->scratch, *own = all + paged_lane_floats(a) * lane->i;
    w->a = a;
    w->isa = isa;
    w->pages = (struct kv_pages){.pages = &a->pages,
                                 .n_kv_heads = a->n_kv_heads,
                                 .head_dim = a->q.shape[2],
                                 .page_offset = a->page_offset,
                                 .kv_type = a->kv_type};
    w->group = a->q.shape[1] / a->n_kv_heads;
    w->d = a->q.shape[2];
    w->stride = partial_stride(w->d);
    w->p = own;
    w->partial = w->p + PANEL_ROWS * ATTENTION_BLOCK;
    w->state = w->partial + PANEL_ROWS * w->stride;
    w->k = w->state + UNIT_ROWS * w->stride;
    w->v = w->k + ATTENTION_BLOCK * w->d;
    w->split_state = all + paged_lane_floats(a) * lane->n;
    w->split_partials = w->split_state + UNIT_ROWS * w->stride;
}

static inline void attention_paged_walk(struct qrn_cpu_lane *lane,
                                        const struct qrn_attention_paged_args *a,
                                        const struct attention_isa *isa)
{
    struct paged w;
    int64_t total = 0, n_units = 0, done = 0;
    if (qrn_tensor_n_elements(&a->q) == 0) return;
    paged_open(lane, isa, a, &w);
    for (struct unit u = {.seq = -1}; next_unit(&w, &u); n_units++) total += u.cost;
    /* More than a lane's fair share, or more than half of one where units do not come out even. */
    const int64_t fair = n_units % lane->n ? total / (2 * lane->n) : total / lane->n;
    const int64_t n_lanes = lane->n;
    int64_t whole_cost = 0;
    for (struct unit u = {.seq = -1}; next_unit(&w, &u);)
        if (n_lanes == 1 || u.cost <= fair) whole_cost += u.cost;
    for (struct unit u = {.seq = -1}; next_unit(&w, &u);) {
        if (n_lanes > 1 && u.cost > fair) continue;
        if ((2 * done + u.cost) * n_lanes / (2 * whole_cost) == lane->i) whole_unit(&w, &u);
        done += u.cost;
    }
    if (n_lanes == 1) return;
    for (struct unit u = {.seq = -1}; next_unit(&w, &u);)
        if (u.cost > fair) split_unit(lane, &w, &u);
}

#endif
