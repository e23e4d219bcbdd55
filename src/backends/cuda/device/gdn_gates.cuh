/* SPDX-License-Identifier: MIT
 * The gates of a token and head.  softplus is taken in float64: g is added up over tokens, and its errors are. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_GATES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_GATES_CUH

#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/gdn_gates_cuda.h"

static __device__ __forceinline__ float gdn_gate(float a_scale, float dt_bias, float a)
{
    return a_scale * qrn_softplus(a + dt_bias);
}

/* g of a, beta of b. */
static __device__ __forceinline__ void gdn_store_g(const qrn_gdn_gates_params &p, int64_t t, int64_t h, float a)
{
    p.g[t * p.g_stride + h] = gdn_gate(p.a_scale[h], p.dt_bias[h], a);
}
static __device__ __forceinline__ void gdn_store_beta(const qrn_gdn_gates_params &p, int64_t t, int64_t h, float b)
{
    p.beta[t * p.beta_stride + h] = qrn_sigmoid(b);
}

static __device__ __forceinline__ void gdn_store_gates(const qrn_gdn_gates_params &p, int64_t t, int64_t h)
{
    const float a = p.a[t * p.a_stride + h], b = p.b[t * p.b_stride + h]; /* g may be a, beta b */
    gdn_store_g(p, t, h, a);
    gdn_store_beta(p, t, h, b);
}

#endif
