/* SPDX-License-Identifier: MIT
 * Products of many rows on Hopper's tensor cores: weights in rows of bf16, or packed ones that are
 * decoded to bf16 on the way, times x rounded to bf16 (matmul_x_bf16.cu), sums in float32.
 *
 * Bound by the tensor cores.  A block takes tiles of 128 rows of weights by 256 of x, one after the other,
 * until none is left; by 128 where the whole is so small, and by expert, where few rows meet a matrix.  In
 * the last round, where few are left, it takes halves of x, or parts of k, whose sums another launch adds up in
 * their order.  Four warps bring weights and x: one thread copies x and weights in rows by tensor
 * maps, each warp the panels of 32 rows, which it decodes, a row a lane.  Eight warps multiply, four
 * of them 64 rows of weights, all of the tile's x: weights are the rows of wgmma's result, so that eight
 * lanes store 32 bytes of a row of out that lie together.  They meet at barriers of a ring of stages of
 * 64 k.
 *
 * A stage of 128 x 256 x 64 takes the tensor cores 1024 cycles, in which the multiprocessor issues 4096
 * instructions of warps, 16 for each of its 8192 weights.  Decoding takes about five: a byte is put into a
 * float's mantissa (prmt), made a whole number (add), scaled (fma), and two are rounded at once (half),
 * besides masks and shifts of codes; exact up to the one rounding to bf16.  That leaves the decoders room
 * even with 128 rows of x, and float scales as they are, where bf16 arithmetic would round them first.
 *
 * An output is summed over k in ascending order, 16 at a time, whatever the tile: the same bits for any
 * number of rows that come here, but for tiles in parts, which there are where any order is allowed. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_WGMMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_WGMMA_CUH

#include "backends/cuda/device/matmul_decode.cuh"
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/matmul_out_rows.cuh"
#include "backends/cuda/device/matmul_silu.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_wgmma_cuda.h"

enum { QRN_DECODERS = 4, QRN_MULTIPLIERS = 8 }; /* warps */

/* What a block has in shared memory: stages and panels dynamic, the rest static. */
struct qrn_wgmma_shared {
    char *stages, *panels;
    qrn_barrier *full, *empty;
    qrn_barrier *panel_full; /* of each decoding warp */
    uint64_t *out_rows; /* where rows of the tile go; 0: nowhere */
};

/* A tile of weights and one of x, of 256 perhaps a half; steps 0: nothing is multiplied. */
struct qrn_wgmma_work {
    qrn_tile tile;
    bool is_half;
    int weights; /* first row */
    int begin, steps; /* of k: the first, how many */
    int part; /* number of the part among all; below 0: it is whole */
};

/* Divisions are by 32 bits where they can be: a short product has thousands of tiles. */
static __device__ __forceinline__ qrn_wgmma_work qrn_wgmma_work_at(const qrn_matmul_wgmma_params &p, int i)
{
    const int n_cuts = p.n_parts ? p.n_parts : 2, after = i - p.n_whole, cut = after < 0 ? 0 : after % n_cuts;
    if (after >= 0) i = p.n_whole + after / n_cuts;
    const int per_band = p.band * p.n_weight_tiles, band = i / per_band, rest = i - band * per_band;
    const int n_here = min(p.band, (int)p.job.n_tiles - band * p.band), at = rest / n_here;
    const int i_tile = band * p.band + rest - at * n_here;
    qrn_wgmma_work w;
    if (!p.job.ids && p.job.n_matrices == 1) {
        w.tile.matrix = 0;
        w.tile.first = (int64_t)i_tile * p.job.tile_rows;
        w.tile.n_rows = (int)min(p.job.most_rows - w.tile.first, (int64_t)p.job.tile_rows);
    } else {
        w.tile = qrn_tile_at(p.job, i_tile);
    }
    w.is_half = after >= 0 && p.n_parts == 0;
    if (w.is_half) {
        w.tile.first += 128 * cut;
        w.tile.n_rows = min(max(w.tile.n_rows - 128 * cut, 0), 128);
    }
    w.weights = at * QRN_WGMMA_WEIGHTS;
    w.begin = 0;
    w.steps = w.tile.n_rows && w.tile.matrix < p.job.n_matrices
                  ? (int)((p.job.w.k + QRN_WGMMA_K - 1) / QRN_WGMMA_K)
                  : 0;
    w.part = -1;
    if (after >= 0 && p.n_parts) {
        const int n_panels = (w.steps + 1) / 2, end = 2 * (n_panels * (cut + 1) / p.n_parts);
        w.begin = 2 * (n_panels * cut / p.n_parts);
        w.steps = min(w.steps, end) - w.begin;
        w.part = after;
    }
    return w;
}

