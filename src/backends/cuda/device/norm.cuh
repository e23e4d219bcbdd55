/* SPDX-License-Identifier: MIT
 * What the kernels of rms_norm and l2_norm share.
 *
 * Squares of rms_norm: each lane adds up those of its four elements of a piece of 128.  In a row of up to
 * QRN_NORM_WARP_ROW it goes on with the next piece, and lanes are added at the end.  In a longer one
 * lanes are added for each piece, then every eighth piece, then these eight sums: the bits do not depend on
 * how many warps have a row.
 *
 * Squares of l2_norm: those of any floats fit, for a row is first scaled by a power of two, exactly, to
 * below 2. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_NORM_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_NORM_CUH

#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/norm_cuda.h"

/* Every eighth piece of a long row is one of these sums. */
enum { QRN_NORM_SUMS = 8 };

static __device__ __forceinline__ float qrn_add_squares(const float (&x)[4], float sum)
{
#pragma unroll
    for (int j = 0; j < 4; j++) sum = fmaf(x[j], x[j], sum);
    return sum;
}

/* What rms_norm multiplies a row of d elements with. */
static __device__ __forceinline__ float qrn_rms_scale(float squares, float d, float eps)
{
    return 1.0f / sqrtf(squares / d + eps);
}

/* The power of two of l2_norm, of a row whose largest magnitude is most: kept where it and its inverse are
 * normal floats. */
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
