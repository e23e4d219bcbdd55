/* SPDX-License-Identifier: MIT
 * Products of bf16 weights in rows with up to 64 rows of x, bf16, on Hopper.
 *
 * Bound by reading weights once, and by the second cache, from which each multiprocessor reads all of x for
 * each tile: with 64 rows of x and 96 of weights 31 bytes a clock where memory brings 18.5 of them.  So
 * tiles are as many rows as leave a round of blocks full.
 *
 * One thread copies 128 k of weights and x by maps into a ring of slots; as in matmul_few_sm90a.cu the
 * ring's weights are copied while the launch before runs, where they stay; else the second cache is asked for them.
 * The next launch's blocks come when these end: sooner they would crowd on the few multiprocessors without a tile.
 * A warp has 32 rows of a tile and half of x, and all k: sums stay in its registers.
 *
 * An output is acc += e over the 128 k in ascending order, where e is what the 8 mma of them make from
 * 0: the bits of matmul_bf16.cu. */
#include "backends/cuda/device/matmul_few_panel.cuh"
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/once.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_several_cuda.h"

struct several_shared {
    char *ring;
    qrn_barrier *full, *empty;
};

/* --- one thread copies --- */

/* A slot: weights first, two boxes of all the tile's rows, then two of x. */
template <int COLUMNS> struct several_copier {
    const qrn_matmul_several_params &p;
    const several_shared &s;
    const int rows, slot_bytes;

    __device__ several_copier(const qrn_matmul_several_params &params, const several_shared &shared)
        : p(params), s(shared), rows(params.n_groups * QRN_PANEL_ROWS),
          slot_bytes(qrn_several_slot_bytes(params.n_groups, 16 * COLUMNS))
    {
    }
    __device__ __forceinline__ void weights(int slot, int tile, int panel) const
    {
        qrn_barrier_arrive_expecting(&s.full[slot], slot_bytes);
        for (int i = 0; i < 2; i++)
            qrn_tensor_copy_hinted(s.ring + slot * slot_bytes + i * rows * QRN_LINE, &p.w,
                                   panel * QRN_PANEL_K + i * QRN_SEVERAL_BOX_K, tile * rows, 0,
                                   &s.full[slot], qrn_read_once());
    }
    __device__ __forceinline__ void x(int slot, int panel) const
    {
        char *to = s.ring + slot * slot_bytes + 2 * rows * QRN_LINE;
        for (int i = 0; i < 2; i++)
            qrn_tensor_copy(to + i * 16 * COLUMNS * QRN_LINE, &p.x, panel * QRN_PANEL_K + i * QRN_SEVERAL_BOX_K,
                            0, 0, &s.full[slot]);
    }
};

template <int COLUMNS>
static __device__ __forceinline__ void copies(const qrn_matmul_several_params &p, const several_shared &s)
{
    const several_copier<COLUMNS> copy(p, s);
    const int first = (int)blockIdx.x, n_early = min(p.n_early, p.n_panels);
    qrn_ring_place ring;
    for (int i = 0; i < n_early; i++) copy.weights(i, first, i);
    for (int i = 0; i < 2 * min(p.n_asked, p.n_panels); i++)
        qrn_tensor_prefetch(&p.w, i * QRN_SEVERAL_BOX_K, first * copy.rows, 0);
    qrn_grid_waits();
    for (int tile = first; tile < p.n_tiles; tile += gridDim.x)
        for (int panel = 0; panel < p.n_panels; panel++, ring.next(p.n_slots)) {
            if (tile != first || panel >= n_early) {
                qrn_barrier_wait(&s.empty[ring.at], ring.parity ^ 1);
                copy.weights(ring.at, tile, panel);
            }
            copy.x(ring.at, panel);
        }
}

/* --- warps that multiply --- */

/* 32 rows of weights by half the rows of x, 128 k. */
template <int COLUMNS>
static __device__ __forceinline__ void multiply(const char *w, int w_box, const char *x,
                                                float (&e)[2][COLUMNS][4])
{
    constexpr int x_box = 2 * 8 * COLUMNS * QRN_LINE;
    /* Of x as of weights, of eight rows of x and the next eight. */
    const int own = qrn_piece_of_lane(), row = qrn_lane() % 8,
              own_x = qrn_lane() / 16 * QRN_ATOM + row * QRN_LINE + (qrn_lane() / 8 % 2 ^ row) * 16;
#pragma unroll
    for (int n = 0; n < 8 * COLUMNS; n++) e[n / (4 * COLUMNS)][n / 4 % COLUMNS][n % 4] = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) qrn_ldmatrix4(a[i], w + j / 4 * w_box + i * 2 * QRN_ATOM + (own ^ 32 * (j % 4)));
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 2) {
            const char *from = x + j / 4 * x_box + c * QRN_ATOM + (own_x ^ 32 * (j % 4));
            uint32_t of_two[4], b[2][2];
            if constexpr (COLUMNS == 1) {
                qrn_ldmatrix2(b[0], from);
            } else {
                qrn_ldmatrix4(of_two, from);
                b[0][0] = of_two[0], b[0][1] = of_two[1], b[1][0] = of_two[2], b[1][1] = of_two[3];
            }
#pragma unroll
            for (int n = 0; n < 2 && c + n < COLUMNS; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) qrn_mma_bf16(e[i][c + n], a[i], b[n]);
        }
    }
}

