/* SPDX-License-Identifier: MIT
 * What the kernels of l2_norm share: squares of any floats fit, for a row is first scaled by a
 * power of two, exactly, to below 2. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_NORM_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_NORM_CUH

#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/norm_cuda.h"

/* That power, of a row whose largest magnitude is most: kept where it and its inverse are normal
 * floats. */
static __device__ __forceinline__ float qrn_l2_down(float most)
{
    const int biased = (int)(__float_as_uint(most) >> 23);
    const int exponent = most == 0.0f ? 127 : biased < 2 ? 2 : biased > 252 ? 252 : biased;
    return __uint_as_float((uint32_t)(254 - exponent) << 23);
}

/* What a row that was scaled down is multiplied with; squares are the sum of its.  Above what a
 * float holds only if the row is all zeros and eps too. */
static __device__ __forceinline__ float qrn_l2_factor(float squares, float down, float eps,
                                                      float scale)
{
    const double scaled = (double)eps * (double)down * (double)down;
    return (float)((double)scale / sqrt((double)squares + scaled));
}

#endif
