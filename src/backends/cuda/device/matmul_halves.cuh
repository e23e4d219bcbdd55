/* SPDX-License-Identifier: MIT
 * Where outputs of warps that multiplied on Hopper go, of rows of weights that are side by side or of both halves of the
 * matrix; silu_mul of gates and ups there. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_HALVES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_HALVES_CUH

#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_halves_cuda.h"

/* Rows of weights of a thread, n and the one `down` further; whether there are such. */
struct qrn_two_rows {
    int64_t n;
    int down;
    bool first, second;
};
static __device__ __forceinline__ qrn_two_rows qrn_rows_side_by_side(int64_t n, int64_t end)
{
    return {n, 8, n < end, n + 8 < end};
}
/* Of a tile's 16 rows of warp `warp`. */
static __device__ __forceinline__ qrn_two_rows qrn_rows_of_halves(const qrn_halves_params &halves, int64_t n_weights, int tile,
                                                                  int warp)
{
    const int lane = qrn_lane(), n = tile / 2 + warp * 8 + lane / 4;
    if (halves.n == 0) return qrn_rows_side_by_side(tile + warp * 16 + lane / 4, n_weights);
    return {n, (int)halves.n, n < halves.n, n < halves.n};
}

/* --- silu_mul --- */

/* silu_mul of sums c of eight gates and ups by eight rows of x; this lane's are elements 2 (lane % 4) and the next of row
 * lane / 4 of x, where a gate's sums are of row 2 (lane % 4) and the next. */
static __device__ __forceinline__ uint32_t qrn_silu_of_eight(const float *c)
{
    return qrn_transpose8(qrn_bf16_of_two(qrn_silu(c[0]) * c[2], qrn_silu(c[1]) * c[3]));
}

/* Where a lane has silu_mul of a warp's eight gates, from row x of x on. */
static __device__ __forceinline__ char *qrn_silu_place(const qrn_halves_params &p, int64_t x, int gate)
{
    return (char *)(uintptr_t)p.silu + (x + qrn_lane() / 4) * p.silu_stride + (gate + qrn_lane() % 4 * 2) * 2;
}

/* Those of N rows of x from row x on, of which there are n_rows; gate: the warp's first one. */
template <int N>
static __device__ __forceinline__ void qrn_store_silu(const qrn_halves_params &p, const float (&c)[N / 2], int gate, int64_t x,
                                                      int n_rows)
{
    const int n_here = gate < p.n ? n_rows - qrn_lane() / 4 : 0;
    char *to = qrn_silu_place(p, x, gate);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const uint32_t two = qrn_silu_of_eight(c + 4 * j);
        if (8 * j < n_here) *(uint32_t *)to = two;
        to += 8 * p.silu_stride;
    }
}

#endif
