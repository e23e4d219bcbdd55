/* SPDX-License-Identifier: MIT
 * Sums and maxima over a warp or a block, in one fixed order: the same bits in every run. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_WARP_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_WARP_CUH

#include "backends/cuda/device/kernel.cuh"

static __device__ __forceinline__ int qrn_lane()
{
    return (int)(threadIdx.x & 31u);
}

static __device__ __forceinline__ int qrn_warp()
{
    return (int)(threadIdx.x >> 5);
}

/* All lanes have the result, to the bit: each step adds the same two numbers on both sides. */
static __device__ __forceinline__ float qrn_warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(QRN_ALL_OF_WARP, x, step);
    return x;
}

/* A NaN is passed over. */
static __device__ __forceinline__ float qrn_warp_max(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(QRN_ALL_OF_WARP, x, step));
    return x;
}

/* What qrn_warp_sum and the like make of each of R numbers of a lane, up to four, to the bit, and in 6 shuffles for 5 R: that of number r
 * is in lanes 8 r to 8 r + 7. */
template <int R, class Join> static __device__ __forceinline__ float qrn_warp_join(const float (&x)[R], const Join &join)
{
    static_assert(1 <= R && R <= 4, "");
    const bool upper = qrn_lane() & 16, later = qrn_lane() & 8;
    const float a = x[0], b = R > 1 ? x[R > 1] : 0.0f, c = R > 2 ? x[R > 2 ? 2 : 0] : 0.0f, d = R > 3 ? x[R > 3 ? 3 : 0] : 0.0f;
    const float first = join(upper ? c : a, __shfl_xor_sync(QRN_ALL_OF_WARP, upper ? a : c, 16)),
                second = join(upper ? d : b, __shfl_xor_sync(QRN_ALL_OF_WARP, upper ? b : d, 16));
    float y = join(later ? second : first, __shfl_xor_sync(QRN_ALL_OF_WARP, later ? first : second, 8));
#pragma unroll
    for (int step = 4; step > 0; step /= 2) y = join(y, __shfl_xor_sync(QRN_ALL_OF_WARP, y, step));
    return y;
}
template <int R> static __device__ __forceinline__ float qrn_warp_sums(const float (&x)[R])
{
    return qrn_warp_join(x, [](float a, float b) { return a + b; });
}
template <int R> static __device__ __forceinline__ float qrn_warp_maxima(const float (&x)[R])
{
    return qrn_warp_join(x, [](float a, float b) { return fmaxf(a, b); });
}
/* Number r of lanes 8 r .. 8 r + 7. */
static __device__ __forceinline__ float qrn_of_eight_lanes(float x, int r)
{
    return __shfl_sync(QRN_ALL_OF_WARP, x, 8 * r);
}

/* Of one number of each of a block's n_warps warps, all of whose threads come here; shared is n_warps
 * floats, which the block may use again for the next sum.  All threads have the result. */
template <int n_warps> static __device__ __forceinline__ float qrn_sum_of_warps(float x, float *shared)
{
    __syncthreads();
    if (qrn_lane() == 0) shared[qrn_warp()] = x;
    __syncthreads();
    float sum = shared[0];
#pragma unroll
    for (int i = 1; i < n_warps; i++) sum += shared[i];
    return sum;
}

/* The same of all lanes. */
template <int n_warps> static __device__ __forceinline__ float qrn_block_sum(float x, float *shared)
{
    x = qrn_warp_sum(x);
    return n_warps == 1 ? x : qrn_sum_of_warps<n_warps>(x, shared);
}

template <int n_warps> static __device__ __forceinline__ float qrn_block_max(float x, float *shared)
{
    x = qrn_warp_max(x);
    if (n_warps == 1) return x;
    __syncthreads();
    if (qrn_lane() == 0) shared[qrn_warp()] = x;
    __syncthreads();
    float most = shared[0];
#pragma unroll
    for (int i = 1; i < n_warps; i++) most = fmaxf(most, shared[i]);
    return most;
}

#endif
