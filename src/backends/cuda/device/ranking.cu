/* SPDX-License-Identifier: MIT
 * argmax: blocks share a long row where rows are few, and a second launch has the last word; top_k:
 * a block a row; moe_route: a warp a token.  Rows are read once (argmax) or six times (top_k, from
 * the second time on out of a cache): bound by latency more than by memory. */
#include "backends/cuda/device/moe_route.cuh"
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

QRN_DEVICE_FUNCTION(qrn_moe_route, 256, 2, qrn_moe_route_params)
{
    const int64_t step = (int64_t)gridDim.x * 8;
    for (int64_t t = (int64_t)blockIdx.x * 8 + qrn_warp(); t < p.n_tokens; t += step)
        moe_route_token<512>(p, t, p.ids + t * p.ids_stride, p.weights + t * p.weights_stride);
}
