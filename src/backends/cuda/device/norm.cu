/* SPDX-License-Identifier: MIT
 * rms_norm and l2_norm of rows of any length and alignment: a row is a warp's or a block's, which
 * walks it in pieces of 128 elements, once for the squares and once for the results; the second
 * time it comes from a cache. */
#include "backends/cuda/device/norm.cuh"

enum { WARPS = 8 };
static_assert((int)WARPS == (int)QRN_NORM_SUMS, "a warp has every eighth piece");

/* Rows of this block: n_warps warps take one. */
template <int n_warps> struct rows_of_block {
    int64_t first, step;
    int begin, stride; /* elements, for this lane */
    __device__ rows_of_block()
    {
        const int rows_at_once = WARPS / n_warps;
        first = (int64_t)blockIdx.x * rows_at_once + (n_warps == 1 ? qrn_warp() : 0);
        step = (int64_t)gridDim.x * rows_at_once;
        begin = (n_warps == 1 ? 0 : qrn_warp()) * QRN_PIECE + 4 * qrn_lane();
        stride = n_warps * QRN_PIECE;
    }
};

static __device__ __forceinline__ void load_sum(const float *x, const float *residual, int64_t i,
                                                int64_t d, float (&s)[4])
{
    qrn_load4(x, i, d, s);
    if (!residual) return;
    float more[4];
    qrn_load4(residual, i, d, more);
#pragma unroll
    for (int j = 0; j < 4; j++) s[j] += more[j];
}

/* All lanes of a warp go through all of its pieces: rounding takes a whole one. */
template <int n_warps> static __device__ __forceinline__ void rms_norm(const qrn_rms_norm_params &p)
{
    __shared__ float shared[WARPS];
    const rows_of_block<n_warps> rows;
    const int64_t d = p.shape.d;
    const float *weight = (const float *)(uintptr_t)p.weight;
    for (int64_t r = rows.first; r < p.n_rows; r += rows.step) {
        const qrn_row_place at = qrn_place_of_row(p.shape, r);
        const float *x = (const float *)qrn_row(p.x, at);
        const float *residual = (const float *)qrn_row(p.residual, at);
        const float *gate = (const float *)qrn_row(p.gate, at);
        float *sum = (float *)qrn_row(p.sum, at),
              *out = (float *)qrn_row(p.out, at);
        char *rounded = qrn_row(p.rounded, at);
        float squares = 0.0f;
        for (int64_t i = rows.begin; i - 4 * qrn_lane() < d; i += rows.stride) {
            float s[4];
            load_sum(x, residual, i, d, s);
            if (n_warps == 1) squares = qrn_add_squares(s, squares);
            else squares += qrn_warp_sum(qrn_add_squares(s, 0.0f));
        }
        squares = n_warps == 1 ? qrn_warp_sum(squares) : qrn_sum_of_warps<n_warps>(squares, shared);
        const float scale = qrn_rms_scale(squares, d, p.eps);
        for (int64_t i = rows.begin; i - 4 * qrn_lane() < d; i += rows.stride) {
            float s[4], y[4];
            load_sum(x, residual, i, d, s);
#pragma unroll
            for (int j = 0; j < 4; j++) y[j] = s[j] * scale;
            if (weight) {
                float w[4];
                qrn_load4(weight, i, d, w);
#pragma unroll
                for (int j = 0; j < 4; j++) y[j] *= w[j];
            }
            if (gate) {
                float z[4];
                qrn_load4(gate, i, d, z);
#pragma unroll
                for (int j = 0; j < 4; j++) y[j] *= qrn_silu(z[j]);
            }
            if (sum) qrn_store4(sum, i, d, s);
            if (out) qrn_store4(out, i, d, y);
            if (rounded) qrn_store4_as(p.rounded_dtype, rounded, i, d, y);
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_rms_norm_warp, 256, 4, qrn_rms_norm_params)
{
    rms_norm<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_rms_norm_block, 256, 4, qrn_rms_norm_params)
{
    rms_norm<WARPS>(p);
}

/* Squares of any floats fit: the row is first scaled by a power of two, exactly, to below 2. */
template <int n_warps> static __device__ __forceinline__ void l2_norm(const qrn_l2_norm_params &p)
{
    __shared__ float shared[WARPS];
    const rows_of_block<n_warps> rows;
    const int64_t d = p.shape.d;
    for (int64_t r = rows.first; r < p.n_rows; r += rows.step) {
        const qrn_row_place at = qrn_place_of_row(p.shape, r);
        const float *x = (const float *)qrn_row(p.x, at);
        float *out = (float *)qrn_row(p.out, at), most = 0.0f, squares = 0.0f, v[4];
        for (int64_t i = rows.begin; i < d; i += rows.stride) {
            qrn_load4(x, i, d, v);
#pragma unroll
            for (int j = 0; j < 4; j++) most = fmaxf(most, fabsf(v[j]));
        }
        most = qrn_block_max<n_warps>(most, shared);
        const float down = qrn_l2_down(most);
        for (int64_t i = rows.begin; i < d; i += rows.stride) {
            qrn_load4(x, i, d, v);
#pragma unroll
            for (int j = 0; j < 4; j++) squares = fmaf(v[j] * down, v[j] * down, squares);
        }
        squares = qrn_block_sum<n_warps>(squares, shared);
        const float factor = qrn_l2_factor(squares, down, p.eps, p.scale);
        for (int64_t i = rows.begin; i < d; i += rows.stride) {
            qrn_load4(x, i, d, v);
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = v[j] * down * factor;
            qrn_store4(out, i, d, v);
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp, 256, 4, qrn_l2_norm_params)
{
    l2_norm<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_block, 256, 4, qrn_l2_norm_params)
{
    l2_norm<WARPS>(p);
}
