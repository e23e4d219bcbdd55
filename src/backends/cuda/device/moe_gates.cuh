/* SPDX-License-Identifier: MIT
 * A joint: moe_route, the gates' and the ups' products of the experts that it chooses, and the shared expert's;
 * one token.
 *
 * A launch of matmul_stream.cuh over all of these matrices, which meet the same row of x.  Each block finds the
 * experts by itself: one warp of it, while others fetch x. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MOE_GATES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MOE_GATES_CUH

#include "backends/cuda/device/matmul_stream.cuh"
#include "backends/cuda/device/moe_route.cuh"
#include "backends/cuda/moe_joints_cuda.h"

struct qrn_moe_chosen {
    qrn_barrier known; /* past phase 0: ids are */
    int32_t ids[QRN_MOE_SLOTS];
    float weights[QRN_MOE_SLOTS];
};

struct qrn_moe_tiles {
    const qrn_moe_gates_params &p;
    qrn_moe_chosen &chosen;

    /* matrix: the tile itself. */
    __device__ __forceinline__ qrn_tile at(int i) const { return {i, i, 1}; }
    __device__ __forceinline__ const char *x_row(const qrn_tile &, int) const
    {
        return qrn_x_row(p.stream.job, 0);
    }
    /* The part that a tile belongs to, and which one it is there. */
    __device__ __forceinline__ const qrn_moe_part &part_of(const qrn_tile &tile, int &i) const
    {
        const int k = (int)p.route.k;
        i = (int)tile.first;
        if (i < k) return p.gate;
        if (i < 2 * k) return i -= k, p.up;
        return i -= 2 * k, p.shared;
    }
    /* The matrix of tile i of a part; those of the shared expert are its rows, one tile after the other. */
    __device__ __forceinline__ int matrix_of(const qrn_tile &tile, int i) const
    {
        return tile.first < 2 * p.route.k ? chosen.ids[i] : i;
    }
    __device__ __forceinline__ bool is_none(const qrn_tile &tile) const
    {
        int i;
        (void)part_of(tile, i);
        return tile.first < 2 * p.route.k && (uint64_t)matrix_of(tile, i) >= (uint64_t)p.stream.job.n_matrices;
    }
    __device__ __forceinline__ float *out_row(const qrn_tile &tile, int) const
    {
        int i;
        const qrn_moe_part &part = part_of(tile, i);
        return (float *)(uintptr_t)(part.out + (uint64_t)(i * part.out_row));
    }
    __device__ __forceinline__ const uint8_t *weights(const qrn_tile &tile) const
    {
        int i;
        const qrn_moe_part &part = part_of(tile, i);
        const int64_t matrix = is_none(tile) ? 0 : matrix_of(tile, i);
        return (const uint8_t *)(uintptr_t)part.packed + matrix * p.stream.job.w.matrix_bytes;
    }
    __device__ __forceinline__ bool has_own_x(int) const { return false; }

    __device__ __forceinline__ bool x_is_known() const { return true; }
    __device__ __forceinline__ bool out_is_known() const { return false; }

    __device__ __forceinline__ void copies_begin() const { qrn_barrier_wait(&chosen.known, 0); }
    __device__ __forceinline__ void adds_begin() const
    {
        const int lane = qrn_lane();
        moe_route_token<256>(p.route, 0, chosen.ids, chosen.weights);
        qrn_barrier_arrive_warp(&chosen.known);
        if (blockIdx.x || lane >= p.route.k) return;
        p.route.ids[lane] = chosen.ids[lane];
        p.route.weights[lane] = chosen.weights[lane];
    }
};

/* n_blocks: 2 leaves room for a block of the next launch. */
#define QRN_MOE_GATES(NAME, n_blocks)                                                                \
    QRN_DEVICE_FUNCTION_EARLY(qrn_moe_gates_##NAME, qrn_stream_threads(1), n_blocks, qrn_moe_gates_params) \
    {                                                                                               \
        __shared__ qrn_moe_chosen chosen;                                                           \
        if (threadIdx.x == 0) {                                                                     \
            qrn_barrier_init(&chosen.known, QRN_WARP_ARRIVALS);                                     \
            qrn_barriers_are_ready();                                                               \
        }                                                                                           \
        qrn_matmul_stream<QRN_##NAME, 1>(p.stream, qrn_moe_tiles{p, chosen});                       \
    }

#endif