/* Of a warp's results, rows of weights from n on and of x from r on. */
template <int COLUMNS>
static __device__ __forceinline__ void store(const qrn_matmul_several_params &p, int64_t n, int r,
                                             const float (&acc)[2][COLUMNS][4])
{
    n += qrn_lane() / 4;
#pragma unroll
    for (int c = 0; c < 2 * COLUMNS; c++) {
        const int row = r + c / 2 * 8 + 2 * (qrn_lane() % 4) + c % 2;
        if (row >= p.job.most_rows) continue;
        float *out = qrn_out_row(p.job, row);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n + 8 * i < p.job.w.n) out[n + 8 * i] = acc[i / 2][c / 2][i % 2 * 2 + c % 2];
    }
}

template <int COLUMNS>
static __device__ __forceinline__ void multiplies(const qrn_matmul_several_params &p, const several_shared &s)
{
    const int group = qrn_warp() / 2, half = qrn_warp() % 2;
    const int w_box = p.n_groups * QRN_PANEL_ROWS * QRN_LINE,
              slot_bytes = qrn_several_slot_bytes(p.n_groups, 16 * COLUMNS);
    const int64_t rows = p.n_groups * QRN_PANEL_ROWS;
    qrn_ring_place ring;
    for (int tile = blockIdx.x; tile < p.n_tiles; tile += gridDim.x) {
        float acc[2][COLUMNS][4];
#pragma unroll
        for (int n = 0; n < 8 * COLUMNS; n++) acc[n / (4 * COLUMNS)][n / 4 % COLUMNS][n % 4] = 0.0f;
        for (int panel = 0; panel < p.n_panels; panel++, ring.next(p.n_slots)) {
            const char *slot = s.ring + ring.at * slot_bytes;
            float e[2][COLUMNS][4];
            qrn_barrier_wait(&s.full[ring.at], ring.parity);
            multiply<COLUMNS>(slot + group * 4 * QRN_ATOM, w_box,
                              slot + 2 * w_box + half * COLUMNS * QRN_ATOM, e);
            __syncwarp();
            if (qrn_lane() == 0) qrn_barrier_arrive(&s.empty[ring.at]);
#pragma unroll
            for (int n = 0; n < 8 * COLUMNS; n++) {
                const int i = n / (4 * COLUMNS), c = n / 4 % COLUMNS;
                acc[i][c][n % 4] += e[i][c][n % 4];
            }
        }
        store<COLUMNS>(p, tile * rows + group * QRN_PANEL_ROWS, half * COLUMNS * 8, acc);
    }
}

/* The block: the last warp copies. */
template <int COLUMNS>
static __device__ __forceinline__ void matmul_several(const qrn_matmul_several_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[QRN_SEVERAL_SLOTS], empty[QRN_SEVERAL_SLOTS];
    several_shared s;
    s.ring = (char *)qrn_align_shared(memory, QRN_ATOM);
    s.full = full, s.empty = empty;
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.n_slots; i++) {
            qrn_barrier_init(&full[i], 1);
            qrn_barrier_init(&empty[i], 2 * p.n_groups);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (qrn_warp() == 2 * p.n_groups) {
        if (qrn_lane() == 0) copies<COLUMNS>(p, s);
        return;
    }
    qrn_grid_waits();
    multiplies<COLUMNS>(p, s);
}

#define MATMUL_SEVERAL(COLUMNS)                                                                             \
    QRN_DEVICE_FUNCTION_ITSELF(qrn_matmul_several##COLUMNS##_bf16, 32 * (QRN_SEVERAL_MOST_WARPS + 1), 1,    \
                               qrn_matmul_several_params)                                                   \
    {                                                                                                       \
        matmul_several<COLUMNS>(p);                                                                         \
    }
MATMUL_SEVERAL(1)
MATMUL_SEVERAL(2)
MATMUL_SEVERAL(4)
