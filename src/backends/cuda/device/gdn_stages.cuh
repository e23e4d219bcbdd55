/* SPDX-License-Identifier: MIT
 * What the chunk stages share: elements of either type, decays, turned panels in shared memory. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_STAGES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_STAGES_CUH

#include "backends/cuda/device/gdn.cuh"
#include "backends/cuda/gdn_stages_cuda.h"

enum {
    STAGE_THREADS = QRN_GDN_STAGE_THREADS,
    PANEL = 32,            /* elements of d_k at a time */
    TURNED = GDN_CHUNK + 4 /* floats of a row of a turned panel */
};

static __device__ __forceinline__ int64_t stage_row(const qrn_gdn_stage_tensor &t, int64_t token,
                                                    int64_t head)
{
    return token * t.stride[0] + head * t.stride[1];
}

static __device__ __forceinline__ float stage_get(const qrn_gdn_stage_tensor &t, int bf16,
                                                  int64_t at)
{
    return bf16 ? qrn_float_of_bf16(((const uint16_t *)t.data)[at]) : ((const float *)t.data)[at];
}

static __device__ __forceinline__ void stage_put(const qrn_gdn_stage_tensor &t, int bf16,
                                                 int64_t at, float x)
{
    if (bf16)
        ((uint16_t *)t.data)[at] = qrn_bf16_of_float(x);
    else
        ((float *)t.data)[at] = x;
}

static __device__ __forceinline__ double stage_G(const qrn_gdn_stage_params &p, int64_t token,
                                                 int64_t head)
{
    const int64_t at = token * p.G.stride[0] + head;
    return p.G_f64 ? ((const double *)p.G.data)[at] : (double)((const float *)p.G.data)[at];
}

static __device__ __forceinline__ float stage_beta(const qrn_gdn_stage_params &p, int64_t token,
                                                   int64_t head)
{
    return ((const float *)p.beta.data)[token * p.beta.stride[0] + head];
}

static __device__ __forceinline__ float stage_exp(double x)
{
    return qrn_exp((float)x);
}

/* The chunk of this block, number `index`; its first token in the call is begin + first. */
static __device__ __forceinline__ qrn_tile stage_chunk(const qrn_gdn_stage_params &p, int64_t index)
{
    return qrn_find_tile(p.sequences, index, GDN_CHUNK, 0);
}

/* G of a chunk's tokens; 0 past its end. */
static __device__ __forceinline__ void stage_load_G(const qrn_gdn_stage_params &p, double *G,
                                                    int64_t token, int n, int64_t head)
{
    if ((int)threadIdx.x < GDN_CHUNK)
        G[threadIdx.x] = (int)threadIdx.x < n ? stage_G(p, token + threadIdx.x, head) : 0.0;
}

/* to[e][t] = element e0 + e of row t, 0 past n rows and d elements; rows are `stride` apart, from
 * element `at` on. */
static __device__ __forceinline__ void stage_turn(float (*to)[TURNED],
                                                  const qrn_gdn_stage_tensor &x, int bf16,
                                                  int64_t at, int64_t stride, int n, int64_t e0,
                                                  int64_t d)
{
    for (int i = threadIdx.x; i < GDN_CHUNK * PANEL; i += STAGE_THREADS) {
        const int e = i % PANEL, t = i / PANEL;
        to[e][t] = t < n && e0 + e < d ? stage_get(x, bf16, at + t * stride + e0 + e) : 0.0f;
    }
}

/* sum[i][j] += a[e][4 y + i] * b[e][4 x + j] over a panel, for one thread of 16 x 16. */
template <int rows, int stride_a, int stride_b>
static __device__ __forceinline__ void
stage_multiply(float (&sum)[4][4], const float (*a)[stride_a], const float (*b)[stride_b])
{
    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
#pragma unroll 4
    for (int e = 0; e < rows; e++) {
        const float4 u = *(const float4 *)&a[e][y], v = *(const float4 *)&b[e][x];
        const float us[4] = {u.x, u.y, u.z, u.w}, vs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) sum[i][j] = fmaf(us[i], vs[j], sum[i][j]);
    }
}

static __device__ __forceinline__ void stage_clear(float (&sum)[4][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = 0.0f;
}

#endif
