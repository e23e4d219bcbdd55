/* SPDX-License-Identifier: MIT
 * attention and attention_paged whose keys several blocks of threads have shared: a row's runs are merged
 * in ascending order.
 *
 * Few rows have many runs: what counts is how long one row takes.  Sums must be one after the other, a
 * product and an addition each; all else is not: runs are copied to shared memory many at once, and
 * what sums are multiplied by needs only the greatest m of the runs before, found by a scan. */
#include "backends/cuda/device/attention.cuh"
#include "backends/cuda/device/mma.cuh"

enum { DIMS = QRN_ATTENTION_MERGE_DIMS, RUNS = QRN_ATTENTION_MERGE_RUNS, AHEAD = 3 };

struct merge_shared {
    float o[AHEAD][RUNS][DIMS];
    float a[RUNS], b[RUNS], l[RUNS],
        most[2]; /* a: -1 where a run is empty, and then b is 0, l -0 */
};

/* The row of this block; by all lanes of a warp.  n_rows of 0: none. */
static __device__ __forceinline__ qrn_attention_tile merge_tile(const qrn_attention_params &p)
{
    const int64_t nth = blockIdx.x;
    if (!p.paged.pages) return qrn_attention_tile_of(p, 1);
    return qrn_attention_tile_of_seq(p, qrn_attention_seq_by_warp(p, nth, 1), nth, 1);
}

/* Of runs first .. n - 1, from dimension d on.  Empty for no runs. */
static __device__ __forceinline__ void copy_runs(const qrn_attention_params &p, const float *from,
                                                 int first, int n, int d, merge_shared &s)
{
    const int64_t stride = QRN_ATTENTION_PARTIAL(p.d_v);
    const int of_row = DIMS / 4, lines = RUNS / of_row;
    const int x = (int)threadIdx.x % of_row * 4, line = (int)threadIdx.x / of_row;
    float *to = &s.o[first / RUNS % AHEAD][line][x];
    from += (first + line) * stride + d + x;
    const bool reads = d + x < p.d_v;
#pragma unroll
    for (int i = 0; i < RUNS; i += lines)
        if (reads && first + i + line < n) qrn_copy16_async(to + i * DIMS, from + i * stride, 16);
    qrn_copies_commit();
}

/* What sums are multiplied by at runs first .. n - 1, and the greatest m so far. */
static __device__ __forceinline__ float factors(const qrn_attention_params &p, const float *from,
                                                int first, int n, float before, merge_shared &s)
{
    const int i = (int)threadIdx.x, lane = qrn_lane();
    const bool there = first + i < n;
    const float *at = from + (first + i) * QRN_ATTENTION_PARTIAL(p.d_v) + p.d_v;
    const float m = there ? at[0] : QRN_MINUS_INFINITY, l = there ? at[1] : 0.0f;
    float most = m;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float other = __shfl_up_sync(QRN_ALL_OF_WARP, most, step);
        if (lane >= step) most = fmaxf(most, other);
    }
    if (lane == 31) s.most[qrn_warp()] = most;
    float earlier = __shfl_up_sync(QRN_ALL_OF_WARP, most, 1);
    __syncthreads();
    if (lane == 0) earlier = QRN_MINUS_INFINITY;
    if (qrn_warp() > 0) earlier = fmaxf(earlier, s.most[0]);
    const qrn_attention_merge merge = qrn_attention_merging(fmaxf(earlier, before), m, l);
    s.a[i] = merge.empty ? -1.0f : merge.a;
    s.b[i] = merge.empty ? 0.0f : merge.b;
    s.l[i] = merge.empty ? -0.0f : l;
    return fmaxf(before, fmaxf(s.most[0], s.most[1]));
}

/* A row for each block, DIMS dimensions along z.  The next launches begin when it is its turn and not before: beside
 * the first copies of a product, what it waits for took three times as long. */
QRN_DEVICE_FUNCTION_LATE(qrn_attention_merge_runs, 64, 6, qrn_attention_params)
{
    __shared__ __align__(16) merge_shared s;
    if (!p.numbers_stay) qrn_grid_waits();
    const qrn_attention_tile t = merge_tile(p);
    const qrn_attention_row row = qrn_attention_row_of(p, t, blockIdx.y, 0);
    qrn_grid_waits();
    qrn_grid_begins();
    if (t.n_rows <= 0) return;
    const int64_t first_run = qrn_attention_first_run(row);
    const bool none = t.bad || row.end <= row.begin;
    const int n =
        none ? 0 : (int)(QRN_ATTENTION_RUN_OF((row.end - 1) / QRN_ATTENTION_BLOCK) + 1 - first_run);
    const float *from = qrn_attention_partial(p, t, row, first_run);
    const int d = (int)blockIdx.z * DIMS;
    float most = QRN_MINUS_INFINITY, l = 0.0f, o = 0.0f;
#pragma unroll
    for (int i = 0; i < AHEAD - 1; i++) copy_runs(p, from, i * RUNS, n, d, s);
    for (int first = 0; first < n; first += RUNS) {
        copy_runs(p, from, first + (AHEAD - 1) * RUNS, n, d, s);
        most = factors(p, from, first, n, most, s);
        qrn_copies_wait<AHEAD - 1>();
        __syncthreads();
        const float *mine = &s.o[first / RUNS % AHEAD][0][threadIdx.x % DIMS];
        const int count = min(n - first, (int)RUNS);
#pragma unroll 8
        for (int i = 0; i < count; i++) {
            /* Of an empty run: -0 + 1 x, which is x, zeros with their signs too. */
            const float a = s.a[i], b = s.b[i], x = a < 0.0f ? -0.0f : mine[i * DIMS];
            l = fmaf(s.l[i], b, l * fabsf(a));
            o = fmaf(x, b, o * fabsf(a));
        }
        __syncthreads();
    }
    if (threadIdx.x >= DIMS || d + (int)threadIdx.x >= p.d_v) return;
    qrn_attention_out(p, t, row)[d + threadIdx.x] = t.bad       ? __uint_as_float(0x7fc00000u)
                                                    : l == 0.0f ? 0.0f
                                                                : o / l;
}
