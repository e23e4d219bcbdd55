/* SPDX-License-Identifier: MIT
 * Ranks: larger first, then the lower index; NaN last.  Heaps of indices by rank. */
#ifndef QUERN_BACKENDS_CPU_RANKING_H
#define QUERN_BACKENDS_CPU_RANKING_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first place of the largest; 0 if all is NaN.  Sixteen maxima side by side, which compilers turn
 * into vectors. */
static inline int64_t largest_at(const float *x, int64_t n)
{
    float best[16], most = -INFINITY;
    int64_t i = 0;
    for (int j = 0; j < 16; j++) best[j] = -INFINITY;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int j = 0; j < 16; j++) most = best[j] > most ? best[j] : most;
    for (i = 0; i + 64 <= n; i += 64) {
        int found = 0;
        for (int j = 0; j < 64; j++) found |= x[i + j] == most;
        if (found) break;
    }
    for (; i < n; i++)
        if (x[i] == most) return i;
    return 0;
}

/* x[a] comes before x[b]. */
static inline bool ranks_before(const float *x, int32_t a, int32_t b)
{
    if (x[a] > x[b]) return true;
    if (x[a] < x[b]) return false;
    const bool a_is_nan = x[a] != x[a], b_is_nan = x[b] != x[b];
    return a_is_nan != b_is_nan ? b_is_nan : a < b;
}

/* Lets heap[i] sink to its place.  The root of n is the first in rank, or, last_first, the last. */
static inline void sift_down(const float *x, int32_t *heap, int64_t n, int64_t i, bool last_first)
{
    const int32_t sinking = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(x, heap[child + 1], heap[child]) != last_first) child++;
        if (ranks_before(x, heap[child], sinking) == last_first) break;
        heap[i] = heap[child];
    }
    heap[i] = sinking;
}

static inline void make_heap(const float *x, int32_t *heap, int64_t n, bool last_first)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(x, heap, n, i, last_first);
}

/* Takes the root out of a heap of n, whose last place then holds it. */
static inline int32_t pop_heap(const float *x, int32_t *heap, int64_t n, bool last_first)
{
    const int32_t root = heap[0];
    heap[0] = heap[n - 1];
    sift_down(x, heap, n - 1, 0, last_first);
    heap[n - 1] = root;
    return root;
}

/* ids is a heap, last first, of some of x[0 .. i - 1]; x[i] takes a place if it comes before the root. */
static inline void offer(const float *x, int64_t i, int32_t *ids, int64_t k)
{
    if (!ranks_before(x, (int32_t)i, ids[0])) return;
    ids[0] = (int32_t)i;
    sift_down(x, ids, k, 0, true);
}

/* Which of 16 are larger than limit. */
typedef unsigned (*ranking_above)(const float *x, float limit);

/* The first k of n in rank, in order; 1 <= k <= n.  above, if there is one, looks for those that
 * matter. */
static inline void first_in_rank_by(const float *x, int64_t n, int64_t k, int32_t *ids,
                                    ranking_above above)
{
    int64_t i = k;
    for (int64_t j = 0; j < k; j++) ids[j] = (int32_t)j;
    make_heap(x, ids, k, true);
    for (; above && i + 16 <= n; i += 16) {
        const float limit = x[ids[0]];
        unsigned found = limit == limit ? above(x + i, limit) : 0xffffu;
        for (; found; found &= found - 1) offer(x, i + __builtin_ctz(found), ids, k);
    }
    for (; i < n; i++) offer(x, i, ids, k);
    for (int64_t j = k; j > 1; j--) (void)pop_heap(x, ids, j, true);
}

#endif
