/* SPDX-License-Identifier: MIT
 * The gates of a token and head.  The logarithm is taken in float64, of which there is little to do: g
 * is added up over tokens, and its errors are. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_GATES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_GATES_CUH

#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/gdn_gates_cuda.h"

struct gdn_gates_pair {
    float g, beta;
    __device__ __forceinline__ void store(const qrn_gdn_gates_params &p, int64_t t, int64_t h) const
    {
        p.g[t * p.g_stride + h] = g;
        p.beta[t * p.beta_stride + h] = beta;
    }
};

static __device__ __forceinline__ gdn_gates_pair gdn_gates_of(const qrn_gdn_gates_params &p,
                                                              int64_t t, int64_t h)
{
    const float x = p.a[t * p.a_stride + h] + p.dt_bias[h], b = p.b[t * p.b_stride + h];
    const float softplus = x > 20.0f ? x : (float)log1p(exp((double)x));
    return gdn_gates_pair{p.a_scale[h] * softplus, qrn_sigmoid(b)};
}

#endif
