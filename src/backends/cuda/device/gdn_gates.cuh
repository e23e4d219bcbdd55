/* SPDX-License-Identifier: MIT
 * The gates of a token and head.  The logarithm is taken in float64, of which there is little to do: g
 * is added up over tokens, and its errors are. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_GATES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_GATES_CUH

#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/gdn_gates_cuda.h"

static __device__ __forceinline__ float gdn_gate(const qrn_gdn_gates_params &p, int64_t h, float a)
{
    const float x = a + p.dt_bias[h];
    const float softplus = x > 20.0f ? x : (float)log1p(exp((double)x));
    return p.a_scale[h] * softplus;
}

static __device__ __forceinline__ void gdn_store_gates(const qrn_gdn_gates_params &p, int64_t t,
                                                       int64_t h)
{
    const float a = p.a[t * p.a_stride + h], b = p.b[t * p.b_stride + h];
    p.g[t * p.g_stride + h] = gdn_gate(p, h, a);
    p.beta[t * p.beta_stride + h] = qrn_sigmoid(b);
}

#endif
