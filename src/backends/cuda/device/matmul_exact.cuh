/* SPDX-License-Identifier: MIT
 * Tiles of products of many rows of x that have the bits of one row: which weights meet which rows of x. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_CUH

#include "backends/cuda/device/matmul_out_rows.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_exact_cuda.h"

/* A ring of n stages, which one thread fills and all that multiply give back; all threads of the block. */
static __device__ __forceinline__ void qrn_exact_make_ring(qrn_barrier *full, qrn_barrier *empty, int n)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < n; i++) {
            qrn_barrier_init(&full[i], 1);
            qrn_barrier_init(&empty[i], QRN_EXACT_MULTIPLIERS / 32 * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
}

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
    if (p.job.ids) {
        w.tile = qrn_grouped_tile_at(p.job, i_tile);
    } else {
        w.tile.matrix = 0;
        w.tile.first = (int64_t)i_tile * QRN_EXACT_X;
        w.tile.n_rows = (int)min(p.job.most_rows - w.tile.first, (int64_t)QRN_EXACT_X);
    }
    w.weights = at * of_tile;
    w.n_panels = w.tile.n_rows && w.tile.matrix < p.job.n_matrices ? p.n_panels : 0;
    return w;
}

/* Threads that multiply say where the tile's rows go. */
static __device__ __forceinline__ void qrn_exact_find_rows(const qrn_matmul_exact_params &p, const qrn_exact_work &work,
                                                           uint64_t *out_rows)
{
    const int64_t first = work.tile.first;
    qrn_find_out_rows<QRN_EXACT_X>(work.tile, QRN_EXACT_MULTIPLIERS, (int)threadIdx.x, out_rows, [&](int r) {
        const int64_t i = p.job.ids ? ((const int32_t *)p.job.slots)[first + r] : first + r;
        return p.job.out.data + (uint64_t)(i * p.out_stride);
    });
}

#endif
