/* SPDX-License-Identifier: MIT
 * Products of bf16 weights in rows with many rows of bf16 x on Hopper.
 *
 * Bound by the tensor cores, or by the power they take; up to 128 rows of x by reading weights.  One thread copies weights and
 * x by maps into a ring of stages of 64 k; where weights stay, those of a ring while the launch before runs.  Two teams of
 * four warps multiply 64 rows of weights each, all of the tile's x, both from shared memory.
 *
 * Tiles are cut, and summed, as matmul_prompts_pieces.cuh says. */
#include "backends/cuda/device/matmul_prompts_pieces.cuh"
#include "backends/cuda/device/once.cuh"

/* Of a stage x comes first, then weights. */
template <int N> struct rows_ring {
    enum { STAGES = qrn_prompts_rows_stages(N), BYTES = qrn_prompts_rows_bytes(N), X_BYTES = qrn_prompts_x_bytes(N) };

    char *stages;
    qrn_barrier *full, *empty;

    __device__ __forceinline__ char *x(int stage) const { return stages + stage * BYTES; }
    __device__ __forceinline__ char *weights(int stage) const { return x(stage) + X_BYTES; }
};

/* --- one thread copies --- */

template <int N, bool silu>
static __device__ __forceinline__ void copy_weights(const qrn_matmul_prompts_params &p, const rows_ring<N> &s, int stage,
                                                    int row, int k)
{
    qrn_barrier_arrive_expecting(&s.full[stage], rows_ring<N>::BYTES);
    if (silu) qrn_tensor_copy4(s.weights(stage), &p.w, k * QRN_PROMPTS_K, 0, 0, row / 16, &s.full[stage]);
    else qrn_tensor_copy(s.weights(stage), &p.w, k * QRN_PROMPTS_K, row, 0, &s.full[stage]);
}

/* Weights of the first stages that do not wait for the launch's turn; returns of how many. */
template <int N, bool silu>
static __device__ __forceinline__ int copy_early(const qrn_matmul_prompts_params &p, const rows_ring<N> &s)
{
    qrn_prompts_pieces piece(p);
    if (!piece.next(p)) return 0;
    const int n = min(p.n_early, 2 * (piece.end - piece.panel)), row = qrn_prompts_tile<N>(p, piece.tile).weights;
    for (int i = 0; i < n; i++) copy_weights<N, silu>(p, s, i, row, 2 * piece.panel + i);
    return n;
}

template <int N, bool silu>
static __device__ __forceinline__ void copies(const qrn_matmul_prompts_params &p, const rows_ring<N> &s)
{
    qrn_ring<rows_ring<N>::STAGES> ring;
    int n_early = copy_early<N, silu>(p, s);
    qrn_grid_waits();
    for (qrn_prompts_pieces piece(p); piece.next(p);) {
        const qrn_prompts_tile<N> tile(p, piece.tile);
#pragma unroll 1
        for (int k = 2 * piece.panel; k < 2 * piece.end; k++, ring.next()) {
            if (n_early > 0) {
                n_early--;
            } else {
                qrn_barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
                copy_weights<N, silu>(p, s, ring.stage, tile.weights, k);
            }
            qrn_tensor_copy(s.x(ring.stage), &p.x, k * QRN_PROMPTS_K, tile.x, 0, &s.full[ring.stage]);
        }
    }
}

/* --- two teams of four warps multiply --- */

/* c += 64 rows of weights times N of x, of n stages. */
template <int N>
static __device__ __forceinline__ void sum_up(const rows_ring<N> &s, int n, qrn_ring<rows_ring<N>::STAGES> &ring,
                                              float (&c)[N / 2])
{
    const int team = qrn_warp() / 4;
    int before = -1; /* the stage that is still multiplied */
#pragma unroll 1
    for (int i = 0; i < n; i++, ring.next()) {
        const uint64_t x = qrn_tile_by_k(s.x(ring.stage)),
                       w = qrn_tile_by_k(s.weights(ring.stage) + team * 64 * QRN_LINE);
        qrn_barrier_wait(&s.full[ring.stage], ring.parity);
        qrn_wgmma_bf16_line<N>(c, w, x);
        qrn_wgmma_wait<1>();
        if (before >= 0 && qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.empty[before]);
        before = ring.stage;
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(c);
    if (qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.empty[before]);
}

template <int N, bool silu>
static __device__ __forceinline__ void multiplies(const qrn_matmul_prompts_params &p, const rows_ring<N> &s)
{
    qrn_ring<rows_ring<N>::STAGES> ring;
    for (qrn_prompts_pieces piece(p); piece.next(p);) {
        float c[N / 2];
#pragma unroll
        for (int j = 0; j < N / 2; j++) c[j] = 0.0f;
        qrn_wgmma_hold(c);
        sum_up<N>(s, 2 * (piece.end - piece.panel), ring, c);
        if (piece.panel) qrn_prompts_take_over<N>(p, c);
        if (piece.end < p.n_panels) qrn_prompts_hand_over<N>(p, c);
        else qrn_prompts_store<N, silu>(p, qrn_prompts_tile<N>(p, piece.tile), c);
    }
}

template <int N, bool silu> static __device__ __forceinline__ void matmul_rows(const qrn_matmul_prompts_params &p)
{
    enum { MULTIPLIERS = QRN_PROMPTS_MULTIPLIERS / 32, STAGES = rows_ring<N>::STAGES };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[STAGES], empty[STAGES];
    const rows_ring<N> s = {(char *)qrn_align_shared(memory, QRN_ATOM), full, empty};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            qrn_barrier_init(&full[i], 1);
            qrn_barrier_init(&empty[i], MULTIPLIERS * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    /* Registers of 384 threads: 64512. */
    if (qrn_warp() >= MULTIPLIERS) {
        qrn_registers_fewer<40>();
        if (threadIdx.x == QRN_PROMPTS_MULTIPLIERS) copies<N, silu>(p, s);
    } else {
        qrn_registers_more<232>();
        qrn_grid_waits();
        multiplies<N, silu>(p, s);
    }
}

#define MATMUL_ROWS_NAMED(NAME, N, silu)                                                     \
    QRN_DEVICE_FUNCTION_EARLY(NAME##N##_BF16, QRN_PROMPTS_THREADS, 1, qrn_matmul_prompts_params) \
    {                                                                                        \
        matmul_rows<N, silu>(p);                                                             \
    }
#define MATMUL_ROWS(N)                                  \
    MATMUL_ROWS_NAMED(qrn_matmul_prompts, N, false)     \
    MATMUL_ROWS_NAMED(qrn_matmul_prompts_silu, N, true)
MATMUL_ROWS(96)
MATMUL_ROWS(128)
MATMUL_ROWS(160)
MATMUL_ROWS(192)
MATMUL_ROWS(224)
MATMUL_ROWS(256)
