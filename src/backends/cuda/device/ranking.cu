/* SPDX-License-Identifier: MIT
 * argmax and top_k: a block a row; moe_route: a warp a token.  Rows are read once (argmax) or six
 * times (top_k, from the second time on out of a cache): bound by latency more than by memory. */
#include "backends/cuda/device/ranking.cuh"
#include "backends/cuda/ranking_cuda.h"

QRN_DEVICE_FUNCTION(qrn_argmax, 512, 2, qrn_ranking_params)
{
    __shared__ qrn_rank shared[16];
    for (int64_t r = blockIdx.x; r < p.n_rows; r += gridDim.x) {
        const float *x = p.x + r * p.x_stride;
        qrn_rank best = 0;
        for (int64_t i = threadIdx.x; i < p.n; i += blockDim.x) {
            const qrn_rank rank = qrn_rank_of(x[i], i);
            best = rank > best ? rank : best;
        }
        const int64_t id = qrn_index_of(qrn_block_first(best, shared));
        if (threadIdx.x != 0) continue;
        p.ids[r * p.ids_stride] = (int32_t)id;
        if (p.values) p.values[r * p.values_stride] = x[id];
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

/* Experts are few: each of the k looks for the next one in rank. */
QRN_DEVICE_FUNCTION(qrn_moe_route, 256, 2, qrn_moe_route_params)
{
    const int lane = qrn_lane();
    const int64_t step = (int64_t)gridDim.x * 8;
    for (int64_t t = (int64_t)blockIdx.x * 8 + qrn_warp(); t < p.n_tokens; t += step) {
        const float *x = p.logits + t * p.logits_stride, infinity = __uint_as_float(0x7f800000u);
        int32_t *ids = p.ids + t * p.ids_stride;
        float *weights = p.weights + t * p.weights_stride, most = -infinity, sum = 0.0f;
        for (int64_t i = lane; i < p.n_experts; i += 32) most = fmaxf(most, x[i]);
        most = qrn_warp_max(most);
        for (int64_t i = lane; i < p.n_experts; i += 32) sum += qrn_exp(x[i] - most);
        sum = qrn_warp_sum(sum);
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
        if (!p.normalise) continue;
        __syncwarp();
        for (int64_t k = lane; k < p.k; k += 32) weights[k] /= chosen;
    }
}
