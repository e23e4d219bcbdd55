/* SPDX-License-Identifier: MIT
 * cast: a warp takes 128 elements of a row at a time; copy: a thread takes 16 bytes. */
#include "backends/cuda/cast_cuda.h"
#include "backends/cuda/device/any_rows.cuh"

QRN_DEVICE_FUNCTION(qrn_cast, 256, 4, qrn_cast_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        float x[4];
        qrn_load4_any(p.x_type, qrn_row(p.x, p.shape, row), i, p.shape.d, x);
        qrn_store4_as(p.out_dtype, qrn_row(p.out, p.shape, row), i, p.shape.d, x);
    }
}

QRN_DEVICE_FUNCTION_ALONE(qrn_copy, 256, 4, qrn_copy_params)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t piece = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row, i = (piece - row * p.pieces_per_row) * 16;
        const char *x = qrn_row(p.x, p.shape, row) + i;
        char *out = qrn_row(p.out, p.shape, row) + i;
        const int64_t n = p.shape.d - i < 16 ? p.shape.d - i : 16;
        if (n == 16 && qrn_is_aligned(x, 16) && qrn_is_aligned(out, 16))
            *(uint4 *)out = *(const uint4 *)x;
        else
            for (int64_t j = 0; j < n; j++) out[j] = x[j];
    }
}
