/* SPDX-License-Identifier: MIT
 * rms_norm and l2_norm of rows that a warp or a block holds in registers: bound by memory where
 * rows are many, by latency where they are few.  All of a row is asked for at once, its weight's
 * lines before the launch before this one has ended, and each element is read once; one barrier
 * adds up the warps. Pieces of 128 elements and the order of sums are those of norm.cu: the same
 * bits. */
#include "backends/cuda/device/norm.cuh"

enum { WARPS = 8 };

/* A lane's part of row r: 4 elements of each of its warp's N pieces; what is beyond the end is
 * 0. */
template <int n_warps, int N> struct part {
    enum { STRIDE = n_warps * QRN_PIECE };
    float v[N][4];
    static __device__ __forceinline__ int begin()
    {
        return (n_warps == 1 ? 0 : qrn_warp()) * QRN_PIECE + 4 * qrn_lane();
    }
    __device__ __forceinline__ void load(const float *row, int d)
    {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = begin() + n * STRIDE;
            const float4 x =
                i < d ? *(const float4 *)(row + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            v[n][0] = x.x, v[n][1] = x.y, v[n][2] = x.z, v[n][3] = x.w;
        }
    }
    __device__ __forceinline__ void store(float *row, int d) const
    {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = begin() + n * STRIDE;
            if (i < d) *(float4 *)(row + i) = make_float4(v[n][0], v[n][1], v[n][2], v[n][3]);
        }
    }
};

/* The first row of this warp or block, and how many there are from one to the next. */
template <int n_warps> static __device__ __forceinline__ int64_t first_row()
{
    return n_warps == 1 ? (int64_t)blockIdx.x * WARPS + qrn_warp() : (int64_t)blockIdx.x;
}

template <int n_warps> static __device__ __forceinline__ int64_t rows_at_once()
{
    return (int64_t)gridDim.x * (n_warps == 1 ? WARPS : 1);
}

/* All lanes of a warp go through all of its pieces: rounding takes a whole one. */
template <int n_warps, int N>
static __device__ __forceinline__ void rms_norm(const qrn_rms_norm_params &p)
{
    __shared__ float shared[WARPS];
    const int d = (int)p.shape.d;
    const float *weight = (const float *)(uintptr_t)p.weight;
    if (weight && blockIdx.x == 0)
        for (int i = 32 * (int)threadIdx.x; i < d; i += 32 * 32 * WARPS) qrn_prefetch(weight + i);
    qrn_grid_waits();
    for (int64_t r = first_row<n_warps>(); r < p.n_rows; r += rows_at_once<n_warps>()) {
        const float *residual = (const float *)qrn_row(p.residual, p.shape, r);
        const float *gate = (const float *)qrn_row(p.gate, p.shape, r);
        float *sum = (float *)qrn_row(p.sum, p.shape, r),
              *out = (float *)qrn_row(p.out, p.shape, r);
        char *rounded = qrn_row(p.rounded, p.shape, r);
        part<n_warps, N> s, more, w;
        s.load((const float *)qrn_row(p.x, p.shape, r), d);
        if (residual) more.load(residual, d);
        if (weight) w.load(weight, d);
        float squares = 0.0f;
        if (residual) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) s.v[n][j] += more.v[n][j];
        }
        if (gate) more.load(gate, d);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) squares = fmaf(s.v[n][j], s.v[n][j], squares);
        if (sum) s.store(sum, d);
        squares = qrn_block_sum<n_warps>(squares, shared);
        const float scale = 1.0f / sqrtf(squares / (float)d + p.eps);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float(&y)[4] = s.v[n];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                y[j] *= scale;
                if (weight) y[j] *= w.v[n][j];
                if (gate) y[j] *= qrn_silu(more.v[n][j]);
            }
        }
        if (out) s.store(out, d);
        if (!rounded) continue;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = s.begin() + n * s.STRIDE;
            if (i - 4 * qrn_lane() < d) qrn_store4_as(p.rounded_dtype, rounded, i, d, s.v[n]);
        }
    }
}

template <int N> static __device__ __forceinline__ void l2_norm(const qrn_l2_norm_params &p)
{
    const int d = (int)p.shape.d;
    for (int64_t r = first_row<1>(); r < p.n_rows; r += rows_at_once<1>()) {
        part<1, N> x;
        x.load((const float *)qrn_row(p.x, p.shape, r), d);
        float most = 0.0f, squares = 0.0f;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) most = fmaxf(most, fabsf(x.v[n][j]));
        const float down = qrn_l2_down(qrn_warp_max(most));
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) squares = fmaf(x.v[n][j] * down, x.v[n][j] * down, squares);
        const float factor = qrn_l2_factor(qrn_warp_sum(squares), down, p.eps, p.scale);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) x.v[n][j] = x.v[n][j] * down * factor;
        x.store((float *)qrn_row(p.out, p.shape, r), d);
    }
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp1, 256, 4, qrn_rms_norm_params)
{
    rms_norm<1, 1>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp2, 256, 4, qrn_rms_norm_params)
{
    rms_norm<1, 2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp8, 256, 2, qrn_rms_norm_params)
{
    rms_norm<1, 8>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block2, 256, 4, qrn_rms_norm_params)
{
    rms_norm<WARPS, 2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block4, 256, 3, qrn_rms_norm_params)
{
    rms_norm<WARPS, 4>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block5, 256, 2, qrn_rms_norm_params)
{
    rms_norm<WARPS, 5>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block8, 256, 2, qrn_rms_norm_params)
{
    rms_norm<WARPS, 8>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp1, 256, 4, qrn_l2_norm_params)
{
    l2_norm<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp2, 256, 4, qrn_l2_norm_params)
{
    l2_norm<2>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp8, 256, 2, qrn_l2_norm_params)
{
    l2_norm<8>(p);
}
