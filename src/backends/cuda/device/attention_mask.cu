/* SPDX-License-Identifier: MIT
 * attention_mask: a warp takes 128 keys of a query. */
#include "backends/cuda/attention_mask_cuda.h"
#include "backends/cuda/device/rows.cuh"

QRN_DEVICE_FUNCTION(qrn_attention_mask, 256, 4, qrn_attention_mask_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row, position = p.q_offset + row;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t key = i + j;
            const bool masked =
                (p.causal && key > position) || (p.window && position - key >= p.window);
            x[j] = masked ? __uint_as_float(0xff800000u) : 0.0f;
        }
        qrn_store4_as(p.dtype, qrn_row(p.out, p.shape, row), i, p.shape.d, x);
    }
}
