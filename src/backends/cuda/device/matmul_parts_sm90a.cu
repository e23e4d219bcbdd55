/* SPDX-License-Identifier: MIT
 * Products of few long rows of bf16 weights with up to 64 rows of x, bf16, on Hopper: k is cut in parts.
 *
 * Bound by reading weights once, and by the second cache, from which a multiprocessor reads x too: a tile of 128 rows
 * of weights has half as many bytes of x.  Few rows of weights are so few tiles that each has several blocks, one for
 * each part of k; what comes after adds their sums up in the order of k, which is another than that of
 * matmul_several_sm90a.cu.
 *
 * One thread copies stages of 64 k by maps; where weights stay, a ring of them while the launch before runs.  Two
 * groups of four warps multiply 64 rows of weights each, all rows of x.  The next launch's blocks come when these end, as in
 * matmul_several_sm90a.cu, or, where they are small (a norm that adds the sums up), in this one's turn. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/once.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_parts_cuda.h"

enum {
    STAGES = QRN_PARTS_STAGES,
    W_BYTES = QRN_PARTS_WEIGHTS * QRN_PARTS_K * 2,
    GROUP_BYTES = W_BYTES / 2, /* of a group's rows */
    N_SUMS = QRN_PARTS_X / 2   /* of a thread */
};

struct parts_shared {
    char *ring; /* of a stage: weights, then x */
    qrn_barrier *full, *empty;
};

/* A block's tile, and its stages of k. */
struct part_of_tile {
    int first_row, part, begin, n_steps;

    __device__ __forceinline__ part_of_tile(const qrn_matmul_parts_params &p)
    {
        const int tile = (int)blockIdx.x / p.n_parts;
        part = (int)blockIdx.x - tile * p.n_parts;
        first_row = tile * QRN_PARTS_WEIGHTS;
        begin = p.n_steps * part / p.n_parts;
        n_steps = p.n_steps * (part + 1) / p.n_parts - begin;
    }
};

/* --- one thread copies --- */

static __device__ __forceinline__ void copies(const qrn_matmul_parts_params &p, const parts_shared &s,
                                              const part_of_tile &t)
{
    const uint64_t hint = qrn_read_once();
    const int n_early = min(p.n_early, t.n_steps);
    qrn_ring<STAGES> ring;
    const auto copy_weights = [&](int stage, int step) {
        qrn_barrier_arrive_expecting(&s.full[stage], QRN_PARTS_STAGE);
        qrn_tensor_copy_hinted(s.ring + stage * QRN_PARTS_STAGE, &p.w, (t.begin + step) * QRN_PARTS_K, t.first_row, 0,
                               &s.full[stage], hint);
    };
    for (int i = 0; i < n_early; i++) copy_weights(i, i);
    for (int i = n_early; i < min((int)STAGES, t.n_steps); i++)
        qrn_tensor_prefetch(&p.w, (t.begin + i) * QRN_PARTS_K, t.first_row, 0);
    qrn_grid_waits_letting(p.lets_next);
    for (int i = 0; i < t.n_steps; i++, ring.next()) {
        if (i >= n_early) {
            qrn_barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            copy_weights(ring.stage, i);
        }
        qrn_tensor_copy(s.ring + ring.stage * QRN_PARTS_STAGE + W_BYTES, &p.x, (t.begin + i) * QRN_PARTS_K, 0, 0,
                        &s.full[ring.stage]);
    }
}

/* --- two groups of four warps multiply --- */

static __device__ __forceinline__ void sum_up(const parts_shared &s, int n_steps, int group, float (&c)[N_SUMS])
{
    qrn_ring<STAGES> ring;
    int before = 0;
#pragma unroll
    for (int j = 0; j < N_SUMS; j++) c[j] = 0.0f;
    qrn_wgmma_hold(c);
#pragma unroll 1
    for (int step = 0; step < n_steps; step++, ring.next()) {
        const char *stage = s.ring + ring.stage * QRN_PARTS_STAGE;
        const uint64_t w = qrn_tile_by_k(stage + group * GROUP_BYTES), x = qrn_tile_by_k(stage + W_BYTES);
        qrn_barrier_wait(&s.full[ring.stage], ring.parity);
        qrn_wgmma_bf16_line<QRN_PARTS_X>(c, w, x);
        qrn_wgmma_wait<1>();
        if (step > 0 && qrn_lane() == 0) qrn_barrier_arrive(&s.empty[before]);
        before = ring.stage;
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(c);
}

/* Eight lanes store 32 bytes that lie together. */
static __device__ __forceinline__ void store(const qrn_matmul_parts_params &p, const part_of_tile &t,
                                             const float (&c)[N_SUMS])
{
    const int n_rows = (int)p.job.most_rows, n_weights = (int)p.job.w.n;
    const int n = t.first_row + qrn_warp() * 16 + qrn_lane() / 4, r = 2 * (qrn_lane() % 4);
    float *to = (float *)(uintptr_t)p.sums + t.part * p.apart + n;
#pragma unroll
    for (int j = 0; j < N_SUMS; j++) {
        const int row = r + j / 4 * 8 + j % 2, down = j % 4 / 2 * 8;
        if (row < n_rows && n + down < n_weights) to[(int64_t)row * n_weights + down] = c[j];
    }
}

QRN_DEVICE_FUNCTION_ITSELF(qrn_matmul_parts_bf16, QRN_PARTS_THREADS, 1, qrn_matmul_parts_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[STAGES], empty[STAGES];
    const parts_shared s = {(char *)qrn_align_shared(memory, QRN_ATOM), full, empty};
    const part_of_tile t(p);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            qrn_barrier_init(&full[i], 1);
            qrn_barrier_init(&empty[i], QRN_PARTS_WARPS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (qrn_warp() == QRN_PARTS_WARPS) {
        if (qrn_lane() == 0) copies(p, s, t);
        return;
    }
    float c[N_SUMS];
    qrn_grid_waits_letting(p.lets_next);
    sum_up(s, t.n_steps, qrn_warp() / 4, c);
    store(p, t, c);
}

/* A thread adds up an output. */
QRN_DEVICE_FUNCTION(qrn_matmul_parts_add, 256, 4, qrn_matmul_parts_params)
{
    const int64_t n = (int64_t)blockIdx.x * 256 + threadIdx.x, r = blockIdx.y;
    if (n >= p.job.w.n) return;
    const float *from = (const float *)(uintptr_t)p.sums + r * p.job.w.n + n;
    float sum = from[0];
#pragma unroll 4
    for (int i = 1; i < p.n_parts; i++) sum += from[i * p.apart];
    qrn_out_row(p.job, r)[n] = sum;
}
