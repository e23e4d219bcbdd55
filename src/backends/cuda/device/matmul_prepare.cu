/* SPDX-License-Identifier: MIT
 * What comes before products of many rows: rounding x, and sorting slots by expert.  Small beside the
 * products; rounding is bound by memory, a warp a block of 128. */
#include "backends/cuda/device/matmul_job.cuh"

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

enum { SORT_THREADS = 256 };

/* The expert of slot i. */
static __device__ __forceinline__ int64_t matrix_of(const qrn_matmul_params &p, int64_t i)
{
    const int32_t id = ((const int32_t *)p.ids)[i / p.top_k * p.ids_stride + i % p.top_k];
    return id >= 0 && id < p.n_matrices ? id : p.n_matrices;
}

/* A warp takes an expert at a time and goes through all slots: 32 ids a step, in order, no
 * atomics, so that slots ascend within an expert. */
QRN_DEVICE_FUNCTION(qrn_matmul_count_slots, SORT_THREADS, 1, qrn_matmul_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    int32_t *counts = (int32_t *)p.first + 1;
    for (int64_t e = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); e <= p.n_matrices; e += step) {
        int32_t n = 0;
        for (int64_t i = 0; i < p.n_slots; i += 32) {
            const int64_t slot = i + qrn_lane();
            n += __popc(__ballot_sync(QRN_ALL_OF_WARP, slot < p.n_slots && matrix_of(p, slot) == e));
        }
        if (qrn_lane() == 0) counts[e] = n;
    }
}

/* The sum of x over this lane and those before it. */
static __device__ __forceinline__ int32_t sum_so_far(int32_t x)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int32_t before = __shfl_up_sync(QRN_ALL_OF_WARP, x, step);
        if (qrn_lane() >= step) x += before;
    }
    return x;
}

/* One warp: where each expert's slots begin, and its tiles of rows. */
QRN_DEVICE_FUNCTION(qrn_matmul_first_slots, 32, 1, qrn_matmul_params)
{
    int32_t *first = (int32_t *)p.first, *tiles = (int32_t *)p.tiles;
    int32_t n_slots = 0, n_tiles = 0;
    for (int64_t begin = 0; begin <= p.n_matrices; begin += 32) {
        const int64_t e = begin + qrn_lane();
        const int32_t n = e <= p.n_matrices ? first[e + 1] : 0, n_own = (n + p.tile_rows - 1) / p.tile_rows;
        const int32_t slots = n_slots + sum_so_far(n), at = n_tiles + sum_so_far(n_own);
        for (int32_t i = 0; i < n_own; i++) {
            tiles[2 * (at - n_own + i)] = (int32_t)e;
            tiles[2 * (at - n_own + i) + 1] = slots - n + i * p.tile_rows;
        }
        if (e <= p.n_matrices) first[e + 1] = slots;
        n_slots = __shfl_sync(QRN_ALL_OF_WARP, slots, 31);
        n_tiles = __shfl_sync(QRN_ALL_OF_WARP, at, 31);
    }
    if (qrn_lane() == 0) first[0] = 0;
    for (int64_t i = n_tiles + qrn_lane(); i < p.n_tiles; i += 32) tiles[2 * i] = tiles[2 * i + 1] = -1;
}

QRN_DEVICE_FUNCTION(qrn_matmul_list_slots, SORT_THREADS, 1, qrn_matmul_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    const int lane = qrn_lane();
    for (int64_t e = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); e <= p.n_matrices; e += step) {
        int32_t *out = (int32_t *)p.slots + ((const int32_t *)p.first)[e];
        for (int64_t i = 0; i < p.n_slots; i += 32) {
            const bool mine = i + lane < p.n_slots && matrix_of(p, i + lane) == e;
            const uint32_t all = __ballot_sync(QRN_ALL_OF_WARP, mine);
            if (mine) out[__popc(all & ((1u << lane) - 1))] = (int32_t)(i + lane);
            out += __popc(all);
        }
    }
}
