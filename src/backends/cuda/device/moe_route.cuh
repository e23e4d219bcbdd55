/* SPDX-License-Identifier: MIT
 * moe_route of a token by a warp. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MOE_ROUTE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MOE_ROUTE_CUH

#include "backends/cuda/device/ranking.cuh"
#include "backends/cuda/ranking_cuda.h"

/* Experts are few.  A token's largest logit and the sum of exponentials. */
static __device__ __forceinline__ float moe_largest(const float *x, int64_t n)
{
    float most = -__uint_as_float(0x7f800000u);
    for (int64_t i = qrn_lane(); i < n; i += 32) most = fmaxf(most, x[i]);
    return qrn_warp_max(most);
}

static __device__ __forceinline__ float moe_sum_of_exp(const float *x, int64_t n, float most)
{
    float sum = 0.0f;
    for (int64_t i = qrn_lane(); i < n; i += 32) sum += qrn_exp(x[i] - most);
    return qrn_warp_sum(sum);
}

/* Any number of experts and ranks: each of the k looks for the next one in rank. */
static __device__ void moe_route_any(const qrn_moe_route_params &p, int64_t t, int32_t *ids, float *weights)
{
    const int lane = qrn_lane();
    const float *x = p.logits + t * p.logits_stride, most = moe_largest(x, p.n_experts),
                sum = moe_sum_of_exp(x, p.n_experts, most);
    float chosen = 0.0f;
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

/* Largest first, by Batcher's odd-even merges: runs of RUN are merged to runs twice as long. */
template <int RUN, int APART, int N> static __device__ __forceinline__ void moe_merge(qrn_rank (&rank)[N])
{
#pragma unroll
    for (int i = APART % RUN; i + APART < N; i++) {
        if ((i - APART % RUN) / APART % 2 || i / (2 * RUN) != (i + APART) / (2 * RUN)) continue;
        const qrn_rank a = rank[i], b = rank[i + APART];
        rank[i] = a > b ? a : b;
        rank[i + APART] = a > b ? b : a;
    }
    if constexpr (APART > 1) moe_merge<RUN, APART / 2>(rank);
}
template <int RUN, int N> static __device__ __forceinline__ void moe_sort(qrn_rank (&rank)[N])
{
    moe_merge<RUN, RUN>(rank);
    if constexpr (2 * RUN < N) moe_sort<2 * RUN>(rank);
}

/* The k experts of a token by rank: of up to 32 * N experts, N a lane in registers, and up to 32 ranks.  A lane sorts
 * its own, so that each rank is the largest of what lanes have first. */
template <int N> static __device__ __forceinline__ void moe_choose(const float *x, int n_experts, int k, int32_t *ids)
{
    qrn_rank rank[N]; /* 0: no expert */
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int id = qrn_lane() + 32 * i;
        rank[i] = id < n_experts ? qrn_rank_of(x[id], id) : 0;
    }
    moe_sort<1>(rank);
    for (int j = 0; j < k; j++) {
        const uint32_t order = (uint32_t)(rank[0] >> 32), index = (uint32_t)rank[0];
        bool is_next = order == __reduce_max_sync(QRN_ALL_OF_WARP, order);
        if (__popc(__ballot_sync(QRN_ALL_OF_WARP, is_next)) > 1) { /* the least index */
            const uint32_t most = __reduce_max_sync(QRN_ALL_OF_WARP, is_next ? index : 0);
            is_next = is_next && index == most;
        }
        if (!is_next) continue;
        ids[j] = (int32_t)qrn_index_of(rank[0]);
#pragma unroll
        for (int i = 0; i < N; i++) rank[i] = i + 1 < N ? rank[i + 1] : 0;
    }
}

/* Weights of the k experts that were chosen so. */
template <int N>
static __device__ __forceinline__ void moe_weigh(const float *x, int n_experts, int k, bool normalise, const int32_t *ids,
                                                 float *weights)
{
    const int lane = qrn_lane();
    const float infinity = __uint_as_float(0x7f800000u);
    float v[N], most = -infinity, sum = 0.0f, chosen = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = lane + 32 * i < n_experts ? x[lane + 32 * i] : -infinity;
        most = fmaxf(most, v[i]);
    }
    most = qrn_warp_max(most);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < n_experts) sum += qrn_exp(v[i] - most);
    sum = qrn_warp_sum(sum);
    __syncwarp();
    const float weight = lane < k ? qrn_exp(x[ids[lane]] - most) / sum : 0.0f;
    for (int j = 0; normalise && j < k; j++) chosen += __shfl_sync(QRN_ALL_OF_WARP, weight, j);
    if (lane < k) weights[lane] = normalise ? weight / chosen : weight;
}

template <int N>
static __device__ __forceinline__ void moe_route(const qrn_moe_route_params &p, int64_t t, int32_t *ids, float *weights)
{
    const float *x = p.logits + t * p.logits_stride;
    moe_choose<N>(x, (int)p.n_experts, (int)p.k, ids);
    moe_weigh<N>(x, (int)p.n_experts, (int)p.k, p.normalise, ids, weights);
}

/* The k experts of token t and their weights, by rank; up to IN_REGISTERS experts in registers. */
template <int IN_REGISTERS>
static __device__ __forceinline__ void moe_route_token(const qrn_moe_route_params &p, int64_t t, int32_t *ids,
                                                       float *weights)
{
    if (p.k > 32 || p.n_experts > IN_REGISTERS) moe_route_any(p, t, ids, weights);
    else if (p.n_experts > 256) moe_route<IN_REGISTERS / 32>(p, t, ids, weights);
    else if (p.n_experts > 128) moe_route<8>(p, t, ids, weights);
    else moe_route<4>(p, t, ids, weights);
}

#endif
