/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul: a warp takes 128 elements of a row at a time. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/elementwise_cuda.h"

template <typename F>
static __device__ __forceinline__ void elementwise(const qrn_elementwise_params &p, F f)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        const qrn_row_place at = qrn_place_of_row(p.shape, row);
        float x[4], y[4];
        qrn_load4((const float *)qrn_row(p.x, at), i, p.shape.d, x);
        qrn_load4((const float *)qrn_row(p.y, at), i, p.shape.d, y);
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = f(x[j], y[j]);
        qrn_store4_as(p.out_dtype, qrn_row(p.out, at), i, p.shape.d, x);
    }
}

QRN_DEVICE_FUNCTION(qrn_add, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float x, float y) { return x + y; });
}

QRN_DEVICE_FUNCTION(qrn_mul, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float x, float y) { return x * y; });
}

QRN_DEVICE_FUNCTION(qrn_silu_mul, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float gate, float up) { return qrn_silu(gate) * up; });
}

QRN_DEVICE_FUNCTION(qrn_sigmoid_mul, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float x, float gate) { return x * qrn_sigmoid(gate); });
}
