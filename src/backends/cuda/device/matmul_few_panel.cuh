/* SPDX-License-Identifier: MIT
 * A panel of bf16 weights in shared memory, as a map's swizzled boxes of 64 k leave it one after the other, times
 * rows of x.
 *
 * A warp reads weights and x as fragments of mma, 16 k at a time. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_FEW_PANEL_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_FEW_PANEL_CUH

#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_few_cuda.h"

/* Of 16 rows of a swizzled box the piece of 8 k that this lane gives ldmatrix the address of, for the first 16 k; those 16 i
 * k on it stands 32 i bytes away, by exclusive or. */
static __device__ __forceinline__ int qrn_piece_of_lane()
{
    const int row = qrn_lane() % 16;
    return row * QRN_LINE + (qrn_lane() / 16 ^ (row & 7)) * 16;
}

/* e: of 16 rows of a panel of ROWS, those from 16 i on, what 8 mma make from 0.  x: fragments b of 32 k each. */
template <int ROWS>
static __device__ __forceinline__ void qrn_few_multiply(const char *panel, int i, const uint32_t (&x)[4][4], float (&e)[4])
{
    const char *rows = panel + 16 * i * QRN_LINE;
    const int own = qrn_piece_of_lane();
#pragma unroll
    for (int n = 0; n < 4; n++) e[n] = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t b[2] = {x[j / 2][2 * (j % 2)], x[j / 2][2 * (j % 2) + 1]};
        uint32_t a[4];
        qrn_ldmatrix4(a, rows + j / 4 * ROWS * QRN_LINE + (own ^ 32 * (j % 4)));
        qrn_mma_bf16(e, a, b);
    }
}

#endif
