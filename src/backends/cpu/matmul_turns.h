/* SPDX-License-Identifier: MIT
 * Which groups of which matrix a lane multiplies: equal parts by what rows cost, or turns of some groups at a
 * time. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_TURNS_H
#define QUERN_BACKENDS_CPU_MATMUL_TURNS_H

#include <stdatomic.h>
#include "backends/cpu/matmul_image.h"
#include "backends/cpu/matmul_job.h"

/* What the groups of a matrix cost, in rows; a single row costs more than its share: reading. */
static inline int64_t drive_cost(int64_t n_rows)
{
    return n_rows ? n_rows + 3 : 0;
}

static inline void drive_zero(const struct matmul_job *j, int64_t i, int64_t n0, int64_t n1)
{
    const int64_t n_rows = matmul_n_rows(j, i);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t n = n0; n < n1; n++) matmul_row_at(j, i, r).out[n] = 0.0f;
}

/* What a lane does, when all groups of all matrices stand in a row, each as long as it costs: from is
 * where the next matrix begins. */
struct drive_part {
    int64_t low, high, from;
};

static inline struct drive_part drive_part(const struct qrn_cpu_lane *lane,
                                           const struct matmul_job *j)
{
    const int64_t n_groups = (j->n + IMAGE_ROWS - 1) / IMAGE_ROWS, n = lane->n;
    int64_t total = 0;
    for (int64_t i = 0; i < j->n_matrices; i++) total += drive_cost(matmul_n_rows(j, i)) * n_groups;
    const int64_t each = total / n, rest = total % n;
    return (struct drive_part){.low = each * lane->i + rest * lane->i / n,
                               .high = each * (lane->i + 1) + rest * (lane->i + 1) / n};
}

/* The lane's groups of matrix i; none where there is nothing to sum: then out is zeros already. */
static inline void drive_take(struct drive_part *p, const struct matmul_job *j, int64_t i,
                              int64_t *begin, int64_t *end)
{
    const int64_t n_groups = (j->n + IMAGE_ROWS - 1) / IMAGE_ROWS;
    const int64_t cost = drive_cost(matmul_n_rows(j, i));
    *begin = *end = 0;
    if (cost == 0) return;
    const int64_t b = p->low <= p->from ? 0 : (p->low - p->from + cost - 1) / cost;
    const int64_t e = p->high <= p->from ? 0 : (p->high - p->from + cost - 1) / cost;
    p->from += cost * n_groups;
    *begin = b < n_groups ? b : n_groups;
    *end = e < n_groups ? e : n_groups;
    if (j->k || *begin >= *end) return;
    drive_zero(j, i, *begin * IMAGE_ROWS, *end * IMAGE_ROWS < j->n ? *end * IMAGE_ROWS : j->n);
    *end = *begin;
}

/* Whether lanes take some groups at a time, in turns, so that none waits for one that is slower: long runs of groups, at
 * most FEW_GROUPS, are still lines of memory.  With a few rows reading packed weights takes as long as multiplying them.
 * Fewer are bound by reading, where turns gain nothing on a Zen 5, and on a Xeon that has neighbours 1 to 7 %; not where
 * weights were read a moment ago: they are in the caches of who read them.  With MANY_TURN_ROWS rows each turn walks over
 * all of x, and units multiply two or four groups at once: turns are of MANY_TURN groups and multiples, if there are enough
 * for all lanes. */
enum { TURNS_FROM_ROWS = 4, FEW_GROUPS = 64, MANY_TURN_ROWS = 24, MANY_TURN = 4 };
static inline bool drive_in_turns(const struct qrn_cpu_lane *lane, const struct matmul_job *j)
{
    const bool from_one = !(lane->features & QRN_CPU_STREAMS) && !lane->near;
    return lane->n > 1 && j->k > 0 && j->most_rows >= (from_one ? 1 : TURNS_FROM_ROWS);
}

/* Groups g .. g + n - 1 of matrix i, a lane's turn.  Begins as {0}. */
struct drive_turn {
    int64_t i, g;
    int n;
    int64_t from, rows; /* groups and rows of the matrices before, groups of those without rows left out */
};

/* The lane's next; false: there is none.  At most few_groups, or many_groups where a matrix meets many_rows; fewer
 * towards the end, so that lanes end together. */
static inline bool drive_next(const struct qrn_cpu_lane *lane, const struct matmul_job *j,
                              int few_groups, int many_groups, int many_rows, struct drive_turn *t)
{
    const int64_t n_groups = (j->n + IMAGE_ROWS - 1) / IMAGE_ROWS;
    int64_t total = 0, at = atomic_load(lane->taken);
    for (int64_t i = 0; i < j->n_matrices; i++) total += matmul_n_rows(j, i) ? n_groups : 0;
    while (at < total) {
        for (int64_t n_rows; (n_rows = matmul_n_rows(j, t->i)) == 0 || at >= t->from + n_groups; t->i++) {
            t->from += n_rows ? n_groups : 0;
            t->rows += n_rows;
        }
        const int64_t n_rows = matmul_n_rows(j, t->i), most = n_rows >= many_rows ? many_groups : few_groups;
        const int64_t each = n_rows >= MANY_TURN_ROWS && total >= 4 * MANY_TURN * lane->n ? MANY_TURN : 1;
        const int64_t left = t->from + n_groups - at, part = ((total - at) / (2 * lane->n * each) + 1) * each;
        const int64_t n = most < part ? most : part;
        t->n = (int)(n < left ? n : left);
        t->g = at - t->from;
        if (atomic_compare_exchange_weak(lane->taken, &at, at + t->n)) return true;
    }
    return false;
}

#endif
