/* SPDX-License-Identifier: MIT
 * attention and attention_paged whose keys several blocks of threads have shared: a row's runs are merged
 * in ascending order.
 *
 * Few rows have many runs: what counts is how long one row takes.  Sums must be one after the other, a
 * product and an addition each; all else is not: all runs are copied to shared memory at once, and
 * what sums are multiplied by needs only the greatest m of the runs before, found by a scan. */
#include "backends/cuda/device/attention.cuh"
#include "backends/cuda/device/mma.cuh"

enum { DIMS = QRN_ATTENTION_MERGE_DIMS };

/* What a run is multiplied by, and its l.  a is -1 where it is empty, and then b is 0, l -0. */
struct run_factors {
    float a, b, l, unused;
};

template <int RUNS> struct merge_shared {
    float o[RUNS][DIMS];
    run_factors of[RUNS];
    float most[RUNS / 32];
};

/* The row of this block; by all lanes of a warp.  n_rows of 0: none. */
static __device__ __forceinline__ qrn_attention_tile merge_tile(const qrn_attention_params &p)
{
    const int64_t nth = blockIdx.x;
    if (!p.paged.pages) return qrn_attention_tile_of(p, 1);
    return qrn_attention_tile_of_seq(p, qrn_attention_seq_by_warp(p, nth, 1), nth, 1);
}

/* Of runs from .. RUNS - 1, as many as n, from dimension d on. */
template <int RUNS>
static __device__ __forceinline__ void copy_runs(const qrn_attention_params &p, const float *from,
                                                 int n, int d, merge_shared<RUNS> &s)
{
    const int64_t stride = QRN_ATTENTION_PARTIAL(p.d_v);
    const int of_row = DIMS / 4, lines = RUNS / of_row;
    const int x = (int)threadIdx.x % of_row * 4, line = (int)threadIdx.x / of_row;
    from += line * stride + d + x;
    const bool reads = d + x < p.d_v;
#pragma unroll
    for (int i = 0; i < RUNS; i += lines)
        if (reads && i + line < n) qrn_copy16_async(&s.o[i + line][x], from + i * stride, 16);
    qrn_copies_commit();
}

/* What this thread's run is multiplied by, and the greatest m so far; `before` is that of earlier runs. */
template <int RUNS>
static __device__ __forceinline__ float put_factors(float m, float l, float before, merge_shared<RUNS> &s)
{
    const int lane = qrn_lane(), warp = qrn_warp();
    float most = m;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float other = __shfl_up_sync(QRN_ALL_OF_WARP, most, step);
        if (lane >= step) most = fmaxf(most, other);
    }
    if (lane == 31) s.most[warp] = most;
    float earlier = __shfl_up_sync(QRN_ALL_OF_WARP, most, 1);
    __syncthreads();
    if (lane == 0) earlier = QRN_MINUS_INFINITY;
    earlier = fmaxf(earlier, before);
#pragma unroll
    for (int i = 0; i < RUNS / 32; i++) {
        if (i < warp) earlier = fmaxf(earlier, s.most[i]);
        before = fmaxf(before, s.most[i]);
    }
    const qrn_attention_merge merge = qrn_attention_merging(earlier, m, l);
    s.of[threadIdx.x] = merge.empty ? run_factors{-1.0f, 0.0f, -0.0f, 0.0f}
                                    : run_factors{merge.a, merge.b, l, 0.0f};
    return before;
}

/* A row for each block, DIMS dimensions along z.  The next launches begin when it is its turn and not before: beside
 * the first copies of a product, what it waits for took three times as long. */
template <int RUNS> static __device__ __forceinline__ void merge_runs(const qrn_attention_params &p)
{
    __shared__ __align__(16) merge_shared<RUNS> s;
    if (!p.numbers_stay) qrn_grid_waits();
    const qrn_attention_tile t = merge_tile(p);
    const qrn_attention_row row = qrn_attention_row_of(p, t, blockIdx.y, 0);
    const int64_t first_run = qrn_attention_first_run(row), stride = QRN_ATTENTION_PARTIAL(p.d_v);
    const bool none = t.bad || row.end <= row.begin;
    const int n =
        none ? 0 : (int)(QRN_ATTENTION_RUN_OF((row.end - 1) / QRN_ATTENTION_BLOCK) + 1 - first_run);
    const float *from = qrn_attention_partial(p, t, row, first_run);
    const int d = (int)blockIdx.z * DIMS;
    float most = QRN_MINUS_INFINITY, l = 0.0f, o = 0.0f;
    qrn_grid_waits_letting(true);
    if (t.n_rows <= 0) return;
    for (int first = 0; first < n; first += RUNS, from += RUNS * stride) {
        const int count = min(n - first, (int)RUNS);
        const float *at = from + threadIdx.x * stride + p.d_v;
        const bool there = (int)threadIdx.x < count;
        const float run_m = there ? at[0] : QRN_MINUS_INFINITY, run_l = there ? at[1] : 0.0f;
        copy_runs(p, from, count, d, s);
        most = put_factors(run_m, run_l, most, s);
        qrn_copies_wait<0>();
        __syncthreads();
        if (threadIdx.x < DIMS) {
#pragma unroll 8
            for (int i = 0; i < (count + 7) / 8 * 8; i++) {
                /* Of an empty run: -0 + 1 x, which is x, zeros with their signs too. */
                const run_factors f = s.of[i];
                const float x = f.a < 0.0f ? -0.0f : s.o[i][threadIdx.x];
                l = fmaf(f.l, f.b, l * fabsf(f.a));
                o = fmaf(x, f.b, o * fabsf(f.a));
            }
        }
        __syncthreads();
    }
    if (threadIdx.x >= DIMS || d + (int)threadIdx.x >= p.d_v) return;
    qrn_attention_out(p, t, row)[d + threadIdx.x] = t.bad       ? __uint_as_float(0x7fc00000u)
                                                    : l == 0.0f ? 0.0f
                                                                : o / l;
}

QRN_DEVICE_FUNCTION_LATE(qrn_attention_merge_few, QRN_ATTENTION_MERGE_FEW, 16, qrn_attention_params)
{
    merge_runs<QRN_ATTENTION_MERGE_FEW>(p);
}

QRN_DEVICE_FUNCTION_LATE(qrn_attention_merge_runs, QRN_ATTENTION_MERGE_RUNS, 4, qrn_attention_params)
{
    merge_runs<QRN_ATTENTION_MERGE_RUNS>(p);
}
