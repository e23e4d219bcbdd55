/* SPDX-License-Identifier: MIT
 * Rows of x rounded to bf16 for products of many rows, in the order in which those meet them; by expert
 * a row for each slot, sorted.  Bound by memory: a warp takes 256 elements, 16 bytes a lane. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/matmul_wgmma_cuda.h"

/* Elements k .. k + 3 of a row of x; 0 past its end. */
static __device__ __forceinline__ uint2 four_of_x(const qrn_matmul_params &p, const char *row, int64_t k)
{
    uint16_t h[4];
    if (p.x_dtype == QRN_BF16) {
        qrn_load4((const uint16_t *)row, k, p.w.k, h);
    } else {
        float v[4];
        qrn_load4((const float *)row, k, p.w.k, v);
#pragma unroll
        for (int i = 0; i < 4; i++) h[i] = qrn_bf16_of_float(v[i]);
    }
    return make_uint2(h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16);
}

QRN_DEVICE_FUNCTION(qrn_matmul_x_bf16, 256, 1, qrn_matmul_wgmma_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32), n_pieces = (p.x16_stride + 255) / 256;
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); i < p.n_x16 * n_pieces; i += step) {
        const int64_t row = i / n_pieces, k = (i - row * n_pieces) * 256 + 8 * qrn_lane();
        qrn_tile tile = {0, 0, 1};
        if (!p.job.ids) tile.matrix = row / p.job.most_rows;
        const int64_t at = p.job.ids ? row : row - tile.matrix * p.job.most_rows;
        const char *x = qrn_x_row(p.job, qrn_row_of_tile(p.job, tile, (int)at).i_x);
        if (k >= p.x16_stride) continue;
        const uint2 low = four_of_x(p.job, x, k), high = four_of_x(p.job, x, k + 4);
        *((uint4 *)p.x16 + (row * p.x16_stride + k) / 8) = make_uint4(low.x, low.y, high.x, high.y);
    }
}
