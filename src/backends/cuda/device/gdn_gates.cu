/* SPDX-License-Identifier: MIT
 * gdn_gates: a thread for each token and head.  The logarithm is taken in float64, of which there
 * is little to do: g is added up over tokens, and its errors are. */
#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/gdn_gates_cuda.h"

QRN_DEVICE_FUNCTION(qrn_gdn_gates, 256, 4, qrn_gdn_gates_params)
{
    const int64_t n = p.n_tokens * p.n_heads, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const int64_t t = i / p.n_heads, h = i - t * p.n_heads;
        const float x = p.a[t * p.a_stride + h] + p.dt_bias[h], b = p.b[t * p.b_stride + h];
        const float softplus = x > 20.0f ? x : (float)log1p(exp((double)x));
        p.g[t * p.g_stride + h] = p.a_scale[h] * softplus;
        p.beta[t * p.beta_stride + h] = qrn_sigmoid(b);
    }
}