/* Where row r of a tile goes. */
static __device__ __forceinline__ uint64_t qrn_wgmma_out_row(const qrn_matmul_wgmma_params &p,
                                                             const qrn_tile &t, int r)
{
    const int64_t i = p.job.ids                ? ((const int32_t *)p.job.slots)[t.first + r]
                      : p.job.n_matrices == 1 ? t.first + r
                                              : qrn_row_of_tile(p.job, t, r).i_out;
    return p.out_stride ? p.job.out.data + i * p.out_stride : (uint64_t)(uintptr_t)qrn_out_row(p.job, i);
}

/* --- four warps copy and decode --- */

/* One thread: x of a stage, and weights in rows, for silu of gates and ups in turn. */
template <int dtype, int n_tokens, bool silu>
static __device__ __forceinline__ void qrn_wgmma_copy_stage(const qrn_matmul_wgmma_params &p,
                                                            const qrn_wgmma_work &work, int step, char *stage,
                                                            qrn_barrier *full)
{
    constexpr bool packed = qrn_form_of(dtype).bits != 0;
    constexpr int x_bytes = n_tokens * QRN_WGMMA_K * 2;
    const int64_t x_row = work.tile.first + (p.job.ids ? 0 : work.tile.matrix * p.job.most_rows);
    qrn_barrier_arrive_expecting(full, packed ? x_bytes : qrn_wgmma_stage_bytes(n_tokens));
    qrn_tensor_copy(stage, &p.x, step * QRN_WGMMA_K, (int)x_row, 0, full);
    if (packed) return;
    if (silu)
        qrn_tensor_copy4(stage + x_bytes, &p.w, step * QRN_WGMMA_K, 0, 0, work.weights / 16, full);
    else
        qrn_tensor_copy(stage + x_bytes, &p.w, step * QRN_WGMMA_K, work.weights, (int)work.tile.matrix,
                        full);
}

/* One thread for all of a block. */
template <int dtype, int n_tokens, bool silu>
static __device__ __forceinline__ void qrn_wgmma_copy(const qrn_matmul_wgmma_params &p,
                                                      const qrn_wgmma_shared &s)
{
    qrn_ring<qrn_wgmma_stages(dtype, n_tokens)> ring;
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_wgmma_work work = qrn_wgmma_work_at(p, i);
        for (int step = 0; step < work.steps; step++, ring.next()) {
            qrn_barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            qrn_wgmma_copy_stage<dtype, n_tokens, silu>(p, work, work.begin + step,
                                                        s.stages + ring.stage * qrn_wgmma_stage_bytes(n_tokens),
                                                        &s.full[ring.stage]);
        }
    }
}

/* The panels of a warp's group of 32 rows, tile after tile, copied ahead of those that it decodes.  Past
 * the last group of a matrix: that again, nobody asks for the results. */
struct qrn_wgmma_panels {
    int i; /* work */
    const uint8_t *next;
    int left;

    __device__ __forceinline__ void find(const qrn_matmul_wgmma_params &p)
    {
        for (; i < p.n_work; i += gridDim.x) {
            const qrn_wgmma_work work = qrn_wgmma_work_at(p, i);
            left = (work.steps + 1) / 2;
            if (left == 0) continue;
            const int group = min(work.weights / QRN_PANEL_ROWS + qrn_warp(),
                                  (int)((p.job.w.n - 1) / QRN_PANEL_ROWS));
            next = qrn_panel_at(p.job.w, work.tile.matrix, group, work.begin / 2);
            return;
        }
        left = 0;
    }

    /* One lane. */
    __device__ __forceinline__ void copy(const qrn_matmul_wgmma_params &p, char *to, qrn_barrier *full)
    {
        if (left == 0) return;
        qrn_barrier_arrive_expecting(full, (int)p.job.w.panel_bytes);
        qrn_bulk_copy(to, next, (int)p.job.w.panel_bytes, full);
        next += p.job.w.panel_bytes;
        if (--left) return;
        i += gridDim.x;
        find(p);
    }
};

