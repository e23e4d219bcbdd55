/* SPDX-License-Identifier: MIT
 * argmax: blocks share a long row where rows are few, and a second launch has the last word; top_k:
 * a block a row; moe_route: a warp a token.  Rows are read once (argmax) or six times (top_k, from
 * the second time on out of a cache): bound by latency more than by memory. */
#include "backends/cuda/device/ranking.cuh"
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/ranking_cuda.h"

static __device__ __forceinline__ void store_argmax(const qrn_ranking_params &p, int64_t row,
                                                    qrn_rank best)
{
    const int64_t id = qrn_index_of(best);
    p.ids[row * p.ids_stride] = (int32_t)id;
    if (p.values) p.values[row * p.values_stride] = p.x[row * p.x_stride + id];
}

/* Block i takes part i % n_parts of row i / n_parts, four elements a thread at a time. */
QRN_DEVICE_FUNCTION(qrn_argmax, 512, 2, qrn_ranking_params)
{
    __shared__ qrn_rank shared[16];
    for (int64_t b = blockIdx.x; b < p.n_rows * p.n_parts; b += gridDim.x) {
        const int64_t row = b / p.n_parts, part = b - row * p.n_parts;
        const float *x = p.x + row * p.x_stride;
        qrn_rank best = 0;
        for (int64_t i = 4 * (part * blockDim.x + threadIdx.x); i < p.n;
             i += 4 * p.n_parts * blockDim.x) {
            float v[4];
            qrn_load4(x, i, p.n, v);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const qrn_rank rank = i + j < p.n ? qrn_rank_of(v[j], i + j) : 0;
                best = rank > best ? rank : best;
            }
        }
        best = qrn_block_first(best, shared);
        if (threadIdx.x != 0) continue;
        if (p.n_parts > 1)
            p.firsts[b] = best;
        else
            store_argmax(p, row, best);
    }
}

/* The first of the parts: a warp a row. */
QRN_DEVICE_FUNCTION(qrn_argmax_of_parts, 32, 2, qrn_ranking_params)
{
    for (int64_t row = blockIdx.x; row < p.n_rows; row += gridDim.x) {
        qrn_rank best = 0;
#pragma unroll 4
        for (int64_t i = qrn_lane(); i < p.n_parts; i += 32) {
            const qrn_rank rank = p.firsts[row * p.n_parts + i];
            best = rank > best ? rank : best;
        }
        best = qrn_warp_first(best);
        if (qrn_lane() == 0) store_argmax(p, row, best);
    }
}

/* Those of the first k come into scratch in any order; how many come before each is its place. */
QRN_DEVICE_FUNCTION(qrn_top_k, 512, 2, qrn_ranking_params)
{
    __shared__ qrn_bins bins;
    __shared__ int n_found;
    for (int64_t r = blockIdx.x; r < p.n_rows; r += gridDim.x) {
        const float *x = p.x + r * p.x_stride;
        int32_t *found = p.found + r * p.k;
        const qrn_rank last =
            qrn_select(x, p.n, (unsigned long long)p.k, &bins, [](int64_t) { return 1ull; });
        if (threadIdx.x == 0) n_found = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < p.n; i += blockDim.x)
            if (qrn_rank_of(x[i], i) >= last) found[atomicAdd(&n_found, 1)] = (int32_t)i;
        __syncthreads();
        for (int64_t k = threadIdx.x; k < p.k; k += blockDim.x) {
            const int32_t id = found[k];
            const qrn_rank rank = qrn_rank_of(x[id], id);
            int64_t place = 0;
            for (int64_t i = 0; i < p.k; i++) place += qrn_rank_of(x[found[i]], found[i]) > rank;
            p.ids[r * p.ids_stride + place] = id;
            if (p.values) p.values[r * p.values_stride + place] = x[id];
        }
        __syncthreads();
    }
}

/* Experts are few.  A token's largest logit and the sum of exponentials. */
static __device__ __forceinline__ float largest_of(const float *x, int64_t n)
{
    float most = -__uint_as_float(0x7f800000u);
    for (int64_t i = qrn_lane(); i < n; i += 32) most = fmaxf(most, x[i]);
    return qrn_warp_max(most);
}

