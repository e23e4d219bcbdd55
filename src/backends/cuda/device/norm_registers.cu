/* SPDX-License-Identifier: MIT
 * rms_norm and l2_norm of rows that a warp or a block holds in registers: bound by memory where
 * rows are many, by latency where they are few.  All of a row is asked for at once, its weight's
 * lines before the launch before this one has ended, and each element is read once; one barrier
 * adds up the warps. Pieces of 128 elements and the order of sums are those of norm.cu: the same
 * bits. */
#include "backends/cuda/device/norm_part.cuh"

enum { WARPS = 8 };

/* The first row of this warp or block, and how many there are from one to the next. */
template <int n_warps> static __device__ __forceinline__ int64_t first_row()
{
    return n_warps == 1 ? (int64_t)blockIdx.x * WARPS + qrn_warp() : (int64_t)blockIdx.x;
}

template <int n_warps> static __device__ __forceinline__ int64_t rows_at_once()
{
    return (int64_t)gridDim.x * (n_warps == 1 ? WARPS : 1);
}

/* All lanes of a warp go through all of its pieces: rounding takes a whole one. */
template <int n_warps, int N>
static __device__ __forceinline__ void rms_norm(const qrn_rms_norm_params &p)
{
    __shared__ float shared[WARPS];
    const int d = (int)p.shape.d;
    const float *weight = (const float *)(uintptr_t)p.weight;
    if (weight && blockIdx.x == 0)
        for (int i = 32 * (int)threadIdx.x; i < d; i += 32 * 32 * WARPS) qrn_prefetch(weight + i);
    qrn_grid_waits();
    for (int64_t r = first_row<n_warps>(); r < p.n_rows; r += rows_at_once<n_warps>()) {
        const float *residual = (const float *)qrn_row(p.residual, p.shape, r);
        const float *gate = (const float *)qrn_row(p.gate, p.shape, r);
        float *sum = (float *)qrn_row(p.sum, p.shape, r),
              *out = (float *)qrn_row(p.out, p.shape, r);
        char *rounded = qrn_row(p.rounded, p.shape, r);
        norm_part<n_warps, N> s, more, w;
        s.load((const float *)qrn_row(p.x, p.shape, r), d);
        if (residual) more.load(residual, d);
        if (weight) w.load(weight, d);
        if (residual) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) s.v[n][j] += more.v[n][j];
        }
        if (gate) more.load(gate, d);
        if (sum) s.store(sum, d);
        const float scale = s.rms_scale(d, p.eps, shared);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float(&y)[4] = s.v[n];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                y[j] *= scale;
                if (weight) y[j] *= w.v[n][j];
                if (gate) y[j] *= qrn_silu(more.v[n][j]);
            }
        }
        if (out) s.store(out, d);
        if (!rounded) continue;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = s.begin() + n * s.STRIDE;
            if (i - 4 * qrn_lane() < d) qrn_store4_as(p.rounded_dtype, rounded, i, d, s.v[n]);
        }
    }
}

template <int N> static __device__ __forceinline__ void l2_norm(const qrn_l2_norm_params &p)
{
    const int d = (int)p.shape.d;
    for (int64_t r = first_row<1>(); r < p.n_rows; r += rows_at_once<1>()) {
        norm_part<1, N> x;
        x.load((const float *)qrn_row(p.x, p.shape, r), d);
        x.l2_normalise(p.eps, p.scale);
        x.store((float *)qrn_row(p.out, p.shape, r), d);
    }
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp1, 256, 4, qrn_rms_norm_params)
{
    rms_norm<1, 1>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp2, 256, 4, qrn_rms_norm_params)
{
    rms_norm<1, 2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp8, 256, 2, qrn_rms_norm_params)
{
    rms_norm<1, 8>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block2, 256, 4, qrn_rms_norm_params)
{
    rms_norm<WARPS, 2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block4, 256, 3, qrn_rms_norm_params)
{
    rms_norm<WARPS, 4>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block5, 256, 2, qrn_rms_norm_params)
{
    rms_norm<WARPS, 5>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block8, 256, 2, qrn_rms_norm_params)
{
    rms_norm<WARPS, 8>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp1, 256, 4, qrn_l2_norm_params)
{
    l2_norm<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp2, 256, 4, qrn_l2_norm_params)
{
    l2_norm<2>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp8, 256, 2, qrn_l2_norm_params)
{
    l2_norm<8>(p);
}
