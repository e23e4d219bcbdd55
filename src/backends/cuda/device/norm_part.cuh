/* SPDX-License-Identifier: MIT
 * Rows that a warp or a block holds in registers, and their norms: pieces of 128 elements, sums in the
 * order of norm.cuh. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_NORM_PART_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_NORM_PART_CUH

#include "backends/cuda/device/norm.cuh"

/* A lane's part of row r: 4 elements of each of its warp's N pieces; what is beyond the end is
 * 0. */
template <int n_warps, int N> struct norm_part {
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
    __device__ __forceinline__ void silu()
    {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) v[n][j] = qrn_silu(v[n][j]);
    }
    /* What rms_norm multiplies the row with; shared is n_warps floats. */
    __device__ __forceinline__ float rms_scale(int d, float eps, float *shared) const
    {
        float squares = 0.0f;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float more = qrn_add_squares(v[n], n_warps == 1 ? squares : 0.0f);
            squares = n_warps == 1 ? more : squares + qrn_warp_sum(more);
        }
        squares = n_warps == 1 ? qrn_warp_sum(squares) : qrn_sum_of_warps<n_warps>(squares, shared);
        return qrn_rms_scale(squares, d, eps);
    }
    /* l2_norm of a warp's row. */
    __device__ __forceinline__ void l2_normalise(float eps, float scale)
    {
        static_assert(n_warps == 1, "");
        float most = 0.0f, squares = 0.0f;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) most = fmaxf(most, fabsf(v[n][j]));
        const float down = qrn_l2_down(qrn_warp_max(most));
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) squares = fmaf(v[n][j] * down, v[n][j] * down, squares);
        const float factor = qrn_l2_factor(qrn_warp_sum(squares), down, eps, scale);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) v[n][j] = v[n][j] * down * factor;
    }
};

/* The same of R rows of a warp, up to four, side by side: what a row is multiplied with is made by eight lanes for it. */
template <int R, int N>
static __device__ __forceinline__ void qrn_rms_scales(const norm_part<1, N> (&rows)[R], int d, float eps, float (&scales)[R])
{
    float squares[R] = {};
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int n = 0; n < N; n++) squares[r] = qrn_add_squares(rows[r].v[n], squares[r]);
    const float own = qrn_rms_scale(qrn_warp_sums(squares), d, eps);
#pragma unroll
    for (int r = 0; r < R; r++) scales[r] = qrn_of_eight_lanes(own, r);
}
template <int R, int N>
static __device__ __forceinline__ void qrn_l2_normalise(norm_part<1, N> (&rows)[R], float eps, float scale)
{
    float most[R] = {}, squares[R] = {};
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = 0; i < 4 * N; i++) most[r] = fmaxf(most[r], fabsf(rows[r].v[i / 4][i % 4]));
    const float own = qrn_l2_down(qrn_warp_maxima(most));
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float down = qrn_of_eight_lanes(own, r);
#pragma unroll
        for (int i = 0; i < 4 * N; i++) {
            float &x = rows[r].v[i / 4][i % 4];
            x *= down;
            squares[r] = fmaf(x, x, squares[r]);
        }
    }
    const float factor = qrn_l2_factor(qrn_warp_sums(squares), own, eps, scale);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float by = qrn_of_eight_lanes(factor, r);
#pragma unroll
        for (int i = 0; i < 4 * N; i++) rows[r].v[i / 4][i % 4] *= by;
    }
}

#endif
