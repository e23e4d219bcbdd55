/* SPDX-License-Identifier: MIT
 * Rows of x rounded to bf16 for products of many rows, in the order in which those meet them; by expert
 * a row for each slot, sorted.  Bound by memory: a warp takes 256 elements, 16 bytes a lane. */
#include "backends/cuda/device/x_bf16.cuh"
#include "backends/cuda/matmul_wgmma_cuda.h"

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
        const uint2 low = qrn_four_of_x(p.job, x, k), high = qrn_four_of_x(p.job, x, k + 4);
        *((uint4 *)p.x16 + (row * p.x16_stride + k) / 8) = make_uint4(low.x, low.y, high.x, high.y);
    }
}
