/* SPDX-License-Identifier: MIT
 * What joints of Gated DeltaNet do with channels of q and k: a warp has 128 of a token, a head's, as
 * l2_norm has them. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_INPUTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_INPUTS_CUH

#include "backends/cuda/device/gdn_gates.cuh"
#include "backends/cuda/device/norm_part.cuh"
#include "backends/cuda/device/ssm_conv4.cuh"
#include "backends/cuda/gdn_joints_cuda.h"

struct gdn_normed : to_out {
    bool is_normed;
    float eps, scale;
    __device__ __forceinline__ gdn_normed(const qrn_gdn_inputs_params &p, int64_t c)
        : is_normed(c < p.n_normed), eps(p.eps), scale(p.scale)
    {
    }
    template <int R> __device__ __forceinline__ void operator()(float (&y)[R][4]) const
    {
        if (!is_normed) return;
        norm_part<1, 1> rows[R];
#pragma unroll
        for (int i = 0; i < 4 * R; i++) rows[i / 4].v[0][i % 4] = y[i / 4][i % 4];
        if (R > 1) qrn_l2_normalise(rows, eps, scale);
        else rows[0].l2_normalise(eps, scale);
#pragma unroll
        for (int i = 0; i < 4 * R; i++) y[i / 4][i % 4] = rows[i / 4].v[0][i % 4];
    }
};

/* Gates of this block's tokens and heads. */
static __device__ __forceinline__ void gdn_gates_of_block(const qrn_gdn_inputs_params &p)
{
    const int64_t i = (int64_t)((int)blockIdx.x - p.n_conv_blocks) * blockDim.x + threadIdx.x,
                  t = i / p.gates.n_heads, h = i - t * p.gates.n_heads;
    qrn_grid_waits();
    if (t < p.gates.n_tokens) gdn_store_gates(p.gates, t, h);
}

#endif
