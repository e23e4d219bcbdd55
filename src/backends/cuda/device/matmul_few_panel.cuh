/* SPDX-License-Identifier: MIT
 * A panel of bf16 weights in shared memory, as a map's swizzled boxes of 64 k leave it one after the other, times
 * rows of x.
 *
 * A warp reads weights as fragments of mma: a lane 16 bytes of a row, four lanes 64 that lie together. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_FEW_PANEL_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_FEW_PANEL_CUH

#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_few_cuda.h"

/* The row of eight that a lane has: two neighbours differ in bit 2, which swizzled lines of copies keep in
 * different banks. */
static __device__ __forceinline__ int qrn_few_row_of_lane()
{
    const int group = qrn_lane() / 4;
    return group / 2 | (group & 1) << 2;
}

/* e: of 16 rows of a panel of ROWS, those from 16 i on, what 8 mma make from 0.  x: of row lane / 4 of x every
 * fourth piece of 8 k, from piece lane % 4 on. */
template <int ROWS>
static __device__ __forceinline__ void qrn_few_multiply(const char *panel, int i, const uint4 (&x)[4], float (&e)[4])
{
    const int t = qrn_lane() % 4;
    const char *rows = panel + (16 * i + qrn_few_row_of_lane()) * QRN_LINE;
#pragma unroll
    for (int n = 0; n < 4; n++) e[n] = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const char *at = rows + j / 2 * ROWS * QRN_LINE + ((4 * (j % 2) + t) ^ qrn_few_row_of_lane()) * 16;
        const uint4 up = *(const uint4 *)at, down = *(const uint4 *)(at + 8 * QRN_LINE);
        const uint32_t a[4] = {up.x, down.x, up.y, down.y}, b[4] = {up.z, down.z, up.w, down.w};
        const uint32_t first[2] = {x[j].x, x[j].y}, second[2] = {x[j].z, x[j].w};
        qrn_mma_bf16(e, a, first);
        qrn_mma_bf16(e, b, second);
    }
}

#endif
