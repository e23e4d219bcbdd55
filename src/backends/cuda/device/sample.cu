/* SPDX-License-Identifier: MIT
 * sample: launches of blocks of 2048 logits each, without a word to the host.  Bound by latency: a
 * pass over the vocabulary, which lies in L2, is one load a thread, and the same few launches serve
 * whatever the filters are.
 *
 *     begin      what is never drawn becomes -inf; the first in rank of each block
 *     penalise   one block: tokens of history; after it begin again
 *     count      top_k: three passes, 11 bits of the order of values at a time, find the value of
 *                the k-th in rank, and how many of its equals are kept
 *     weigh      top_p: the same with probabilities in place of numbers
 *     sum        the probability of what is kept, of each block
 *     draw       one block: where their sum passes u
 *
 * Probabilities are added up as integers, of 2^-40 each (fewer bits where that could be too much
 * for 64): exact sums, which no order of threads changes.  Shared memory adds numbers of 32 bits,
 * so a weight goes there in two parts of 20. */
#include "backends/cuda/device/ranking.cuh"
#include "backends/cuda/ranking_cuda.h"
#include "base/philox.h"

enum { THREADS = QRN_SAMPLE_THREADS, WARPS = THREADS / 32, EACH = 4, HALF = 20 };

typedef unsigned long long weight;

/* e^((x - largest) / temperature) in units, also where both are infinite. */
static __device__ __forceinline__ weight weigh(float x, float largest, float temperature, int bits)
{
    const weight unit = (weight)1 << bits;
    const float w = x == largest ? 1.0f : qrn_exp((x - largest) / temperature);
    const weight y = (weight)((double)w * (double)unit);
    return y < unit ? y : unit - 1; /* two halves hold it */
}

/* What lies before this thread's x among those of the block, and in *total all. */
static __device__ __forceinline__ weight sum_before(weight x, weight *shared, weight *total)
{
    weight up_to = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const weight other = __shfl_up_sync(QRN_ALL_OF_WARP, up_to, step);
        if (qrn_lane() >= step) up_to += other;
    }
    __syncthreads();
    if (qrn_lane() == 31) shared[qrn_warp()] = up_to;
    __syncthreads();
    weight before = 0, all = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        if (i < qrn_warp()) before += shared[i];
        all += shared[i];
    }
    *total = all;
    return before + up_to - x;
}

/* The first in rank of all; begin has left that of each block.  It says the largest value, too. */
static __device__ __forceinline__ qrn_rank first_of_all(const qrn_sample_params &p,
                                                        qrn_rank *shared)
{
    qrn_rank best = 0;
    for (int64_t i = threadIdx.x; i < p.n_parts; i += THREADS)
        best = p.firsts[i] > best ? p.firsts[i] : best;
    return qrn_block_first(best, shared);
}

/* This thread's logits: EACH from begin on, -inf beyond the end. */
static __device__ __forceinline__ void load(const qrn_sample_params &p, const float *from,
                                            int64_t begin, float (&x)[EACH])
{
    const float infinity = __uint_as_float(0x7f800000u);
    if (begin + EACH <= p.n && ((uintptr_t)(from + begin) & 15) == 0) {
        const float4 v = *(const float4 *)(from + begin);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) x[j] = begin + j < p.n ? from[begin + j] : -infinity;
}

static __device__ __forceinline__ int64_t begin_of(int64_t part)
{
    return part * QRN_SAMPLE_PART + EACH * (int64_t)threadIdx.x;
}

QRN_DEVICE_FUNCTION(qrn_sample_begin, QRN_SAMPLE_THREADS, 2, qrn_sample_params)
{
    __shared__ qrn_rank shared[WARPS];
    const float infinity = __uint_as_float(0x7f800000u);
    const int64_t begin = begin_of(blockIdx.x), step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < QRN_SAMPLE_PASSES * QRN_BINS;
         i += step)
        p.bins[i] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        p.states[0] = qrn_sample_state{(weight)p.top_k, 0, 0, 0};
    float x[EACH];
    load(p, p.logits, begin, x);
    qrn_rank best = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (begin + j >= p.n) break;
        x[j] = x[j] > -infinity ? x[j] : -infinity;
        p.x[begin + j] = x[j];
        const qrn_rank rank = qrn_rank_of(x[j], begin + j);
        best = rank > best ? rank : best;
    }
    best = qrn_block_first(best, shared);
    if (threadIdx.x == 0) p.firsts[blockIdx.x] = best;
}

/* Lowers the tokens of history, each once. */
QRN_DEVICE_FUNCTION(qrn_sample_penalise, QRN_SAMPLE_THREADS, 2, qrn_sample_params)
{
    const float infinity = __uint_as_float(0x7f800000u);
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
}

/* Where the bits of a pass lie: 11, 11 and 10 of the 32. */
static __device__ __forceinline__ int shift_of(int pass)
{
    return pass % 3 == 0 ? 21 : pass % 3 == 1 ? 10 : 0;
}

