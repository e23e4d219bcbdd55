/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul.  Few elements are bound by latency: a warp takes 128 of a row, and where they are is
 * worked out before the launch's turn.  Many, in whole runs that are aligned, are bound by memory: a warp takes a run of
 * 256 or 512 at a time, all of which is asked for at once, and blocks stay for many of them. */
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

/* N pieces of a row at once, all aligned. */
template <int N, typename F>
static __device__ __forceinline__ void elementwise_runs(const qrn_elementwise_params &p, F f)
{
    const uint32_t runs_per_row = (uint32_t)p.pieces_per_row / N, n_runs = (uint32_t)p.n_pieces / N;
    const uint32_t step = gridDim.x * (blockDim.x / 32);
#pragma unroll 1
    for (uint32_t run = blockIdx.x * (blockDim.x / 32) + qrn_warp(); run < n_runs; run += step) {
        const uint32_t row = run / runs_per_row, i = (run - row * runs_per_row) * (N * QRN_PIECE) + 4 * qrn_lane();
        const qrn_row_place at = qrn_place_of_row(p.shape, row);
        const float *x = (const float *)qrn_row(p.x, at) + i, *y = (const float *)qrn_row(p.y, at) + i;
        char *out = qrn_row(p.out, at);
        float4 a[N], b[N];
#pragma unroll
        for (int n = 0; n < N; n++) {
            a[n] = *(const float4 *)(x + n * QRN_PIECE);
            b[n] = *(const float4 *)(y + n * QRN_PIECE);
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float v[4] = {f(a[n].x, b[n].x), f(a[n].y, b[n].y), f(a[n].z, b[n].z), f(a[n].w, b[n].w)};
            qrn_store4_as(p.out_dtype, out, i + n * QRN_PIECE, p.shape.d, v);
        }
    }
}

/* The rest: the function of two elements. */
#define ELEMENTWISE(name, ...)                                                \
    QRN_DEVICE_FUNCTION_EARLY(qrn_##name, 256, 4, qrn_elementwise_params)     \
    {                                                                         \
        elementwise(p, __VA_ARGS__);                                          \
    }                                                                         \
    QRN_DEVICE_FUNCTION(qrn_##name##_runs2, 256, 4, qrn_elementwise_params)   \
    {                                                                         \
        elementwise_runs<2>(p, __VA_ARGS__);                                  \
    }                                                                         \
    QRN_DEVICE_FUNCTION(qrn_##name##_runs4, 256, 4, qrn_elementwise_params)   \
    {                                                                         \
        elementwise_runs<4>(p, __VA_ARGS__);                                  \
    }

ELEMENTWISE(add, [](float x, float y) { return x + y; })
ELEMENTWISE(mul, [](float x, float y) { return x * y; })
ELEMENTWISE(silu_mul, [](float gate, float up) { return qrn_silu(gate) * up; })
ELEMENTWISE(sigmoid_mul, [](float x, float gate) { return x * qrn_sigmoid(gate); })
