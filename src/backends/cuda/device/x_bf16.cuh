/* SPDX-License-Identifier: MIT
 * Rows of x rounded to bf16. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_X_BF16_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_X_BF16_CUH

#include "backends/cuda/device/matmul_job.cuh"

/* Elements k .. k + 3 of a row of x; 0 past its end. */
static __device__ __forceinline__ uint2 qrn_four_of_x(const qrn_matmul_params &p, const char *row, int64_t k)
{
    uint16_t h[4];
    if (p.x_dtype == QRN_BF16) {
        qrn_load4((const uint16_t *)row, k, p.w.k, h);
    } else {
        float v[4];
        qrn_load4((const float *)row, k, p.w.k, v);
#pragma unroll
        for (int i = 0; i < 4; i++) h[i] = qrn_bf16_of_float(v[i]);
    }
    return make_uint2(h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16);
}

#endif