/* Whether the bits above those of a pass are the ones that were found. */
static __device__ __forceinline__ bool is_within(int pass, uint32_t order, uint32_t found)
{
    return pass % 3 == 0 || (order ^ found) >> (shift_of(pass) + (pass % 3 == 1 ? 11 : 10)) == 0;
}

struct found_bin {
    int bin;
    weight left;
};

/* What is known before the pass before this one, and what that has found: asked for at once.
 * Threads have the highest bins first. */
struct known {
    enum { BINS_EACH = QRN_BINS / THREADS };
    qrn_sample_state state;
    weight mass[BINS_EACH];
    int top;
    __device__ __forceinline__ known(const qrn_sample_params &p)
        : state(p.states[p.before < 0 ? 0 : p.before])
    {
        top = QRN_BINS - 1 - (int)threadIdx.x * BINS_EACH;
#pragma unroll
        for (int i = 0; i < BINS_EACH; i++)
            mass[i] = p.before < 0 ? 0 : p.bins[(int64_t)p.before * QRN_BINS + top - i];
    }
};

/* What is known after that pass: the first bin, from the highest, up to which the masses reach the
 * goal. Each block works it out for itself. */
static __device__ qrn_sample_state advance(const qrn_sample_params &p, const known &k,
                                           float largest, weight *shared, found_bin *found)
{
    enum { BINS_EACH = known::BINS_EACH };
    const int pass = p.before, top = k.top;
    const bool weighs = pass >= 3;
    qrn_sample_state s = k.state;
    weight mass[BINS_EACH], sum = 0, total;
#pragma unroll
    for (int i = 0; i < BINS_EACH; i++) mass[i] = k.mass[i];
    if (weighs && s.n_equals && is_within(pass, s.last, s.found)) {
        const int bin = (int)(s.last >> shift_of(pass) & (QRN_BINS - 1)); /* of top_k's last */
        const weight of_equals = s.n_equals * weigh(qrn_value_at(s.last), largest, 1.0f, p.bits);
        const int bin_here = pass % 3 == 2 ? bin & 1023 : bin;
#pragma unroll
        for (int i = 0; i < BINS_EACH; i++)
            if (top - i == bin_here) mass[i] += of_equals;
    }
#pragma unroll
    for (int i = 0; i < BINS_EACH; i++) sum += mass[i];
    weight left = sum_before(sum, shared, &total);
    if (pass == 3) {
        const weight goal = (weight)((double)p.top_p * (double)total);
        s.goal = goal < 1 ? 1 : goal > total ? total : goal;
    }
    if (threadIdx.x == 0) *found = found_bin{0, 0};
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BINS_EACH; i++) {
        if (left < s.goal && left + mass[i] >= s.goal) *found = found_bin{top - i, s.goal - left};
        left += mass[i];
    }
    __syncthreads();
    s.found |= (uint32_t)found->bin << shift_of(pass);
    s.goal = found->left;
    if (pass % 3 == 2) { /* all bits: equals are kept from the lowest id on */
        const weight each = weighs ? weigh(qrn_value_at(s.found), largest, 1.0f, p.bits) : 1;
        s.last = s.found;
        s.n_equals = each ? (s.goal + each - 1) / each : ~(weight)0;
        s.found = 0;
    }
    return s;
}

/* What is known when pass number `pass` begins, which follows p.before; -1: none. */
static __device__ __forceinline__ qrn_sample_state state_at(const qrn_sample_params &p, int pass,
                                                            const known &k, float largest,
                                                            weight *shared, found_bin *found)
{
    const qrn_sample_state s = p.before < 0 ? k.state : advance(p, k, largest, shared, found);
    if (pass != 0 && blockIdx.x == 0 && threadIdx.x == 0) p.states[pass] = s;
    return s;
}

/* A pass over the vocabulary: how many there are, or how probable they are, by 11 bits of their
 * order. */
QRN_DEVICE_FUNCTION(qrn_sample_pass, QRN_SAMPLE_THREADS, 2, qrn_sample_params)
{
    __shared__ weight shared[WARPS];
    __shared__ found_bin found;
    __shared__ unsigned low[QRN_BINS], high[QRN_BINS];
    const bool weighs = p.pass >= 3;
    float x[EACH];
    const int64_t begin = begin_of(blockIdx.x);
    load(p, p.x, begin, x);
    const known k(p);
    for (int i = (int)threadIdx.x; i < QRN_BINS; i += THREADS) low[i] = high[i] = 0;
    const float largest = weighs ? qrn_value_at((uint32_t)(first_of_all(p, shared) >> 32)) : 0.0f;
    const qrn_sample_state s = state_at(p, p.pass, k, largest, shared, &found);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const uint32_t order = qrn_order_of(x[j]);
        if (begin + j >= p.n || !is_within(p.pass, order, s.found)) continue;
        const int bin = (int)(order >> shift_of(p.pass) & (p.pass % 3 == 2 ? 1023u : 2047u));
        if (!weighs) {
            atomicAdd(&low[bin], 1u);
        } else if (order > s.last) {
            const weight w = weigh(x[j], largest, 1.0f, p.bits);
            if (w) atomicAdd(&low[bin], (unsigned)(w & ((1u << HALF) - 1)));
            if (w >> HALF) atomicAdd(&high[bin], (unsigned)(w >> HALF));
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < QRN_BINS; i += THREADS) {
        const weight mass = low[i] + ((weight)high[i] << HALF);
        if (mass) atomicAdd(&p.bins[p.pass * QRN_BINS + i], mass);
    }
}