/* Each of four warps; the first one's first lane copies x as well. */
template <int dtype, int n_tokens>
static __device__ __forceinline__ void qrn_wgmma_decode(const qrn_matmul_wgmma_params &p,
                                                        const qrn_wgmma_shared &s)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    const int warp = qrn_warp(), lane = qrn_lane(), panel_bytes = (int)p.job.w.panel_bytes;
    char *own = s.panels + warp * QRN_WGMMA_RAW_STAGES * panel_bytes;
    qrn_barrier *full = s.panel_full + warp * QRN_WGMMA_RAW_STAGES;
    qrn_ring<qrn_wgmma_stages(dtype, n_tokens)> ring;
    qrn_ring<QRN_WGMMA_RAW_STAGES> panels;
    qrn_wgmma_panels ahead = {(int)blockIdx.x, nullptr, 0};
    if (lane == 0) {
        ahead.find(p);
        for (int i = 0; i < QRN_WGMMA_RAW_STAGES; i++) ahead.copy(p, own + i * panel_bytes, &full[i]);
    }
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_wgmma_work work = qrn_wgmma_work_at(p, i);
        for (int step = 0; step < work.steps; step++, ring.next()) {
            char *stage = s.stages + ring.stage * qrn_wgmma_stage_bytes(n_tokens), *panel = own + panels.stage * panel_bytes;
            qrn_barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            if (threadIdx.x == 0)
                qrn_wgmma_copy_stage<dtype, n_tokens, false>(p, work, work.begin + step, stage, &s.full[ring.stage]);
            if (step % 2 == 0) qrn_barrier_wait(&full[panels.stage], panels.parity);
            __syncwarp();
            qrn_decode_half_panel(form, (const uint8_t *)panel, lane, step % 2,
                                  stage + n_tokens * QRN_WGMMA_K * 2, QRN_PANEL_ROWS * warp + lane);
            qrn_fence_async();
            __syncwarp();
            if (lane == 0) qrn_barrier_arrive(&s.full[ring.stage]);
            if (step % 2 == 0 && step + 1 < work.steps) continue;
            if (lane == 0) ahead.copy(p, panel, &full[panels.stage]);
            panels.next();
        }
    }
}

/* --- two groups of four warps multiply --- */

/* A part's sums of n_rows rows of x: threads side by side. */
template <int n_tokens>
static __device__ __forceinline__ void qrn_wgmma_store_part(const float (&c)[n_tokens / 2], int n_rows, float *to)
{
#pragma unroll
    for (int j = 0; j < n_tokens / 2; j++)
        if (j / 4 * 8 < n_rows) to[j * 32 * QRN_MULTIPLIERS] = c[j];
}

/* Results of the first n_columns rows of x of a tile; its stages are given back when they were read. */
template <int dtype, int n_tokens, int n_columns>
static __device__ __forceinline__ void qrn_wgmma_sum(const qrn_wgmma_shared &s, int steps, int half,
                                                     qrn_ring<qrn_wgmma_stages(dtype, n_tokens)> &ring,
                                                     float (&c)[n_columns / 2])
{
    int before = 0;
#pragma unroll
    for (int j = 0; j < n_columns / 2; j++) c[j] = 0.0f;
    for (int step = 0; step < steps; step++, ring.next()) {
        const char *stage = s.stages + ring.stage * qrn_wgmma_stage_bytes(n_tokens);
        const uint64_t x = qrn_tile_by_k(stage),
                       w = qrn_tile_by_k(stage + n_tokens * QRN_WGMMA_K * 2 + half * 64 * QRN_LINE);
        qrn_barrier_wait(&s.full[ring.stage], ring.parity);
        qrn_wgmma_bf16_line<n_columns>(c, w, x);
        qrn_wgmma_wait<1>();
        if (step > 0 && qrn_lane() == 0) qrn_barrier_arrive(&s.empty[before]);
        before = ring.stage;
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(c);
    if (qrn_lane() == 0) qrn_barrier_arrive(&s.empty[before]);
}

/* The first n_columns rows of x of a tile. */
template <int dtype, int n_tokens, int n_columns, bool silu>
static __device__ __forceinline__ void qrn_wgmma_multiply_tile(const qrn_matmul_wgmma_params &p, const qrn_wgmma_shared &s,
                                                               const qrn_wgmma_work &work, int thread,
                                                               qrn_ring<qrn_wgmma_stages(dtype, n_tokens)> &ring)
{
    const int64_t n = (int64_t)work.weights + thread / 32 * 16 + qrn_lane() / 4;
    float c[n_columns / 2];
    qrn_wgmma_sum<dtype, n_tokens, n_columns>(s, work.steps, thread / 128, ring, c);
    if (silu)
        qrn_store_silu<n_columns>(p.silu, c, work.weights / 2 + thread / 32 * 8, work.tile.first, work.tile.n_rows);
    else
        qrn_store_out_rows<n_columns>(c, n, p.job.w.n, s.out_rows + qrn_lane() % 4 * 2);
}

template <int dtype, int n_tokens, bool silu>
static __device__ __forceinline__ void qrn_wgmma_multiply(const qrn_matmul_wgmma_params &p,
                                                          const qrn_wgmma_shared &s, int thread)
{
    qrn_ring<qrn_wgmma_stages(dtype, n_tokens)> ring;
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_wgmma_work work = qrn_wgmma_work_at(p, i);
        if (work.tile.n_rows == 0) continue;
        if (work.part >= 0) {
            float c[n_tokens / 2];
            float *to = (float *)(uintptr_t)p.partials + (int64_t)work.part * (n_tokens / 2 * 32 * QRN_MULTIPLIERS);
            qrn_wgmma_sum<dtype, n_tokens, n_tokens>(s, work.steps, thread / 128, ring, c);
            qrn_wgmma_store_part<n_tokens>(c, work.tile.n_rows, to + thread);
            continue;
        }
        qrn_find_out_rows<n_tokens>(work.tile, 32 * QRN_MULTIPLIERS, thread, s.out_rows,
                                    [&](int r) { return qrn_wgmma_out_row(p, work.tile, r); });
        if (work.steps == 0) {
            qrn_store_nan_rows<n_tokens>((int64_t)work.weights + thread / 32 * 16 + qrn_lane() / 4, p.job.w.n,
                                         s.out_rows + qrn_lane() % 4 * 2);
        } else if (n_tokens == 256 && work.is_half) {
            qrn_wgmma_multiply_tile<dtype, n_tokens, 128, silu>(p, s, work, thread, ring);
        } else {
            qrn_wgmma_multiply_tile<dtype, n_tokens, n_tokens, silu>(p, s, work, thread, ring);
        }
    }
}