static __device__ __forceinline__ float sum_of_exp(const float *x, int64_t n, float most)
{
    float sum = 0.0f;
    for (int64_t i = qrn_lane(); i < n; i += 32) sum += qrn_exp(x[i] - most);
    return qrn_warp_sum(sum);
}

/* Any number of experts and ranks: each of the k looks for the next one in rank. */
static __device__ void route_any(const qrn_moe_route_params &p, int64_t t)
{
    const int lane = qrn_lane();
    const float *x = p.logits + t * p.logits_stride, most = largest_of(x, p.n_experts),
                sum = sum_of_exp(x, p.n_experts, most);
    int32_t *ids = p.ids + t * p.ids_stride;
    float *weights = p.weights + t * p.weights_stride, chosen = 0.0f;
    qrn_rank last = ~(qrn_rank)0;
    for (int64_t k = 0; k < p.k; k++) {
        qrn_rank best = 0;
        for (int64_t i = lane; i < p.n_experts; i += 32) {
            const qrn_rank rank = qrn_rank_of(x[i], i);
            if (rank < last && rank > best) best = rank;
        }
        last = qrn_warp_first(best);
        const int64_t id = qrn_index_of(last);
        const float w = qrn_exp(x[id] - most) / sum;
        chosen += w;
        if (lane != 0) continue;
        ids[k] = (int32_t)id;
        weights[k] = w;
    }
    if (!p.normalise) return;
    __syncwarp();
    for (int64_t k = lane; k < p.k; k += 32) weights[k] /= chosen;
}

/* Up to 32 * N experts, N a lane in registers, and 32 ranks, which are a lane's each. */
template <int N>
static __device__ __forceinline__ void route(const qrn_moe_route_params &p, int64_t t)
{
    const int lane = qrn_lane(), n_experts = (int)p.n_experts;
    const float *x = p.logits + t * p.logits_stride, infinity = __uint_as_float(0x7f800000u);
    float v[N], most = -infinity, sum = 0.0f, chosen = 0.0f, weight = 0.0f;
    uint32_t order[N], left = 0; /* a bit for each that is not chosen yet */
    int id = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = lane + 32 * i < n_experts ? x[lane + 32 * i] : -infinity;
        left |= lane + 32 * i < n_experts ? 1u << i : 0u;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        order[i] = qrn_order_of(v[i]);
        most = fmaxf(most, v[i]);
    }
    most = qrn_warp_max(most);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < n_experts) sum += qrn_exp(v[i] - most);
    sum = qrn_warp_sum(sum);
    for (int k = 0; k < (int)p.k; k++) {
        uint32_t best = 0;
        int at = -1; /* the lane's first in rank */
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (!(left >> i & 1u) || (at >= 0 && order[i] <= best)) continue;
            best = order[i];
            at = i;
        }
        const uint32_t first = __reduce_max_sync(QRN_ALL_OF_WARP, best);
        const bool ties = at >= 0 && best == first;
        const int next =
            (int)~__reduce_max_sync(QRN_ALL_OF_WARP, ties ? ~(uint32_t)(lane + 32 * at) : 0u);
        if (ties && lane == next % 32) left &= ~(1u << at);
        const float value = first ? qrn_value_at(first) : __uint_as_float(0x7fc00000u);
        const float w = qrn_exp(value - most) / sum;
        chosen += w;
        if (lane == k) id = next, weight = w;
    }
    if (lane >= (int)p.k) return;
    p.ids[t * p.ids_stride + lane] = id;
    p.weights[t * p.weights_stride + lane] = p.normalise ? weight / chosen : weight;
}

QRN_DEVICE_FUNCTION(qrn_moe_route, 256, 2, qrn_moe_route_params)
{
    const int64_t step = (int64_t)gridDim.x * 8;
    for (int64_t t = (int64_t)blockIdx.x * 8 + qrn_warp(); t < p.n_tokens; t += step) {
        if (p.k > 32 || p.n_experts > 512)
            route_any(p, t);
        else if (p.n_experts > 256)
            route<16>(p, t);
        else if (p.n_experts > 128)
            route<8>(p, t);
        else
            route<4>(p, t);
    }
}
