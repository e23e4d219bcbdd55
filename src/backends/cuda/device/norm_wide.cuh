/* SPDX-License-Identifier: MIT
 * A row of rms_norm that has a block of 16 warps, one to four pieces each, where rows are few: what takes time is one
 * step after the other, and code that has to come.  The bits are those of norm_row.cuh. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_NORM_WIDE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_NORM_WIDE_CUH

#include "backends/cuda/device/norm_part.cuh"

enum { WIDE = QRN_NORM_WIDE_WARPS };

/* Sums of parts of a product (matmul_parts_sm90a.cu) that make up a row of x. */
struct parts_of_row {
    const float *first;
    int64_t apart; /* floats from a part to the next one */
    int n;
};

/* A row of a block of WIDE warps, without a gate.  AT_ONCE: parts that are on their way at once, and x is where what they
 * make goes; 0: x is read. */
template <int N, int AT_ONCE> struct wide_row {
    typedef norm_part<WIDE, N> part;
    float *x;
    const float *residual;
    float *sum, *out;
    char *rounded; /* all but x may be NULL; with parts x too */
    parts_of_row parts;

    /* Parts in their order; what else is read comes with the last ones, for registers may be few. */
    __device__ __forceinline__ void add_parts(part &s, part &more, int d) const
    {
        s.load(parts.first, d);
        if (parts.n == 1) load_residual(more, d);
        for (int i = 1; i < parts.n; i += AT_ONCE) {
            part those[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (i + k < parts.n) those[k].load(parts.first + (i + k) * parts.apart, d);
            if (i + AT_ONCE >= parts.n) load_residual(more, d);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
                for (int j = 0; j < 4 * N; j++)
                    if (i + k < parts.n) s.v[j / 4][j % 4] += those[k].v[j / 4][j % 4];
        }
        if (x) s.store(x, d);
    }
    __device__ __forceinline__ void load_residual(part &more, int d) const
    {
        if (residual) more.load(residual, d);
    }

    __device__ __forceinline__ void norm(const qrn_rms_norm_params &p, const part &weight, float4 *shared) const
    {
        const int d = (int)p.shape.d;
        part s, more;
        if constexpr (AT_ONCE > 0) {
            add_parts(s, more, d);
        } else {
            load_residual(more, d);
            s.load(x, d);
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (residual) s.v[n][j] += more.v[n][j];
            const float squares = qrn_warp_sum(qrn_add_squares(s.v[n], 0.0f));
            if (qrn_lane() == 0) ((float *)shared)[n * WIDE + qrn_warp()] = squares;
        }
        if (sum) s.store(sum, d);
        __syncthreads();
        float4 low = shared[0], high = shared[1];
#pragma unroll
        for (int i = 2; i < N * WIDE / 4; i += 2) {
            const float4 a = shared[i], b = shared[i + 1];
            low.x += a.x, low.y += a.y, low.z += a.z, low.w += a.w;
            high.x += b.x, high.y += b.y, high.z += b.z, high.w += b.w;
        }
        const float squares = low.x + low.y + low.z + low.w + high.x + high.y + high.z + high.w,
                    scale = qrn_rms_scale(squares, d, p.eps);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s.v[n][j] = p.weight ? s.v[n][j] * scale * weight.v[n][j] : s.v[n][j] * scale;
        if (out) s.store(out, d);
        if (!rounded) return;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = part::begin() + n * part::STRIDE;
            if (i - 4 * qrn_lane() < d) qrn_store4_as(p.rounded_dtype, rounded, i, d, s.v[n]);
        }
    }
};

/* Where the weight may be read before the launch's turn, it is, and all is done with it in place of the row first:
 * code that runs once has to come from memory. */
template <int N, int AT_ONCE>
static __device__ __forceinline__ void rms_norm_wide(const qrn_rms_norm_params &p, parts_of_row parts)
{
    __shared__ float4 shared[2][N * WIDE / 4]; /* of each piece */
    __shared__ __align__(16) qrn_q8_act unused[N * WIDE];
    float *data = (float *)(uintptr_t)p.weight; /* is only read */
    const qrn_row_place r = qrn_place_of_row(p.shape, blockIdx.x);
    wide_row<N, AT_ONCE> turn = {AT_ONCE > 0 ? nullptr : data,
                                 p.residual.data ? data : nullptr,
                                 nullptr,
                                 nullptr,
                                 p.rounded.data && p.rounded_dtype == QRN_Q8_ACT ? (char *)unused : nullptr,
                                 {data, 0, 1}};
    norm_part<WIDE, N> weight;
    if (!p.weight_stays) qrn_grid_waits();
    if (data) weight.load(data, (int)p.shape.d);
#pragma unroll 1
    for (int i = p.weight_stays ? 0 : 1; i < 2; i++) {
        if (i) {
            if (p.weight_stays) qrn_grid_waits();
            turn = {(float *)qrn_row(p.x, r),   (const float *)qrn_row(p.residual, r),
                    (float *)qrn_row(p.sum, r), (float *)qrn_row(p.out, r),
                    qrn_row(p.rounded, r),      parts};
        }
        turn.norm(p, weight, shared[i]);
    }
}

#endif
