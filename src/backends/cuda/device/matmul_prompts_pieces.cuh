/* SPDX-License-Identifier: MIT
 * How products with many rows of x are cut on Hopper, and where their sums go: of packed weights (matmul_prompts.cuh) and of
 * bf16 weights in rows (matmul_prompts_bf16_sm90a.cu).
 *
 * A tile is 128 rows of weights by N of x.  Blocks, one on each multiprocessor, take whole tiles in turn.  Where the last
 * round would leave many without one, the last full round and what is behind it are cut in equal shares of panels (128 k of a
 * tile), or all tiles, where there is no full round.  A tile that a share's end cuts is summed by two blocks, or more: each
 * begins with the tile in which its share ends and leaves the sums in memory; the next one, which ends with that tile, adds
 * them to its own.  It is no waiting for blocks that may never run: nobody waits but for the one before, which began
 * earlier. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_PROMPTS_PIECES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_PROMPTS_PIECES_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/matmul_registers_pieces.cuh"
#include "backends/cuda/device/matmul_silu.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_prompts_cuda.h"

/* Panels of a tile that a block multiplies, one piece after the other: whole tiles, then those of its share, the last tile
 * first. */
struct qrn_prompts_pieces {
    int tile, panel, end; /* from panel `panel` on to `end`, which it does not reach */
    int whole, of_share;  /* the next tile, and the next one among those that are shared */
    int first, last;      /* panels of the share: from first on to last, which it does not reach */

    __device__ __forceinline__ qrn_prompts_pieces(const qrn_matmul_prompts_params &p)
    {
        const int block = (int)blockIdx.x;
        first = block * p.share + min(block, p.n_longer);
        last = first + p.share + (block < p.n_longer);
        whole = block, of_share = (last - 1) / p.n_panels;
    }
    /* Whether there is another one. */
    __device__ __forceinline__ bool next(const qrn_matmul_prompts_params &p)
    {
        tile = whole, panel = 0, end = p.n_panels;
        whole += (int)gridDim.x;
        if (tile < p.n_whole) return true;
        const int before = of_share * p.n_panels;
        tile = p.n_whole + of_share--;
        panel = max(first - before, 0), end = min(last - before, p.n_panels);
        return panel < end;
    }
};

/* First rows of a tile of N rows of x. */
template <int N> struct qrn_prompts_tile {
    int weights, x;

    __device__ __forceinline__ qrn_prompts_tile(const qrn_matmul_prompts_params &p, int i)
    {
        const int per_band = p.band * p.n_weight_tiles, band = i / per_band, rest = i - band * per_band,
                  n_here = min(p.band, p.n_x_tiles - band * p.band), at = rest / n_here;
        weights = at * QRN_PROMPTS_WEIGHTS;
        x = (band * p.band + rest - at * n_here) * N;
    }
};

/* Sums of a piece that does not end its tile, for that block's thread of the same number: fours, QRN_PROMPTS_MULTIPLIERS
 * apart; a flag for each of its warps. */
template <int N>
static __device__ __forceinline__ float4 *qrn_prompts_sums(const qrn_matmul_prompts_params &p, int block)
{
    return (float4 *)(uintptr_t)p.sums + block * (N / 8 * QRN_PROMPTS_MULTIPLIERS) + threadIdx.x;
}
static __device__ __forceinline__ uint64_t *qrn_prompts_flag(const qrn_matmul_prompts_params &p, int block)
{
    return (uint64_t *)(uintptr_t)(p.handover + (uint64_t)block * (uint64_t)p.handover_bytes) + qrn_warp();
}
template <int N>
static __device__ __forceinline__ void qrn_prompts_hand_over(const qrn_matmul_prompts_params &p,
                                                             const float (&c)[N / 2])
{
    float4 *to = qrn_prompts_sums<N>(p, (int)blockIdx.x + 1);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        to[j * QRN_PROMPTS_MULTIPLIERS] = make_float4(c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]);
    __syncwarp();
    if (qrn_lane() == 0) {
        __threadfence();
        qrn_store_relaxed(qrn_prompts_flag(p, (int)blockIdx.x + 1), 1);
    }
}
template <int N>
static __device__ __forceinline__ void qrn_prompts_take_over(const qrn_matmul_prompts_params &p, float (&c)[N / 2])
{
    const float4 *from = qrn_prompts_sums<N>(p, (int)blockIdx.x);
    if (qrn_lane() == 0) {
        uint64_t *flag = qrn_prompts_flag(p, (int)blockIdx.x);
        while (qrn_load_relaxed(flag) == 0) {}
        __threadfence();
        *flag = 0;
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 x = from[j * QRN_PROMPTS_MULTIPLIERS];
        c[4 * j] += x.x, c[4 * j + 1] += x.y, c[4 * j + 2] += x.z, c[4 * j + 3] += x.w;
    }
}

/* Results of a thread. */
template <int N>
static __device__ __forceinline__ void qrn_prompts_store_out(const qrn_matmul_prompts_params &p, const qrn_prompts_tile<N> &tile,
                                                         const float (&c)[N / 2])
{
    const qrn_place_of_results at((int)threadIdx.x);
    const int n = tile.weights + at.of_tile, n_here = (int)p.job.w.n - n,
              n_rows = n_here > 0 ? (int)p.job.most_rows - tile.x - at.first_row : 0,
              n_below = n_here > 8 ? n_rows : 0; /* of which there are results eight rows of weights below */
    float *to = (float *)(uintptr_t)p.job.out.data + (int64_t)(tile.x + at.first_row) * p.out_apart + n;
#pragma unroll
    for (int j = 0; j < N / 2; j += j % 2 ? 3 : 1) {
        if (at.row_of(j) < n_rows) to[0] = c[j];
        if (at.row_of(j) < n_below) to[8] = c[j + 2];
        to += (j % 2 ? 7 : 1) * p.out_apart;
    }
}
template <int N, bool silu>
static __device__ __forceinline__ void qrn_prompts_store(const qrn_matmul_prompts_params &p, const qrn_prompts_tile<N> &tile,
                                                         const float (&c)[N / 2])
{
    if (silu)
        qrn_store_silu<N>(p.silu, c, tile.weights / 2 + qrn_warp() * 8, tile.x, (int)p.job.most_rows - tile.x);
    else
        qrn_prompts_store_out<N>(p, tile, c);
}

#endif
