/* SPDX-License-Identifier: MIT
 * What comes before products of many rows: rounding x, and sorting slots by expert.  Small beside the
 * products; rounding is bound by memory, a warp a block of 128. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/matmul_prepare_cuda.h"

/* Block `block` of a row of x as codes, one float and eight sums. */
QRN_DEVICE_FUNCTION(qrn_matmul_round_x, 256, 1, qrn_matmul_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32), n_blocks = p.acts_at.n_blocks;
    const int lane = qrn_lane();
    __shared__ qrn_q8_act rounded[8];
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); i < p.n_x * n_blocks; i += step) {
        const int64_t row = i / n_blocks, block = i - row * n_blocks;
        const char *x = qrn_x_row(p, row);
        const qrn_q8_act *from = (const qrn_q8_act *)x + block;
        if (p.x_dtype != QRN_Q8_ACT) {
            float v[4];
            qrn_load4((const float *)x, block * QRN_PIECE + 4 * lane, p.w.k, v);
            __syncwarp();
            qrn_store_q8_act(&rounded[qrn_warp()], v);
            __syncwarp();
            from = &rounded[qrn_warp()];
        }
        ((uint32_t *)p.acts_at.q)[i * 32 + lane] = ((const uint32_t *)from->q)[lane];
        if (lane < 4) ((uint32_t *)p.acts_at.sums)[i * 4 + lane] = ((const uint32_t *)from->sum)[lane];
        if (lane == 0) ((float *)p.acts_at.d)[i] = from->d;
    }
}

/* --- slots by expert, ascending within each: no atomics, the same list always --- */

enum { STEP = 128 /* slots that a warp looks at, four a lane */ };

/* The experts of slots i .. i + 3; -1 past the end, n_matrices for an id that is none. */
static __device__ __forceinline__ void experts_of(const qrn_matmul_params &p, int64_t i, int32_t (&e)[4])
{
    const int32_t *ids = (const int32_t *)p.ids;
    if (p.ids_stride == p.top_k && i + 4 <= p.n_slots && (p.ids & 15) == 0) {
        const int4 v = *(const int4 *)(ids + i);
        e[0] = v.x, e[1] = v.y, e[2] = v.z, e[3] = v.w;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t at = (uint32_t)(i + j), token = at / (uint32_t)p.top_k;
            e[j] = i + j < p.n_slots ? ids[token * p.ids_stride + (at - token * (uint32_t)p.top_k)] : 0;
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (e[j] < 0 || e[j] > p.n_matrices) e[j] = (int32_t)p.n_matrices;
        if (i + j >= p.n_slots) e[j] = -1;
    }
}

/* The sum over a warp's lanes, in all of them. */
static __device__ __forceinline__ int32_t sum_of_warp(int32_t x)
{
#pragma unroll
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(QRN_ALL_OF_WARP, x, step);
    return x;
}

/* A block an expert, a warp a run of slots: how many are of experts before, where the list begins, and of
 * this one; then those are listed. */
QRN_DEVICE_FUNCTION(qrn_matmul_list_slots, QRN_SORT_THREADS, 1, qrn_matmul_params)
{
    __shared__ int32_t before[QRN_SORT_WARPS], equal[QRN_SORT_WARPS];
    const int32_t e = (int32_t)blockIdx.x;
    const int lane = qrn_lane(), warp = qrn_warp();
    const int64_t run = (p.n_slots + QRN_SORT_WARPS * STEP - 1) / (QRN_SORT_WARPS * STEP) * STEP, begin = warp * run;
    const int64_t end = min(begin + run, p.n_slots);
    int32_t n_before = 0, n_equal = 0;
#pragma unroll 4
    for (int64_t i = begin + 4 * lane; i < end; i += STEP) {
        int32_t of[4];
        experts_of(p, i, of);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            n_before += of[j] >= 0 && of[j] < e;
            n_equal += of[j] == e;
        }
    }
    n_before = sum_of_warp(n_before);
    n_equal = sum_of_warp(n_equal);
    if (lane == 0) before[warp] = n_before, equal[warp] = n_equal;
    __syncthreads();
    int32_t first = 0, at = 0, n = 0;
#pragma unroll
    for (int i = 0; i < QRN_SORT_WARPS; i++) {
        first += before[i];
        at += i < warp ? equal[i] : 0;
        n += equal[i];
    }
    if (threadIdx.x == 0) {
        ((int32_t *)p.first)[e] = first;
        if (e == p.n_matrices) ((int32_t *)p.first)[e + 1] = first + n;
    }
    if (n_equal == 0) return;
    int32_t *out = (int32_t *)p.slots + first + at;
    for (int64_t i0 = begin; i0 < end; i0 += STEP) {
        const int64_t i = i0 + 4 * lane;
        int32_t of[4];
        experts_of(p, i, of);
        int32_t n_below = 0, n_all = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t mine = __ballot_sync(QRN_ALL_OF_WARP, of[j] == e);
            n_below += __popc(mine & ((1u << lane) - 1));
            n_all += __popc(mine);
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (of[j] == e) out[n_below++] = (int32_t)(i + j);
        out += n_all;
    }
}

