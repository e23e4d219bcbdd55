/* SPDX-License-Identifier: MIT
 * sample: one block draws, without a word to the host.  It is bound by what one multiprocessor
 * reads: some passes over the logits, which lie in L2, and few of them by thread 0 alone.
 *
 * Probabilities are added up as integers, of 2^-s each, s such that all of them fit into 62 bits:
 * exact sums, which no order of threads changes.  Filters find the last token in rank that they
 * keep, by counting and weighing (ranking.cuh). */
#include "backends/cuda/device/ranking.cuh"
#include "backends/cuda/ranking_cuda.h"
#include "base/philox.h"

enum { THREADS = 1024, WARPS = THREADS / 32 };

typedef unsigned long long weight;

struct sample_shared {
    qrn_bins bins;
    weight sums[WARPS];
    qrn_rank firsts[WARPS];
    int warp, chosen;
    weight of_chosen;
};

/* Copies logits, what is never drawn as -inf, and lowers those of history. */
static __device__ void penalise(const qrn_sample_params &p)
{
    const float infinity = __uint_as_float(0x7f800000u);
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS)
        p.x[i] = p.logits[i] > -infinity ? p.logits[i] : -infinity;
    for (int64_t i = threadIdx.x; i < p.n_history; i += THREADS) {
        const int32_t id = p.history[i];
        if (id >= 0 && id < p.n) p.counts[id] = 0;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.n_history; i += THREADS) {
        const int32_t id = p.history[i];
        if (id >= 0 && id < p.n) atomicAdd(&p.counts[id], 1);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.n_history; i += THREADS) {
        const int32_t id = p.history[i];
        const int count = id >= 0 && id < p.n ? atomicExch(&p.counts[id], 0) : 0;
        if (count == 0 || p.x[id] == -infinity) continue;
        double y = (double)p.x[id];
        if (p.repeat_penalty != 0.0f)
            y = y > 0.0 ? y / (double)p.repeat_penalty : y * (double)p.repeat_penalty;
        y -= (double)count * (double)p.frequency_penalty + (double)p.presence_penalty;
        p.x[id] = (float)y > -3.402823466e38f ? (float)y : -3.402823466e38f;
    }
    __syncthreads();
}

/* e^((x - largest) / temperature) in units of 2^-s, also where both are infinite. */
static __device__ __forceinline__ weight weigh(float x, float largest, float temperature,
                                               double unit)
{
    const float w = x == largest ? 1.0f : qrn_exp((x - largest) / temperature);
    return (weight)((double)w * unit);
}

static __device__ __forceinline__ weight warp_sum(weight x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(QRN_ALL_OF_WARP, x, step);
    return x;
}

static __device__ __forceinline__ weight block_sum(weight x, sample_shared &s)
{
    x = warp_sum(x);
    __syncthreads();
    if (qrn_lane() == 0) s.sums[qrn_warp()] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++) x += s.sums[i];
    return x;
}

/* The last in rank that top_k and top_p keep, 0: all. */
static __device__ qrn_rank last_kept(const qrn_sample_params &p, float largest, double unit,
                                     sample_shared &s)
{
    qrn_rank last = 0;
    const float *x = p.x;
    if (p.top_k > 0 && p.top_k < p.n)
        last = qrn_select(x, p.n, (weight)p.top_k, &s.bins, [](int64_t) { return (weight)1; });
    if (!(p.top_p > 0.0f && p.top_p < 1.0f)) return last;
    const auto mass = [=](int64_t i) {
        return qrn_rank_of(x[i], i) >= last ? weigh(x[i], largest, 1.0f, unit) : (weight)0;
    };
    weight sum = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS) sum += mass(i);
    const weight total = block_sum(sum, s), goal = (weight)((double)p.top_p * (double)total);
    return qrn_select(x, p.n, goal < 1 ? 1 : goal > total ? total : goal, &s.bins, mass);
}

/* Each warp has a piece of the vocabulary; the one in whose piece the sum passes u looks closer. */
static __device__ void draw(const qrn_sample_params &p, float largest, qrn_rank last, double unit,
                            sample_shared &s)
{
    const float infinity = __uint_as_float(0x7f800000u), *x = p.x;
    const double least =
        p.min_p > 0.0f ? (double)largest + log((double)p.min_p) : -(double)infinity;
    const float temperature = p.temperature;
    const int64_t piece = ((p.n + WARPS - 1) / WARPS + 31) / 32 * 32;
    const int64_t begin = qrn_warp() * piece, end = begin + piece < p.n ? begin + piece : p.n;
    const auto weight_of = [=](int64_t i) {
        const bool kept = (double)x[i] >= least && qrn_rank_of(x[i], i) >= last;
        return kept ? weigh(x[i], largest, temperature, unit) : (weight)0;
    };
    weight sum = 0, before = 0;
    for (int64_t i = begin + qrn_lane(); i < end; i += 32) sum += weight_of(i);
    const weight total = block_sum(sum, s);
    /* Weights of 1 / 2^s each: the sum passes u * total where it is above its whole part. */
    const weight limit = (weight)(qrn_uniform_at(p.seed, p.position) * (double)total);
    if (threadIdx.x == 0) {
        weight up_to = 0;
        s.warp = 0;
        for (int i = 0; i < WARPS; i++) {
            if (s.sums[i]) s.warp = i;
            up_to += s.sums[i];
            if (up_to > limit) break;
        }
    }
    __syncthreads();
    if (qrn_warp() == s.warp) {
        for (int i = 0; i < s.warp; i++) before += s.sums[i];
        int64_t chosen = 0;
        weight of_chosen = 0;
        for (int64_t i = begin; i < end; i += 32) {
            const int64_t at = i + qrn_lane();
            const weight w = at < end ? weight_of(at) : 0;
            weight up_to = w;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const weight other = __shfl_up_sync(QRN_ALL_OF_WARP, up_to, step);
                if (qrn_lane() >= step) up_to += other;
            }
            const unsigned passed = __ballot_sync(QRN_ALL_OF_WARP, w && before + up_to > limit),
                           any = __ballot_sync(QRN_ALL_OF_WARP, w != 0);
            const int which = passed ? __ffs((int)passed) - 1 : any ? 31 - __clz((int)any) : -1;
            if (which >= 0) {
                chosen = i + which;
                of_chosen = __shfl_sync(QRN_ALL_OF_WARP, w, which);
            }
            if (passed) break;
            before += __shfl_sync(QRN_ALL_OF_WARP, up_to, 31);
        }
        if (qrn_lane() == 0) {
            *p.id = (int32_t)chosen;
            if (p.probability) *p.probability = (float)((double)of_chosen / (double)total);
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_sample, 1024, 1, qrn_sample_params)
{
    __shared__ sample_shared s;
    penalise(p);
    qrn_rank best = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS) {
        const qrn_rank rank = qrn_rank_of(p.x[i], i);
        best = rank > best ? rank : best;
    }
    best = qrn_block_first(best, s.firsts);
    const int64_t first = qrn_index_of(best);
    const float largest = p.x[first];
    const bool none = largest == __uint_as_float(0xff800000u);
    if (none || p.temperature == 0.0f) {
        if (threadIdx.x != 0) return;
        *p.id = (int32_t)first;
        if (p.probability) *p.probability = none ? __uint_as_float(0x7fc00000u) : 1.0f;
        return;
    }
    int bits = 62;
    for (int64_t n = p.n; n > 1; n = (n + 1) / 2) bits--;
    const double unit = (double)((weight)1 << bits);
    draw(p, largest, last_kept(p, largest, unit, s), unit, s);
}
