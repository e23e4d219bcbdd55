/* SPDX-License-Identifier: MIT
 * sample in portable C: one lane does it all.  Instead of sorting the vocabulary, the filters find
 * the last token in rank that they keep; who ranks up to there is drawn from in order of id. */
#include <float.h>
#include <math.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/ranking.h"
#include "base/philox.h"

/* Copies logits, what is never drawn as -inf, and lowers those of history.  counts is scratch. */
static void penalise(const struct qrn_sample_args *a, float *x, int32_t *counts)
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

/* e^((x - largest) / temperature), also where both are infinite. */
static double weight(float x, float largest, double temperature)
{
    return x == largest ? 1.0 : exp(((double)x - (double)largest) / temperature);
}

/* The last token in rank that top_k and top_p keep; -1: they keep all.  ids is scratch. */
static int32_t last_kept(const struct qrn_sample_args *a, const float *x, float largest,
                         int32_t *ids)
{
    int64_t n = a->logits.shape[0];
    const bool limited = a->top_k > 0 && a->top_k < n;
    const bool nucleus = a->top_p > 0.0f && a->top_p < 1.0f;
    if (limited) {
        n = a->top_k;
        first_in_rank(x, a->logits.shape[0], n, ids);
    }
    if (!nucleus) return limited ? ids[n - 1] : -1;
    double total = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (!limited) ids[i] = (int32_t)i;
        total += weight(x[ids[i]], largest, 1.0);
    }
    if (!limited) make_heap(x, ids, n, false); /* the first k in order are a heap already */
    for (; n > 1; n--) {
        const int32_t id = pop_heap(x, ids, n, false);
        sum += weight(x[id], largest, 1.0);
        if (sum >= (double)a->top_p * total) return id;
    }
    return ids[0];
}

/* Draws from what ranks up to last (-1: no limit) and holds min_p. */
static int32_t draw(const struct qrn_sample_args *a, const float *x, float largest, int32_t last,
                    double *probability)
{
    const int64_t n = a->logits.shape[0];
    const double t = (double)a->temperature, u = qrn_uniform_at(a->seed, a->position);
    const double floor = a->min_p > 0.0f ? log((double)a->min_p) : -INFINITY;
    double total = 0.0, sum = 0.0, of_chosen = 0.0;
    int32_t chosen = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n; i++) {
            if (last >= 0 && ranks_before(x, last, i)) continue;
            if (x[i] != largest && !((double)x[i] - (double)largest >= floor)) continue;
            const double w = weight(x[i], largest, t);
            if (pass == 0) {
                total += w;
            } else if (w > 0.0) {
                chosen = i;
                of_chosen = w / total;
                sum += w;
                if (sum > u * total) break;
            }
        }
    *probability = of_chosen;
    return chosen;
}

static size_t scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_sample_args *a = args;
    (void)n_threads;
    return (size_t)a->logits.shape[0] * (sizeof(float) + sizeof(int32_t));
}

static void run(void *lane_, const void *args)
{
    const struct qrn_cpu_lane *lane = lane_;
    const struct qrn_sample_args *a = args;
    if (lane->i != 0) return;
    float *x = lane->scratch;
    int32_t *ids = (int32_t *)lane->scratch + a->logits.shape[0];
    penalise(a, x, ids);
    int32_t id = 0;
    double probability = 1.0;
    for (int32_t i = 1; i < a->logits.shape[0]; i++)
        if (x[i] > x[id]) id = i;
    if (a->temperature > 0.0f) {
        const float largest = x[id];
        id = draw(a, x, largest, last_kept(a, x, largest, ids), &probability);
    }
    *(int32_t *)a->id.data = id;
    if (a->probability.n_dims) *(float *)a->probability.data = (float)probability;
}

const struct qrn_kernel qrn_cpu_sample_generic = {
    .op = QRN_OP_sample, .name = "cpu.sample.generic", .scratch_bytes = scratch_bytes, .run = run,
};
