/* SPDX-License-Identifier: MIT
 * Products of many rows of bf16 weights with up to 64 rows of x, bf16, on Hopper, in any order; and silu_mul of gates and
 * ups, where they are what is made.
 *
 * Bound by reading weights once.  What is written meanwhile takes two to three times as long as its bytes would be read in, so
 * gates and ups that nobody wants are not.  Tiles are as many rows as leave a round of blocks full, and have all k: sums of
 * parts of tiles that blocks hand over cost more than some multiprocessors without a tile.
 *
 * One thread copies steps of 64 k by maps; where weights stay, a ring of them while the launch before runs.  One or two groups
 * of four warps multiply: rows of x are rows of wgmma's c, rows of weights its columns.  Without silu_mul the
 * next launch's blocks come in this one's turn, for what is small has room beside; with it they are a product's, whose rings have
 * none, and come when these end. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/once.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_whole_cuda.h"

template <int N, int N_GROUPS> struct whole_block {
    enum {
        ROWS = N_GROUPS * N,
        HALF_BYTES = N / 2 * QRN_LINE, /* of a group's rows, those of a half of the matrix */
        W_BYTES = ROWS * QRN_LINE,
        STEP = qrn_whole_step_bytes(ROWS), /* weights, then x */
        STEPS = qrn_whole_steps(ROWS),
        WARPS = 4 * N_GROUPS,
        N_FOURS = N / 8, /* sums of a thread, by fours */
        HALF = N_FOURS / 2
    };
    const qrn_matmul_whole_params &p;
    char *ring;
    qrn_barrier *full, *empty;

    /* --- one thread copies --- */

    __device__ __forceinline__ void copy_weights(int stage, int tile, int step) const
    {
        qrn_barrier_arrive_expecting(&full[stage], W_BYTES + p.x_rows * QRN_LINE);
#pragma unroll
        for (int i = 0; i < 2 * N_GROUPS; i++)
            qrn_tensor_copy_hinted(ring + stage * STEP + i * HALF_BYTES, &p.w, step * QRN_WHOLE_K,
                                   (tile * N_GROUPS + i / 2) * (N / 2) + i % 2 * (int)p.half, 0, &full[stage],
                                   qrn_read_once());
    }
    __device__ __forceinline__ void copies() const
    {
        const int first = (int)blockIdx.x, n_early = min(p.n_early, p.n_steps);
        qrn_ring<STEPS> at;
        for (int i = 0; i < n_early; i++) copy_weights(i, first, i);
        qrn_grid_waits_letting(p.lets_next);
        for (int tile = first; tile < p.n_tiles; tile += (int)gridDim.x)
            for (int step = 0; step < p.n_steps; step++, at.next()) {
                if (tile != first || step >= n_early) {
                    qrn_barrier_wait(&empty[at.stage], at.parity ^ 1);
                    copy_weights(at.stage, tile, step);
                }
                qrn_tensor_copy(ring + at.stage * STEP + W_BYTES, &p.x, step * QRN_WHOLE_K, 0, 0, &full[at.stage]);
            }
    }

    /* --- groups of four warps multiply --- */

    __device__ __forceinline__ void sum_up(int group, qrn_ring<STEPS> &at, float (&c)[N / 2]) const
    {
        int before = -1; /* the stage that is still multiplied */
#pragma unroll 1
        for (int step = 0; step < p.n_steps; step++, at.next()) {
            const char *stage = ring + at.stage * STEP;
            const uint64_t w = qrn_tile_by_k(stage + group * 2 * HALF_BYTES), x = qrn_tile_by_k(stage + W_BYTES);
            qrn_barrier_wait(&full[at.stage], at.parity);
            qrn_wgmma_bf16_line<N>(c, x, w);
            qrn_wgmma_wait<1>();
            if (before >= 0 && qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&empty[before]);
            before = at.stage;
        }
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(c);
        if (qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&empty[before]);
    }

    /* Two columns of a row, n and n + 1. */
    template <class T> __device__ __forceinline__ void store_two(T *row, int64_t n, int64_t end, T a, T b) const
    {
        struct alignas(2 * sizeof(T)) two {
            T a, b;
        };
        if (p.is_paired && n + 1 < end) {
            *(two *)(row + n) = {a, b};
        } else {
            if (n < end) row[n] = a;
            if (n + 1 < end) row[n + 1] = b;
        }
    }
    /* c[4 i + 0, 1] are columns 8 i + 2 (lane % 4) + 0, 1 of a half of the thread's first row, c[4 i + 2, 3] of the row 8 below. */
    __device__ __forceinline__ void store(int tile, int group, const float (&c)[N / 2]) const
    {
        const int64_t first = (tile * N_GROUPS + group) * (N / 2) + 2 * (qrn_lane() % 4);
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const int row = qrn_warp() % 4 * 16 + qrn_lane() / 4 + 8 * below;
            if (row >= p.job.most_rows) return;
            if (!p.drops_out) store_out(row, first, c, below);
            if (p.middle.data) store_middle(row, first, c, below);
        }
    }
    __device__ __forceinline__ void store_out(int row, int64_t first, const float (&c)[N / 2], int below) const
    {
        float *out = qrn_out_row(p.job, row);
#pragma unroll
        for (int i = 0; i < N_FOURS; i++)
            store_two(out + i / HALF * p.half, first + i % HALF * 8, i < HALF ? p.half : p.job.w.n - p.half,
                      c[4 * i + 2 * below], c[4 * i + 2 * below + 1]);
    }
    __device__ __forceinline__ void store_middle(int row, int64_t first, const float (&c)[N / 2], int below) const
    {
        char *to = qrn_row(p.middle, p.shape, row);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float x[2];
#pragma unroll
            for (int j = 0; j < 2; j++)
                x[j] = qrn_silu(c[4 * i + 2 * below + j]) * c[4 * (i + HALF) + 2 * below + j];
            if (p.middle_is_bf16)
                store_two((uint16_t *)to, first + 8 * i, p.half, qrn_bf16_of_float(x[0]), qrn_bf16_of_float(x[1]));
            else
                store_two((float *)to, first + 8 * i, p.half, x[0], x[1]);
        }
    }

    __device__ __forceinline__ void multiplies() const
    {
        const int group = qrn_warp() / 4;
        qrn_ring<STEPS> at;
        for (int tile = (int)blockIdx.x; tile < p.n_tiles; tile += (int)gridDim.x) {
            float c[N / 2];
#pragma unroll
            for (int j = 0; j < N / 2; j++) c[j] = 0.0f;
            qrn_wgmma_hold(c);
            sum_up(group, at, c);
            store(tile, group, c);
        }
    }
};

