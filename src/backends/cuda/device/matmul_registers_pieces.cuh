/* SPDX-License-Identifier: MIT
 * How tiles of matmul_registers.cuh are cut in pieces, where their sums go, and which results a thread has, in
 * matmul_prompts.cuh too.  A unit is a panel's k of a tile; they
 * are counted tile by tile. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_REGISTERS_PIECES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_REGISTERS_PIECES_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/matmul_registers_cuda.h"

/* Units of a block. */
struct qrn_units {
    int begin, end;
};
static __device__ __forceinline__ qrn_units qrn_units_of(const qrn_matmul_registers_params &p, int block)
{
    if (p.n_parts) {
        const int tile = block / p.n_parts, part = block - tile * p.n_parts, begin = tile * p.n_panels;
        return {begin + p.n_panels * part / p.n_parts, begin + p.n_panels * (part + 1) / p.n_parts};
    }
    const int begin = block * p.share + min(block, p.n_longer);
    return {begin, begin + p.share + (block < p.n_longer)};
}

/* Whose unit u is, in shares. */
static __device__ __forceinline__ int qrn_block_of_unit(const qrn_matmul_registers_params &p, int u)
{
    const int of_longer = p.n_longer * (p.share + 1);
    return u < of_longer ? u / (p.share + 1) : p.n_longer + (u - of_longer) / p.share;
}

/* Blocks that have units of a tile. */
struct qrn_blocks_of_tile {
    int first, n;

    __device__ __forceinline__ qrn_blocks_of_tile(const qrn_matmul_registers_params &p, int tile)
    {
        const int begin = tile * p.n_panels;
        first = p.n_parts ? tile * p.n_parts : qrn_block_of_unit(p, begin);
        n = p.n_parts ? p.n_parts : qrn_block_of_unit(p, begin + p.n_panels - 1) - first + 1;
    }
};

/* Sums of piece i of a tile, as the threads that multiplied have them: float [result][thread], of N / 2 results.  In shares a
 * block's first piece and its last one have a place each, for what lies between is whole; a tile's first piece is its
 * block's last one, but where it begins that block's share. */
template <int N>
static __device__ __forceinline__ float *qrn_sums_of_piece(const qrn_matmul_registers_params &p, int tile,
                                                           const qrn_blocks_of_tile &blocks, int i)
{
    const bool is_last = i == 0 && !p.n_parts && qrn_units_of(p, blocks.first).begin < tile * p.n_panels;
    return (float *)(uintptr_t)p.sums + (int64_t)(2 * (blocks.first + i) + is_last) * (N / 2 * qrn_registers_multipliers(N));
}

/* Where results of a thread that multiplied are: c[j] is of row_of(j) of x, from its first one on, and down_of(j) below its
 * first row of the tile's weights, so that eight lanes have 32 bytes of a row of out that lie together. */
struct qrn_place_of_results {
    int first_row, of_tile;

    __device__ __forceinline__ qrn_place_of_results(int thread)
        : first_row(thread % 4 * 2), of_tile(thread / 32 * 16 + thread % 32 / 4)
    {
    }
    static __device__ __forceinline__ constexpr int row_of(int j) { return j / 4 * 8 + j % 2; }
    static __device__ __forceinline__ constexpr int down_of(int j) { return j % 4 / 2 * 8; }
};

#endif
