/* SPDX-License-Identifier: MIT
 * Tiles of products of many rows of x that have the bits of one row: which weights meet which rows of x. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_CUH

#include "backends/cuda/device/matmul_out_rows.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_exact_cuda.h"

/* A tile of x and one of weights; n_panels 0: nothing is multiplied. */
struct qrn_exact_work {
    qrn_tile tile;
    int weights; /* first row */
    int n_panels;
};

/* of_tile: rows of weights of a tile.  Divisions are by 32 bits. */
static __device__ __forceinline__ qrn_exact_work qrn_exact_work_at(const qrn_matmul_exact_params &p, int of_tile, int i)
{
    const int per_band = p.band * p.n_weight_tiles, band = i / per_band, rest = i - band * per_band,
              n_here = min(p.band, (int)p.job.n_tiles - band * p.band), at = rest / n_here,
              i_tile = band * p.band + rest - at * n_here;
    qrn_exact_work w;
    if (!p.job.ids && p.job.n_matrices == 1) {
        w.tile.matrix = 0;
        w.tile.first = (int64_t)i_tile * QRN_EXACT_X;
        w.tile.n_rows = (int)min(p.job.most_rows - w.tile.first, (int64_t)QRN_EXACT_X);
    } else {
        w.tile = qrn_tile_at(p.job, i_tile);
    }
    w.weights = at * of_tile;
    w.n_panels = w.tile.n_rows && w.tile.matrix < p.job.n_matrices ? p.n_panels : 0;
    return w;
}

/* The tile's first row of x among all that are copied. */
static __device__ __forceinline__ int qrn_exact_x_row(const qrn_matmul_exact_params &p, const qrn_exact_work &w)
{
    return (int)(w.tile.first + (p.job.ids ? 0 : w.tile.matrix * p.job.most_rows));
}

#endif