template <int N, int N_GROUPS> static __device__ __forceinline__ void matmul_whole(const qrn_matmul_whole_params &p)
{
    enum { STEPS = whole_block<N, N_GROUPS>::STEPS, WARPS = whole_block<N, N_GROUPS>::WARPS };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[STEPS], empty[STEPS];
    qrn_make_barriers<STEPS, WARPS>([&](int i) {
        qrn_barrier_init(&full[i], 1);
        qrn_barrier_init(&empty[i], WARPS * QRN_WARP_ARRIVALS);
    });
    __syncthreads();
    const whole_block<N, N_GROUPS> block = {p, (char *)qrn_align_shared(memory, QRN_ATOM), full, empty};
    if (qrn_warp() == WARPS) {
        if (qrn_elected()) block.copies();
    } else {
        qrn_grid_waits_letting(p.lets_next);
        block.multiplies();
    }
}

#define MATMUL_WHOLE(N, N_GROUPS)                                                                             \
    QRN_DEVICE_FUNCTION_ITSELF(qrn_matmul_whole##N##x##N_GROUPS, qrn_whole_threads(N_GROUPS), 1, qrn_matmul_whole_params) \
    {                                                                                                         \
        matmul_whole<N, N_GROUPS>(p);                                                                         \
    }
MATMUL_WHOLE(64, 1)
MATMUL_WHOLE(96, 1)
MATMUL_WHOLE(64, 2)
MATMUL_WHOLE(96, 2)
