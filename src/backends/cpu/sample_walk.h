/* SPDX-License-Identifier: MIT
 * sample: one lane does it all.  Instead of sorting the vocabulary, the filters find the last token in
 * rank that they keep; who ranks up to there is drawn from in order of id.
 *
 * Loops over the vocabulary are plain arithmetic on blocks, which compilers turn into vectors; with
 * the same bits everywhere, since nothing is contracted or summed in another order. */
#ifndef QUERN_BACKENDS_CPU_SAMPLE_WALK_H
#define QUERN_BACKENDS_CPU_SAMPLE_WALK_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/ranking.h"
#include "backends/cpu/unroll.h"
#include "base/philox.h"

/* Copies logits, what is never drawn as -inf, and lowers those of history.  counts is scratch. */
static inline void penalise(const struct qrn_sample_args *a, float *x, int32_t *counts)
{
    const float *logits = a->logits.data;
    const int64_t n = a->logits.shape[0], n_history = a->history.n_dims ? a->history.shape[0] : 0;
    const int32_t *history = a->history.data;
    for (int64_t i = 0; i < n; i++) x[i] = logits[i] > -INFINITY ? logits[i] : -INFINITY;
    for (int64_t i = 0; i < n_history; i++) counts[history[i]] = 0;
    for (int64_t i = 0; i < n_history; i++) counts[history[i]]++;
    for (int64_t i = 0; i < n_history; i++) {
        const int32_t id = history[i];
        if (counts[id] == 0 || x[id] == -INFINITY) continue;
        double y = (double)x[id];
        if (a->repeat_penalty != 0.0f)
            y = y > 0.0 ? y / (double)a->repeat_penalty : y * (double)a->repeat_penalty;
        y -= (double)counts[id] * (double)a->frequency_penalty + (double)a->presence_penalty;
        x[id] = (float)y > -FLT_MAX ? (float)y : -FLT_MAX; /* lowered, yet never impossible */
        counts[id] = 0;
    }
}

/* x, or 0 where not kept: without a branch, so that loops become vectors. */
static inline double kept_or_0(double x, bool kept)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= -(uint64_t)kept;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x for x <= 0 within 2 units in the last place; 0 below -700. */
static inline double exp_below(double x)
{
    static const double shift = 0x1.8p52; /* added, it leaves a whole number in the low bits */
    const double shifted = x * 1.4426950408889634 + shift, n = shifted - shift;
    const double r = (x - n * 0x1.62e42fefp-1) - n * 0x1.473de6af278edp-39;
    const double of[13] = {1.0 / 479001600,
                           1.0 / 39916800,
                           1.0 / 3628800,
                           1.0 / 362880,
                           1.0 / 40320,
                           1.0 / 5040,
                           1.0 / 720,
                           1.0 / 120,
                           1.0 / 24,
                           1.0 / 6,
                           1.0 / 2,
                           1.0,
                           1.0};
    double p = 1.0 / 6227020800.0; /* 1 / 13! */
    UNROLL_16 for (int i = 0; i < 13; i++) p = p * r + of[i];
    uint64_t bits, exponent;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 52;
    memcpy(&p, &bits, sizeof p);
    return kept_or_0(p, x >= -700.0);
}

/* e^((x - largest) / temperature), also where both are infinite. */
static inline double weight(float x, float largest, double temperature)
{
    const double gap = ((double)x - (double)largest) / temperature;
    return exp_below(kept_or_0(gap, (double)x != (double)largest));
}

enum { SAMPLE_BLOCK = 256 };

static inline void weights(const float *x, int64_t n, float largest, double temperature,
                           double *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = weight(x[i], largest, temperature);
}

/* Buckets of logits, the largest first, so that top_p sorts one of them and not the vocabulary. */
enum { N_BUCKETS = 2048, BUCKETS_PER_UNIT = 64 };

static inline int bucket_of(float x, float largest)
{
    const float gap = x == largest ? 0.0f : largest - x;
    const float last = (float)(N_BUCKETS - 1) / BUCKETS_PER_UNIT;
    return gap < last ? (int)(gap * BUCKETS_PER_UNIT) : N_BUCKETS - 1;
}

/* The last token in rank that top_p keeps of the whole vocabulary; -1: all.  ids is scratch. */
static inline int32_t last_of_all(const float *x, int64_t n, float largest, float top_p,
                                  int32_t *ids)
{
    double mass[N_BUCKETS] = {0}, total = 0.0, sum = 0.0;
    int64_t n_ids = 0;
    int bucket = 0;
    for (int64_t i = 0; i < n; i += SAMPLE_BLOCK) {
        double w[SAMPLE_BLOCK];
        const int64_t m = n - i < SAMPLE_BLOCK ? n - i : SAMPLE_BLOCK;
        weights(x + i, m, largest, 1.0, w);
        for (int64_t j = 0; j < m; j++) mass[bucket_of(x[i + j], largest)] += w[j];
    }
    for (int b = 0; b < N_BUCKETS; b++) total += mass[b];
    while (bucket < N_BUCKETS - 1 && sum + mass[bucket] < (double)top_p * total)
        sum += mass[bucket++];
    for (int64_t i = 0; i < n; i += SAMPLE_BLOCK) {
        const int64_t m = n - i < SAMPLE_BLOCK ? n - i : SAMPLE_BLOCK;
        int found = 0;
        for (int64_t j = 0; j < m; j++) found |= bucket_of(x[i + j], largest) == bucket;
        for (int64_t j = 0; j < m && found; j++) {
            ids[n_ids] = (int32_t)(i + j);
            n_ids += bucket_of(x[i + j], largest) == bucket;
        }
    }
    make_heap(x, ids, n_ids, false);
    for (; n_ids > 0; n_ids--) {
        const int32_t id = pop_heap(x, ids, n_ids, false);
        sum += weight(x[id], largest, 1.0);
        if (sum >= (double)top_p * total) return id;
    }
    return -1;
}

