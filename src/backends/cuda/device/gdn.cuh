/* SPDX-License-Identifier: MIT
 * What kernels of the gated delta rule share: heads, and rows copied to shared memory. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_CUH

#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/ragged.cuh"
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/gdn_cuda.h"

enum { GDN_CHUNK = QRN_CUDA_GDN_CHUNK };

static __device__ __forceinline__ int64_t gdn_key_head(const qrn_gdn_heads &h, int64_t head)
{
    return h.tiled ? head % h.n_k : head / (h.n_v / h.n_k);
}

static __device__ __forceinline__ const float *gdn_at(const qrn_gdn_tensor &t, int64_t token,
                                                      int64_t head)
{
    return t.data + token * t.token + head * t.head;
}

static __device__ __forceinline__ float gdn_nan()
{
    return __uint_as_float(0x7fc00000u);
}

/* Four floats to shared memory (16-byte aligned), of which the first n (it may be below 1 or above 4)
 * are read, the rest is 0; they are there after qrn_copies_wait and a __syncthreads. */
static __device__ __forceinline__ void gdn_copy4(float *to, const float *from, int64_t n)
{
    if (n >= 4 && qrn_is_aligned(from, 16)) {
        qrn_copy16_async(to, from, 16);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) to[j] = j < n ? from[j] : 0.0f;
}

#endif
