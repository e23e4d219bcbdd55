/* SPDX-License-Identifier: MIT
 * Products of bf16 weights in rows with many rows of bf16 x on Hopper, each row with the bits it has alone.
 *
 * An output is acc += e over the 128 k in ascending order, where e is what 8 wgmma of 16 k make from 0, which are the bits of
 * 8 mma of the same 16 k each (matmul_bf16.cu; found by comparing millions of results).
 *
 * Bound by the tensor cores, or by the power they take.  A tile is 256 rows of weights by 128 of x, or 128 by 128 where the
 * whole is so small.  One thread copies both by maps into a ring of stages of 64 k.  Two teams of four warps multiply 128
 * rows of weights each, 64 at a time: e of 64 x 128 takes the tensor cores 512 cycles, in which the other team's sums, a
 * quarter of that, are added. */
#include "backends/cuda/device/matmul_exact.cuh"

template <int BLOCKS> struct exact_ring {
    enum { STAGES = qrn_exact_stages(BLOCKS), BYTES = qrn_exact_stage_bytes(BLOCKS), X_BYTES = QRN_EXACT_X * QRN_LINE };

    char *stages;
    qrn_barrier *full, *empty;

    __device__ __forceinline__ char *x(int stage) const { return stages + stage * BYTES; }
    __device__ __forceinline__ char *weights(int stage) const { return x(stage) + X_BYTES; }
};

/* --- one thread copies --- */

template <int BLOCKS>
static __device__ __forceinline__ void copies(const qrn_matmul_exact_params &p, const exact_ring<BLOCKS> &s)
{
    qrn_ring<exact_ring<BLOCKS>::STAGES> ring;
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_exact_work work = qrn_exact_work_at(p, qrn_exact_weights(BLOCKS), i);
        const int row = (int)work.tile.first;
#pragma unroll 1
        for (int k = 0; k < 2 * work.n_panels; k++, ring.next()) {
            qrn_barrier *full = &s.full[ring.stage];
            qrn_barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            qrn_barrier_arrive_expecting(full, exact_ring<BLOCKS>::BYTES);
            qrn_tensor_copy(s.weights(ring.stage), &p.w, k * QRN_EXACT_BOX_K, work.weights, (int)work.tile.matrix, full);
            qrn_tensor_copy(s.x(ring.stage), &p.x, k * QRN_EXACT_BOX_K, row, 0, full);
        }
    }
}

/* --- two teams of four warps multiply --- */

/* e = 64 rows of weights by the tile's x (adds: e += that), of a stage: begun. */
static __device__ __forceinline__ void multiply_stage(float (&e)[QRN_EXACT_X / 2], const char *w, const char *x, bool adds)
{
    const uint64_t a = qrn_tile_by_k(w), b = qrn_tile_by_k(x);
#pragma unroll
    for (int i = 0; i < QRN_LINE; i += 32)
        qrn_wgmma_bf16<QRN_EXACT_X, QRN_BY_K, QRN_BY_K>(e, qrn_tile_moved(a, i), qrn_tile_moved(b, i), adds || i > 0);
}

/* acc: sums of a team's rows of weights, of n_panels. */
template <int BLOCKS>
static __device__ __forceinline__ void sum_up(const exact_ring<BLOCKS> &s, int n_panels,
                                              qrn_ring<exact_ring<BLOCKS>::STAGES> &ring,
                                              float (&acc)[BLOCKS][QRN_EXACT_X / 2])
{
    const int first_row = qrn_warp() / 4 * 64 * BLOCKS;
#pragma unroll
    for (int j = 0; j < BLOCKS * QRN_EXACT_X / 2; j++) acc[j / (QRN_EXACT_X / 2)][j % (QRN_EXACT_X / 2)] = 0.0f;
#pragma unroll 1
    for (int panel = 0; panel < n_panels; panel++) {
        const int at = ring.stage, parity = ring.parity;
        ring.next();
        float e[QRN_EXACT_X / 2];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            const int rows = (first_row + 64 * i) * QRN_LINE;
            if (i == 0) qrn_barrier_wait(&s.full[at], parity);
            qrn_wgmma_fence();
            multiply_stage(e, s.weights(at) + rows, s.x(at), false);
            if (i == 0) qrn_barrier_wait(&s.full[ring.stage], ring.parity);
            multiply_stage(e, s.weights(ring.stage) + rows, s.x(ring.stage), true);
            qrn_wgmma_commit();
            qrn_wgmma_wait<0>();
            qrn_wgmma_hold(e);
#pragma unroll
            for (int j = 0; j < QRN_EXACT_X / 2; j++) acc[i][j] += e[j];
        }
        if (qrn_lane() < QRN_WARP_ARRIVALS) {
            qrn_barrier_arrive(&s.empty[at]);
            qrn_barrier_arrive(&s.empty[ring.stage]);
        }
        ring.next();
    }
}

template <int BLOCKS>
static __device__ __forceinline__ void multiplies(const qrn_matmul_exact_params &p, const exact_ring<BLOCKS> &s,
                                                  uint64_t *out_rows)
{
    const int lane = qrn_lane(),
              first = qrn_warp() / 4 * 64 * BLOCKS + qrn_warp() % 4 * 16 + lane / 4;
    const uint64_t *own_rows = out_rows + lane % 4 * 2;
    qrn_ring<exact_ring<BLOCKS>::STAGES> ring;
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_exact_work work = qrn_exact_work_at(p, qrn_exact_weights(BLOCKS), i);
        if (work.tile.n_rows == 0) continue;
        float acc[BLOCKS][QRN_EXACT_X / 2];
        qrn_exact_find_rows(p, work, out_rows);
        if (work.n_panels) sum_up<BLOCKS>(s, work.n_panels, ring, acc);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const int64_t n = work.weights + first + 64 * b;
            if (work.n_panels) qrn_store_out_rows<QRN_EXACT_X>(acc[b], n, p.job.w.n, own_rows);
            else qrn_store_nan_rows<QRN_EXACT_X>(n, p.job.w.n, own_rows);
        }
    }
}

template <int BLOCKS> static __device__ __forceinline__ void matmul_exact(const qrn_matmul_exact_params &p)
{
    enum { STAGES = exact_ring<BLOCKS>::STAGES, MULTIPLIERS = QRN_EXACT_MULTIPLIERS / 32 };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[STAGES], empty[STAGES];
    __shared__ uint64_t out_rows[QRN_EXACT_X];
    const exact_ring<BLOCKS> s = {(char *)qrn_align_shared(memory, QRN_ATOM), full, empty};
    qrn_exact_make_ring(full, empty, STAGES);
    /* Registers of 384 threads: 64512. */
    if (qrn_warp() >= MULTIPLIERS) {
        qrn_registers_fewer<24>();
        if (threadIdx.x == QRN_EXACT_MULTIPLIERS) copies<BLOCKS>(p, s);
    } else {
        qrn_registers_more<240>();
        multiplies<BLOCKS>(p, s, out_rows);
    }
}

#define MATMUL_EXACT(BLOCKS)                                                                             \
    QRN_DEVICE_FUNCTION(qrn_matmul_exact##BLOCKS##_BF16, QRN_EXACT_THREADS, 1, qrn_matmul_exact_params) \
    {                                                                                                    \
        matmul_exact<BLOCKS>(p);                                                                         \
    }
MATMUL_EXACT(1)
MATMUL_EXACT(2)