template <int dtype, int n_tokens, bool silu>
static __device__ __forceinline__ void qrn_matmul_wgmma(const qrn_matmul_wgmma_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    constexpr bool packed = qrn_form_of(dtype).bits != 0;
    constexpr int n_stages = qrn_wgmma_stages(dtype, n_tokens);
    __shared__ qrn_barrier full[n_stages], empty[n_stages],
        panel_full[QRN_DECODERS * QRN_WGMMA_RAW_STAGES];
    __shared__ uint64_t out_rows[n_tokens];
    qrn_wgmma_shared s;
    s.stages = (char *)qrn_align_shared(memory, QRN_ATOM);
    s.panels = s.stages + n_stages * qrn_wgmma_stage_bytes(n_tokens);
    s.full = full, s.empty = empty, s.panel_full = panel_full, s.out_rows = out_rows;
    if (threadIdx.x == 0) {
        for (int i = 0; i < n_stages; i++) {
            qrn_barrier_init(&full[i], packed ? 1 + QRN_DECODERS : 1);
            qrn_barrier_init(&empty[i], QRN_MULTIPLIERS);
        }
        for (int i = 0; i < QRN_DECODERS * QRN_WGMMA_RAW_STAGES; i++) qrn_barrier_init(&panel_full[i], 1);
        qrn_barriers_are_ready();
    }
    __syncthreads();
    /* Registers of 384 threads: 64512. */
    if (qrn_warp() < QRN_DECODERS) {
        qrn_registers_fewer<packed ? 104 : 40>();
        if constexpr (packed) qrn_wgmma_decode<dtype, n_tokens>(p, s);
        else if (threadIdx.x == 0) qrn_wgmma_copy<dtype, n_tokens, silu>(p, s);
    } else {
        qrn_registers_more<packed ? 200 : 232>();
        qrn_wgmma_multiply<dtype, n_tokens, silu>(p, s, (int)threadIdx.x - 32 * QRN_DECODERS);
    }
}

#define QRN_MATMUL_WGMMA_OF(name, NAME, n_tokens, silu)           \
    QRN_DEVICE_FUNCTION(name, 384, 1, qrn_matmul_wgmma_params)    \
    {                                                             \
        qrn_matmul_wgmma<QRN_##NAME, n_tokens, silu>(p);          \
    }
/* Both tiles of a type. */
#define QRN_MATMUL_WGMMA(NAME)                                               \
    QRN_MATMUL_WGMMA_OF(qrn_matmul_wgmma128_##NAME, NAME, 128, false)        \
    QRN_MATMUL_WGMMA_OF(qrn_matmul_wgmma256_##NAME, NAME, 256, false)

#endif