/* The same of n ids in the order of their rank. */
static inline int32_t last_of_few(const float *x, const int32_t *ids, int64_t n, float largest,
                                  float top_p)
{
    double total = 0.0, sum = 0.0;
    int64_t i = 0;
    for (int64_t k = 0; k < n; k++) total += weight(x[ids[k]], largest, 1.0);
    for (; i < n - 1; i++)
        if ((sum += weight(x[ids[i]], largest, 1.0)) >= (double)top_p * total) break;
    return ids[i];
}

/* The last token in rank that top_k and top_p keep; -1: they keep all.  ids is scratch. */
static inline int32_t last_kept(const struct qrn_sample_args *a, const float *x, float largest,
                                int32_t *ids, ranking_above above)
{
    const int64_t n = a->logits.shape[0];
    const bool nucleus = a->top_p > 0.0f && a->top_p < 1.0f;
    if (a->top_k > 0 && a->top_k < n) {
        first_in_rank_by(x, n, a->top_k, ids, above);
        return nucleus ? last_of_few(x, ids, a->top_k, largest, a->top_p) : ids[a->top_k - 1];
    }
    return nucleus ? last_of_all(x, n, largest, a->top_p, ids) : -1;
}

/* Draws from what ranks up to last (-1: all) and holds min_p.  The first places of x become the
 * weights of ids, which are what is kept. */
static inline int32_t draw(const struct qrn_sample_args *a, float *x, float largest, int32_t last,
                           int32_t *ids, float *probability)
{
    const int64_t n = a->logits.shape[0];
    const double least = a->min_p > 0.0f ? (double)largest + log((double)a->min_p) : -INFINITY;
    const double u = qrn_uniform_at(a->seed, a->position);
    const float limit = last < 0 ? -INFINITY : x[last];
    const float low = fmaxf(limit, nextafterf((float)least, -INFINITY)); /* none below is kept */
    int64_t n_ids = 0, chosen = 0;
    double total = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i += SAMPLE_BLOCK) {
        const int64_t m = n - i < SAMPLE_BLOCK ? n - i : SAMPLE_BLOCK;
        int found = 0;
        for (int64_t j = 0; j < m; j++) found |= x[i + j] >= low;
        for (int64_t j = i; j < i + m && found; j++) {
            ids[n_ids] = (int32_t)j;
            n_ids += (double)x[j] >= least && (x[j] > limit || (x[j] == limit && j <= last));
        }
    }
    for (int64_t i = 0; i < n_ids;
         i += SAMPLE_BLOCK) { /* i <= ids[i]: what is overwritten was read */
        float of[SAMPLE_BLOCK];
        double w[SAMPLE_BLOCK];
        const int64_t m = n_ids - i < SAMPLE_BLOCK ? n_ids - i : SAMPLE_BLOCK;
        for (int64_t j = 0; j < m; j++) of[j] = x[ids[i + j]];
        weights(of, m, largest, (double)a->temperature, w);
        for (int64_t j = 0; j < m; j++) {
            x[i + j] = (float)w[j];
            total += (double)x[i + j];
        }
    }
    for (int64_t i = 0; i < n_ids && sum <= u * total; i++) {
        if (x[i] > 0.0f) chosen = i;
        sum += (double)x[i];
    }
    *probability = (float)((double)x[chosen] / total);
    return ids[chosen];
}

static inline size_t sample_scratch(const void *args, int n_threads)
{
    const struct qrn_sample_args *a = args;
    (void)n_threads;
    return (size_t)a->logits.shape[0] * (sizeof(float) + sizeof(int32_t));
}

static inline void sample_walk(const struct qrn_cpu_lane *lane, const struct qrn_sample_args *a,
                               ranking_above above)
{
    if (lane->i != 0) return;
    float *x = lane->scratch;
    int32_t *ids = (int32_t *)lane->scratch + a->logits.shape[0];
    penalise(a, x, ids);
    int32_t id = (int32_t)largest_at(x, a->logits.shape[0]);
    float probability = 1.0f;
    if (a->temperature > 0.0f) {
        const float largest = x[id];
        id = draw(a, x, largest, last_kept(a, x, largest, ids, above), ids, &probability);
    }
    *(int32_t *)a->id.data = id;
    if (a->probability.n_dims) *(float *)a->probability.data = probability;
}

#endif
