/* SPDX-License-Identifier: MIT
 * Where results of a tile of many rows of x go on Hopper: 64 rows of weights by N columns, as wgmma leaves them, columns to
 * rows of out that lie anywhere. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_OUT_ROWS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_OUT_ROWS_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/pipeline.cuh"

/* n_threads threads, those that multiply, say where the tile's rows go, row r to row_of(r); 0: nowhere. */
template <int n_tokens, class RowOf>
static __device__ __forceinline__ void qrn_find_out_rows(const qrn_tile &tile, int n_threads, int thread, uint64_t *out_rows,
                                                         const RowOf &row_of)
{
    qrn_sync_some(1, n_threads); /* the rows of the tile before are done with */
    if (thread < n_tokens) out_rows[thread] = thread < tile.n_rows ? row_of(thread) : 0;
    qrn_sync_some(1, n_threads);
}

/* Where a thread's first result is: of 64 rows by n_tokens columns c[4 j + e] lies 8 j + e columns on, c[4 j
 * + 2 + e] there and eight rows below.  out_rows: from the thread's first column on. */
template <int n_tokens>
static __device__ __forceinline__ void qrn_store_out_rows(const float (&c)[n_tokens / 2], int64_t n, int64_t n_end,
                                                          const uint64_t *out_rows)
{
    const bool first = n < n_end, second = n + 8 < n_end;
#pragma unroll
    for (int j = 0; j < n_tokens / 8; j += 4) {
        float *rows[8]; /* loaded before any is stored to */
#pragma unroll
        for (int i = 0; i < 8; i++) rows[i] = (float *)(uintptr_t)out_rows[8 * (j + i / 2) + i % 2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (rows[i] && first) rows[i][n] = c[4 * (j + i / 2) + i % 2];
            if (rows[i] && second) rows[i][n + 8] = c[4 * (j + i / 2) + 2 + i % 2];
        }
    }
}

/* The same of rows whose id is none. */
template <int n_tokens>
static __device__ __forceinline__ void qrn_store_nan_rows(int64_t n, int64_t n_end, const uint64_t *out_rows)
{
    const float nan = __uint_as_float(0x7fc00000u);
    for (int j = 0; j < n_tokens / 4; j++) {
        float *row = (float *)(uintptr_t)out_rows[8 * (j / 2) + j % 2];
        if (row && n < n_end) row[n] = nan;
        if (row && n + 8 < n_end) row[n + 8] = nan;
    }
}

#endif