/* The weight of a value that is kept. */
static __device__ __forceinline__ weight weight_of(const qrn_sample_params &p, float x,
                                                   float largest)
{
    if (p.min_p > 0.0f && (double)x < (double)largest + log((double)p.min_p)) return 0;
    return weigh(x, largest, p.temperature, p.bits);
}

/* Of each block: the weight of what is kept without those that equal the last, and their number. */
QRN_DEVICE_FUNCTION(qrn_sample_sum, QRN_SAMPLE_THREADS, 2, qrn_sample_params)
{
    __shared__ weight shared[WARPS];
    __shared__ found_bin found;
    float x[EACH];
    const int64_t begin = begin_of(blockIdx.x);
    load(p, p.x, begin, x);
    const known k(p);
    const float largest = qrn_value_at((uint32_t)(first_of_all(p, shared) >> 32));
    const qrn_sample_state s = state_at(p, QRN_SAMPLE_PASSES, k, largest, shared, &found);
    weight sum = 0, equals = 0, total;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const uint32_t order = qrn_order_of(x[j]);
        if (begin + j < p.n && order > s.last) sum += weight_of(p, x[j], largest);
        if (begin + j < p.n && order == s.last) equals++;
    }
    sum_before(sum, shared, &total);
    if (threadIdx.x == 0) p.sums[blockIdx.x] = total;
    sum_before(equals, shared, &total);
    if (threadIdx.x == 0) p.equals[blockIdx.x] = total;
}

/* The block in which the sum passes the limit; what lies before it. */
struct place {
    int64_t part;
    weight equals, sum;
};

QRN_DEVICE_FUNCTION(qrn_sample_draw, QRN_SAMPLE_THREADS, 1, qrn_sample_params)
{
    __shared__ weight shared[WARPS];
    __shared__ place at;
    const qrn_rank best = first_of_all(p, shared);
    const int64_t first = qrn_index_of(best);
    const float largest = qrn_value_at((uint32_t)(best >> 32));
    const bool none = largest == __uint_as_float(0xff800000u);
    if (none || p.temperature == 0.0f) {
        if (threadIdx.x != 0) return;
        *p.id = (int32_t)first;
        if (p.probability) *p.probability = none ? __uint_as_float(0x7fc00000u) : 1.0f;
        return;
    }
    const qrn_sample_state s = p.states[QRN_SAMPLE_PASSES];
    const weight of_equal = s.n_equals ? weight_of(p, qrn_value_at(s.last), largest) : 0;
    if (threadIdx.x == 0) at = place{0, 0, 0};
    /* Twice over the blocks: for the sum of all, then for where it passes the limit. */
    weight total = 0, limit = ~(weight)0, all;
    for (int round = 0; round < 2; round++) {
        weight sum = 0, equals = 0;
        for (int64_t i0 = 0; i0 < p.n_parts; i0 += THREADS) {
            const int64_t i = i0 + threadIdx.x;
            const weight have = i < p.n_parts ? p.equals[i] : 0;
            const weight before = equals + sum_before(have, shared, &all);
            equals += all;
            const weight left = s.n_equals > before ? s.n_equals - before : 0;
            const weight mine =
                i < p.n_parts ? p.sums[i] + (have < left ? have : left) * of_equal : 0;
            const weight up_to = sum + sum_before(mine, shared, &all);
            sum += all;
            if (up_to <= limit && limit < up_to + mine) at = place{i, before, up_to};
        }
        if (round == 0) {
            total = sum;
            limit = (weight)(qrn_uniform_at(p.seed, p.position) * (double)total);
            limit = limit < total ? limit : total - 1;
        }
    }
    __syncthreads();
    /* The same within the block. */
    float x[EACH];
    const int64_t begin = begin_of(at.part);
    load(p, p.x, begin, x);
    weight have = 0, w[EACH], mine = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) have += begin + j < p.n && qrn_order_of(x[j]) == s.last;
    weight before = at.equals + sum_before(have, shared, &all);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const uint32_t order = qrn_order_of(x[j]);
        const bool equal = order == s.last, kept = order > s.last || (equal && before < s.n_equals);
        w[j] = begin + j < p.n && kept ? weight_of(p, x[j], largest) : 0;
        before += begin + j < p.n && equal;
        mine += w[j];
    }
    weight up_to = at.sum + sum_before(mine, shared, &all);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (up_to <= limit && limit < up_to + w[j]) {
            *p.id = (int32_t)(begin + j);
            if (p.probability) *p.probability = (float)((double)w[j] / (double)total);
        }
        up_to += w[j];
    }
}
