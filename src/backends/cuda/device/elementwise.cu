/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul: a warp takes 128 elements of a row at a time.  Where its first ones are is worked
 * out before the launch's turn. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/elementwise_cuda.h"

/* 128 elements of a row; the lane's begin at i. */
struct elements {
    const float *x, *y;
    char *out;
    int64_t i;

    __device__ __forceinline__ elements(const qrn_elementwise_params &p, int64_t piece)
    {
        const int64_t row = p.n_pieces == p.pieces_per_row ? 0 : piece / p.pieces_per_row;
        const qrn_row_place at = qrn_place_of_row(p.shape, row);
        i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        x = (const float *)qrn_row(p.x, at);
        y = (const float *)qrn_row(p.y, at);
        out = qrn_row(p.out, at);
    }
    template <typename F> __device__ __forceinline__ void make(const qrn_elementwise_params &p, F f) const
    {
        float a[4], b[4];
        qrn_load4(x, i, p.shape.d, a);
        qrn_load4(y, i, p.shape.d, b);
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] = f(a[j], b[j]);
        qrn_store4_as(p.out_dtype, out, i, p.shape.d, a);
    }
};

template <typename F>
static __device__ __forceinline__ void elementwise(const qrn_elementwise_params &p, F f)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp();
    elements now(p, min(piece, p.n_pieces - 1));
    qrn_grid_waits();
#pragma unroll 1
    while (piece < p.n_pieces) {
        now.make(p, f);
        piece += step;
        if (piece < p.n_pieces) now = elements(p, piece);
    }
}

QRN_DEVICE_FUNCTION_EARLY(qrn_add, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float x, float y) { return x + y; });
}

QRN_DEVICE_FUNCTION_EARLY(qrn_mul, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float x, float y) { return x * y; });
}

QRN_DEVICE_FUNCTION_EARLY(qrn_silu_mul, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float gate, float up) { return qrn_silu(gate) * up; });
}

QRN_DEVICE_FUNCTION_EARLY(qrn_sigmoid_mul, 256, 4, qrn_elementwise_params)
{
    elementwise(p, [](float x, float gate) { return x * qrn_sigmoid(gate); });
}
