/* SPDX-License-Identifier: MIT
 * rms_norm and l2_norm of rows that a warp or a block holds in registers: bound by memory where
 * rows are many, by latency where they are few.  All of a row is asked for at once, its weight's
 * lines before the launch before this one has ended, and each element is read once; one barrier
 * adds up the warps.  Pieces of 128 elements and the order of sums are those of norm.cuh: the same
 * bits.
 *
 * Where there are no more rows than multiprocessors, a row of rms_norm has a block (norm_wide.cuh); a joint's, whose x
 * comes in parts, too. */
#include "backends/cuda/device/norm_row.cuh"
#include "backends/cuda/device/norm_wide.cuh"

enum { WARPS = 8 };
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

/* R rows that are side by side, and gates, on their way. */
template <int R, int N> struct run_of_rows {
    norm_part<1, N> x[R], gate[R];

    __device__ __forceinline__ void ask(const qrn_rms_norm_params &p, const norm_row &first)
    {
#pragma unroll
        for (int k = 0; k < R; k++) {
            const norm_row row = first.behind(p, k);
            x[k].load(row.x, (int)p.shape.d);
            if (row.gate) gate[k].load(row.gate, (int)p.shape.d);
        }
    }
    __device__ __forceinline__ void finish(const qrn_rms_norm_params &p, const norm_row &first, const norm_part<1, N> &weight)
    {
        float scales[R];
        qrn_rms_scales(x, (int)p.shape.d, p.eps, scales);
#pragma unroll
        for (int k = 0; k < R; k++)
            norm_scaled_row<false>(p, first.behind(p, k), (int)p.shape.d, x[k], weight, gate[k], scales[k]);
    }
};

/* Many short rows of N pieces, whose shape is whole runs: a warp asks for the next run before it does what it has. */
template <int N> static __device__ __forceinline__ void rms_norm_runs(const qrn_rms_norm_params &p)
{
    constexpr int R = QRN_NORM_RUN / N;
    const int64_t step = R * rows_at_once<1>();
    norm_part<1, N> w;
    run_of_rows<R, N> run;
    int64_t r = R * first_row<1>();
    if (r >= p.n_rows) return;
    norm_row at(p, qrn_place_of_row(p.shape, r));
    if (p.weight) w.load((const float *)(uintptr_t)p.weight, (int)p.shape.d);
    run.ask(p, at);
#pragma unroll 1
    for (r += step; r < p.n_rows; r += step) {
        const norm_row next(p, qrn_place_of_row(p.shape, r));
        run_of_rows<R, N> ahead;
        ahead.ask(p, next);
        run.finish(p, at, w);
        run = ahead;
        at = next;
    }
    run.finish(p, at, w);
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

/* R rows at once, as above. */
template <int N, int R> static __device__ __forceinline__ void l2_norm(const qrn_l2_norm_params &p)
{
    const int d = (int)p.shape.d;
#pragma unroll 1
    for (int64_t r = R * first_row<1>(); r < p.n_rows; r += R * rows_at_once<1>()) {
        const qrn_row_place at = qrn_place_of_row(p.shape, r);
        norm_part<1, N> x[R];
#pragma unroll
        for (int k = 0; k < R; k++) x[k].load((const float *)(qrn_row(p.x, at) + k * p.x.stride[2]), d);
        if (R > 1) qrn_l2_normalise(x, p.eps, p.scale);
        else x[0].l2_normalise(p.eps, p.scale);
#pragma unroll
        for (int k = 0; k < R; k++) x[k].store((float *)(qrn_row(p.out, at) + k * p.out.stride[2]), d);
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

QRN_DEVICE_FUNCTION(qrn_rms_norm_runs1, 256, QRN_NORM_RUN_BLOCKS, qrn_rms_norm_params)
{
    rms_norm_runs<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_rms_norm_runs2, 256, QRN_NORM_RUN_BLOCKS, qrn_rms_norm_params)
{
    rms_norm_runs<2>(p);
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
    rms_norm_wide<1, 0>(p, parts_of_row());
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_wide2, 32 * WIDE, 2, qrn_rms_norm_params)
{
    rms_norm_wide<2, 0>(p, parts_of_row());
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_wide4, 32 * WIDE, 1, qrn_rms_norm_params)
{
    rms_norm_wide<4, 0>(p, parts_of_row());
}

static __device__ __forceinline__ parts_of_row row_of_parts(const qrn_rms_norm_parts_params &p)
{
    return {(const float *)(uintptr_t)p.parts + blockIdx.x * p.norm.shape.d, p.apart, p.n_parts};
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_parts1, 32 * WIDE, 1, qrn_rms_norm_parts_params)
{
    rms_norm_wide<1, 4>(p.norm, row_of_parts(p));
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_parts2, 32 * WIDE, 1, qrn_rms_norm_parts_params)
{
    rms_norm_wide<2, 4>(p.norm, row_of_parts(p));
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_parts4, 32 * WIDE, 1, qrn_rms_norm_parts_params)
{
    rms_norm_wide<4, 2>(p.norm, row_of_parts(p));
}

/* As many registers as so many threads would leave: there is room beside a block of matmul.parts. */
enum { BESIDE_THREADS = 768 };

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_beside1, BESIDE_THREADS, 1, qrn_rms_norm_parts_params)
{
    rms_norm_wide<1, 3>(p.norm, row_of_parts(p));
}

QRN_DEVICE_FUNCTION_EARLY(qrn_rms_norm_beside2, BESIDE_THREADS, 1, qrn_rms_norm_parts_params)
{
    rms_norm_wide<2, 2>(p.norm, row_of_parts(p));
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp1, 256, 4, qrn_l2_norm_params)
{
    l2_norm<1, 1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp2, 256, 4, qrn_l2_norm_params)
{
    l2_norm<2, 1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_warp4, 256, 3, qrn_l2_norm_params)
{
    l2_norm<4, 1>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_runs1, 256, 4, qrn_l2_norm_params)
{
    l2_norm<1, QRN_NORM_RUN>(p);
}

QRN_DEVICE_FUNCTION(qrn_l2_norm_runs2, 256, 4, qrn_l2_norm_params)
{
    l2_norm<2, QRN_NORM_RUN / 2>(p);
}
