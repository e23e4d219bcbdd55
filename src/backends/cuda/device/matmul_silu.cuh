/* SPDX-License-Identifier: MIT
 * silu_mul of gates and ups that are in the registers of warps which multiplied on Hopper. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_SILU_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_SILU_CUH

#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_silu_cuda.h"

/* silu_mul of sums c of eight gates and ups by eight rows of x; this lane's are elements 2 (lane % 4) and the next of row
 * lane / 4 of x, where a gate's sums are of row 2 (lane % 4) and the next. */
static __device__ __forceinline__ uint32_t qrn_silu_of_eight(const float *c)
{
    return qrn_transpose8(qrn_bf16_of_two(qrn_silu(c[0]) * c[2], qrn_silu(c[1]) * c[3]));
}

/* Where a lane has silu_mul of a warp's eight gates, from row x of x on. */
static __device__ __forceinline__ char *qrn_silu_place(const qrn_silu_params &p, int64_t x, int gate)
{
    return (char *)(uintptr_t)p.data + (x + qrn_lane() / 4) * p.stride + (gate + qrn_lane() % 4 * 2) * 2;
}

/* Those of N rows of x from row x on, of which there are n_rows; gate: the warp's first one. */
template <int N>
static __device__ __forceinline__ void qrn_store_silu(const qrn_silu_params &p, const float (&c)[N / 2], int gate, int64_t x,
                                                      int n_rows)
{
    const int n_here = gate < p.n_gates ? n_rows - qrn_lane() / 4 : 0;
    char *to = qrn_silu_place(p, x, gate);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const uint32_t two = qrn_silu_of_eight(c + 4 * j);
        if (8 * j < n_here) *(uint32_t *)to = two;
        to += 8 * p.stride;
    }
}

#endif