/* The sum of x over this thread and those before it; *total: over all. */
static __device__ __forceinline__ int32_t sum_so_far(int32_t x, int32_t *shared, int32_t *total)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int32_t before = __shfl_up_sync(QRN_ALL_OF_WARP, x, step);
        if (qrn_lane() >= step) x += before;
    }
    __syncthreads();
    if (qrn_lane() == 31) shared[qrn_warp()] = x;
    __syncthreads();
    *total = 0;
#pragma unroll
    for (int i = 0; i < QRN_SORT_WARPS; i++) {
        if (i < qrn_warp()) x += shared[i];
        *total += shared[i];
    }
    return x;
}

/* One block, a thread an expert: its tiles of rows. */
QRN_DEVICE_FUNCTION(qrn_matmul_cut_slots, QRN_SORT_THREADS, 1, qrn_matmul_params)
{
    __shared__ int32_t shared[QRN_SORT_WARPS];
    const int32_t *first = (const int32_t *)p.first;
    int32_t *tiles = (int32_t *)p.tiles, n_tiles = 0;
    for (int64_t begin = 0; begin <= p.n_matrices; begin += QRN_SORT_THREADS) {
        const int64_t e = begin + threadIdx.x;
        const int32_t at = e <= p.n_matrices ? first[e] : 0, n = e <= p.n_matrices ? first[e + 1] - at : 0;
        const int32_t n_own = (n + p.tile_rows - 1) / p.tile_rows;
        int32_t total;
        const int32_t mine = n_tiles + sum_so_far(n_own, shared, &total) - n_own;
        for (int32_t i = 0; i < n_own; i++) {
            tiles[2 * (mine + i)] = (int32_t)e;
            tiles[2 * (mine + i) + 1] = at + i * p.tile_rows;
        }
        n_tiles += total;
    }
    for (int64_t i = n_tiles + threadIdx.x; i < p.n_tiles; i += QRN_SORT_THREADS) tiles[2 * i] = tiles[2 * i + 1] = -1;
}

/* An expert's tiles, as even as they can be: those of more than three quarters of tile_rows are class 3, of more than a half 2 .. */
struct even_tiles {
    enum { CLASSES = 4 };
    int32_t first, n, n_tiles, each, of;

    __device__ __forceinline__ even_tiles(const qrn_matmul_params &p, int64_t e)
    {
        first = ((const int32_t *)p.first)[e];
        n = ((const int32_t *)p.first)[e + 1] - first;
        n_tiles = (n + p.tile_rows - 1) / p.tile_rows;
        each = n ? ((n + n_tiles - 1) / n_tiles + 7) / 8 * 8 : 8;
        of = (min(each, n) - 1) * CLASSES / p.tile_rows;
    }
};

/* Even tiles, the largest class first; by one block, of whose threads each has some experts that follow each other. */
QRN_DEVICE_FUNCTION(qrn_matmul_cut_slots_evenly, QRN_SORT_THREADS, 1, qrn_matmul_params)
{
    enum { CLASSES = even_tiles::CLASSES };
    __shared__ int32_t shared[QRN_SORT_WARPS];
    const int64_t n_experts = p.n_matrices + 1, n_own = (n_experts + QRN_SORT_THREADS - 1) / QRN_SORT_THREADS,
                  begin = threadIdx.x * n_own, end = min(begin + n_own, n_experts);
    int4 *const tiles = (int4 *)p.tiles;
    int32_t count[CLASSES] = {}, at[CLASSES], n_tiles = 0;
    for (int64_t e = begin; e < end; e++) {
        const even_tiles t(p, e);
#pragma unroll
        for (int i = 0; i < CLASSES; i++) count[i] += t.of == i ? t.n_tiles : 0;
    }
#pragma unroll
    for (int i = CLASSES - 1; i >= 0; i--) {
        int32_t total;
        at[i] = n_tiles + sum_so_far(count[i], shared, &total) - count[i];
        n_tiles += total;
    }
    for (int64_t e = begin; e < end; e++) {
        const even_tiles t(p, e);
#pragma unroll
        for (int i = 0; i < CLASSES; i++) {
            if (t.of != i) continue;
            for (int32_t j = 0; j < t.n_tiles; j++)
                tiles[at[i] + j] = make_int4((int32_t)e, t.first + j * t.each, min(t.each, t.n - j * t.each), 0);
            at[i] += t.n_tiles;
        }
    }
    for (int64_t i = n_tiles + threadIdx.x; i < p.n_tiles; i += QRN_SORT_THREADS) tiles[i] = make_int4(0, 0, 0, 0);
}
