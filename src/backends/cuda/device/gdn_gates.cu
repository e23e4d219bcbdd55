/* SPDX-License-Identifier: MIT
 * gdn_gates: a thread for each token and head. */
#include "backends/cuda/device/gdn_gates.cuh"

QRN_DEVICE_FUNCTION(qrn_gdn_gates, 256, 4, qrn_gdn_gates_params)
{
    const int64_t n = p.n_tokens * p.n_heads, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const int64_t t = i / p.n_heads, h = i - t * p.n_heads;
        gdn_store_gates(p, t, h);
    }
}
