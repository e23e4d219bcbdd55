/* SPDX-License-Identifier: MIT
 * rms_norm and l2_norm of rows that a warp or a block holds in registers: bound by memory where
 * rows are many, by latency where they are few.  All of a row is asked for at once, its weight's
 * lines before the launch before this one has ended, and each element is read once; one barrier
 * adds up the warps.  Pieces of 128 elements and the order of sums are those of norm.cuh: the same
 * bits.
 *
 * Where there are no more rows than multiprocessors, a row of rms_norm has a block of 16 warps, one to four
 * pieces each: what takes time is one step after the other, and code that has to come. */
#include "backends/cuda/device/norm_row.cuh"

enum { WARPS = 8, WIDE = QRN_NORM_WIDE_WARPS };
static_assert((int)WARPS == (int)QRN_NORM_SUMS, "a warp has every eighth piece");

/* The first row of this warp or block, and how many there are from one to the next. */
template <int n_warps> static __device__ __forceinline__ int64_t first_row()
{
    return n_warps == 1 ? (int64_t)blockIdx.x * WARPS + qrn_warp() : (int64_t)blockIdx.x;
}

template <int n_warps> static __device__ __forceinline__ int64_t rows_at_once()
{
    return (int64_t)gridDim.x * (n_warps == 1 ? WARPS : 1);
}

/* All lanes of a warp go through all of its pieces: rounding takes a whole one.  Where the first row is is worked out
 * before the launch's turn, if registers are left for that. */
template <int n_warps, int N>
static __device__ __forceinline__ void rms_norm(const qrn_rms_norm_params &p)
{
    constexpr bool is_early = N <= 2;
    __shared__ float shared[WARPS];
    const int d = (int)p.shape.d;
    const float *weight = (const float *)(uintptr_t)p.weight;
    if (weight && blockIdx.x == 0)
        for (int i = 32 * (int)threadIdx.x; i < d; i += 32 * 32 * WARPS) qrn_prefetch(weight + i);
    int64_t r = first_row<n_warps>();
    norm_row row(p, qrn_place_of_row(p.shape, min(r, p.n_rows - 1)));
    qrn_grid_waits();
#pragma unroll 1
    while (r < p.n_rows) {
        if (!is_early) row = norm_row(p, qrn_place_of_row(p.shape, r));
        norm_part<n_warps, N> s, more, w;
        s.load(row.x, d);
        if (row.residual) more.load(row.residual, d);
        if (weight) w.load(weight, d);
        if (row.residual) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) s.v[n][j] += more.v[n][j];
        }
        if (row.gate) more.load(row.gate, d);
        if (row.sum) s.store(row.sum, d);
        norm_whole_row<false>(p, row, d, s, w, more, shared);
        r += rows_at_once<n_warps>();
        if (is_early && r < p.n_rows) row = norm_row(p, qrn_place_of_row(p.shape, r));
    }
}

/* A row of a block of WIDE warps, without a gate. */
template <int N> struct wide_row {
    typedef norm_part<WIDE, N> part;
    const float *x, *residual;
    float *sum, *out;
    char *rounded; /* all but x may be NULL */

    __device__ __forceinline__ void norm(const qrn_rms_norm_params &p, const part &weight, float4 *shared) const
    {
        const int d = (int)p.shape.d;
        part s, more;
        s.load(x, d);
        if (residual) more.load(residual, d);
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
template <int N> static __device__ __forceinline__ void rms_norm_wide(const qrn_rms_norm_params &p)
{
    __shared__ float4 shared[2][N * WIDE / 4]; /* of each piece */
    __shared__ __align__(16) qrn_q8_act unused[N * WIDE];
    const float *data = (const float *)(uintptr_t)p.weight;
    const qrn_row_place r = qrn_place_of_row(p.shape, blockIdx.x);
    const wide_row<N> row = {(const float *)qrn_row(p.x, r), (const float *)qrn_row(p.residual, r),
                             (float *)qrn_row(p.sum, r), (float *)qrn_row(p.out, r), qrn_row(p.rounded, r)};
    wide_row<N> turn = {data, p.residual.data ? data : nullptr, nullptr, nullptr,
                        p.rounded.data && p.rounded_dtype == QRN_Q8_ACT ? (char *)unused : nullptr};
    norm_part<WIDE, N> weight;
    if (!p.weight_stays) qrn_grid_waits();
    if (data) weight.load(data, (int)p.shape.d);
#pragma unroll 1
    for (int i = p.weight_stays ? 0 : 1; i < 2; i++) {
        if (i) {
            if (p.weight_stays) qrn_grid_waits();
            turn = row;
        }
        turn.norm(p, weight, shared[i]);
    }
}

template <int N> static __device__ __forceinline__ void l2_norm(const qrn_l2_norm_params &p)
{
    const int d = (int)p.shape.d;
    for (int64_t r = first_row<1>(); r < p.n_rows; r += rows_at_once<1>()) {
        const qrn_row_place at = qrn_place_of_row(p.shape, r);
        norm_part<1, N> x;
        x.load((const float *)qrn_row(p.x, at), d);
        x.l2_normalise(p.eps, p.scale);
        x.store((float *)qrn_row(p.out, at), d);
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

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_warp4, 256, 3, qrn_rms_norm_params)
{
    rms_norm<1, 4>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block1, 256, 4, qrn_rms_norm_params)
{
    rms_norm<WARPS, 1>(p);
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

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_block8, 256, 1, qrn_rms_norm_params)
{
    rms_norm<WARPS, 8>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_wide1, 32 * WIDE, 2, qrn_rms_norm_params)
{
    rms_norm_wide<1>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_wide2, 32 * WIDE, 2, qrn_rms_norm_params)
{
    rms_norm_wide<2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_wide4, 32 * WIDE, 1, qrn_rms_norm_params)
{
    rms_norm_wide<4>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp1, 256, 4, qrn_l2_norm_params)
{
    l2_norm<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp2, 256, 4, qrn_l2_norm_params)
{
    l2_norm<2>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp4, 256, 3, qrn_l2_norm_params)
{
    l2_norm<4>(p);
}
