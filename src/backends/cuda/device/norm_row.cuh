/* SPDX-License-Identifier: MIT
 * A row of rms_norm that a warp or a block holds in registers. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_NORM_ROW_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_NORM_ROW_CUH

#include "backends/cuda/device/norm_part.cuh"

/* Where a row is, in all tensors. */
struct norm_row {
    const float *x, *residual, *gate;
    float *sum, *out;
    char *rounded;

    __device__ __forceinline__ norm_row(const qrn_rms_norm_params &p, const qrn_row_place &at)
    {
        x = (const float *)qrn_row(p.x, at);
        residual = (const float *)qrn_row(p.residual, at);
        gate = (const float *)qrn_row(p.gate, at);
        sum = (float *)qrn_row(p.sum, at), out = (float *)qrn_row(p.out, at);
        rounded = qrn_row(p.rounded, at);
    }
    /* The row k behind this one, along the last dimension of rows; it has no residual and no sum. */
    __device__ __forceinline__ norm_row behind(const qrn_rms_norm_params &p, int k) const
    {
        norm_row row = *this;
        row.x = (const float *)((const char *)x + k * p.x.stride[2]);
        if (gate) row.gate = (const float *)((const char *)gate + k * p.gate.stride[2]);
        if (out) row.out = (float *)((char *)out + k * p.out.stride[2]);
        if (rounded) row.rounded = rounded + k * p.rounded.stride[2];
        return row;
    }
};

/* From s, x and its residual, which is multiplied with scale, to out and rounded; weight and gate, or silu of it, matter where
 * there are any. */
template <bool is_silu, int n_warps, int N>
static __device__ __forceinline__ void
norm_scaled_row(const qrn_rms_norm_params &p, const norm_row &row, int d, norm_part<n_warps, N> &s,
                const norm_part<n_warps, N> &weight, const norm_part<n_warps, N> &gate, float scale)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float(&y)[4] = s.v[n];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            y[j] *= scale;
            if (p.weight) y[j] *= weight.v[n][j];
            if (row.gate) y[j] *= is_silu ? gate.v[n][j] : qrn_silu(gate.v[n][j]);
        }
    }
    if (row.out) s.store(row.out, d);
#pragma unroll
    for (int n = 0; row.rounded && n < N; n++) {
        const int i = s.begin() + n * s.STRIDE;
        if (i - 4 * qrn_lane() < d) qrn_store4_as(p.rounded_dtype, row.rounded, i, d, s.v[n]);
    }
}

/* The same with the row's own scale; shared is n_warps floats. */
template <bool is_silu, int n_warps, int N>
static __device__ __forceinline__ void
norm_whole_row(const qrn_rms_norm_params &p, const norm_row &row, int d, norm_part<n_warps, N> &s,
               const norm_part<n_warps, N> &weight, const norm_part<n_warps, N> &gate, float *shared)
{
    const float scale = s.rms_scale(d, p.eps, shared);
    norm_scaled_row<is_silu>(p, row, d, s, weight, gate, scale);
}

#endif
