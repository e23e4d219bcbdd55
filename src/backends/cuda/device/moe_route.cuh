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

/* Up to 32 * N experts, N a lane in registers, and 32 ranks, which are a lane's each.  AT_ONCE: weights are worked out in
 * the end, all at once, which is faster and takes registers. */
template <int N, bool AT_ONCE = false>
static __device__ __forceinline__ void moe_route(const qrn_moe_route_params &p, int64_t t, int32_t *ids,
                                                 float *weights)
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
        const float w = AT_ONCE ? value : qrn_exp(value - most) / sum;
        if (!AT_ONCE) chosen += w;
        if (lane == k) id = next, weight = w;
    }
    if (AT_ONCE) {
        weight = qrn_exp(weight - most) / sum;
        for (int k = 0; p.normalise && k < (int)p.k; k++) chosen += __shfl_sync(QRN_ALL_OF_WARP, weight, k);
    }
    if (lane >= (int)p.k) return;
    ids[lane] = id;
    weights[lane] = p.normalise ? weight / chosen : weight;
}

/* The k experts of token t and their weights, by rank. */
static __device__ __forceinline__ void moe_route_token(const qrn_moe_route_params &p, int64_t t, int32_t *ids,
                                                       float *weights)
{
    if (p.k > 32 || p.n_experts > 512) moe_route_any(p, t, ids, weights);
    else if (p.n_experts > 256) moe_route<16>(p, t, ids, weights);
    else if (p.n_experts > 128) moe_route<8>(p, t, ids, weights);
    else moe_route<4>(p, t, ids, weights);
}

#endif
