/* SPDX-License-Identifier: MIT
 * Products of packed weights with up to 128 rows of x, bf16, on Hopper, for each type a function of its own.
 *
 * Bound by reading weights once: 18.5 bytes a clock and multiprocessor, 33 weights of Q4_K.  The tensor cores take
 * 32 with 64 rows of x, and decoding 4096 weights (a panel) about 430 instructions of warps, of 528 in that time;
 * so sixteen warps decode, each what it multiplies itself, to registers, from where wgmma takes it, while the half
 * panel before is multiplied.  x, as bf16 several times as many bytes as weights, comes from the second cache with every tile
 * of weights: so a tile is 256 rows, which four teams of four warps share.  With more than 64 rows of x tensor cores are
 * what bounds, and there are registers for three.
 *
 * A thread for each team copies stages of 128 k: panels of its two groups of 32 rows, one of them x by a map.  Few
 * tiles are cut in equal parts of k, a block each; of more tiles all panels, one tile after the other, are cut into
 * equal shares, one for each multiprocessor.  What is not a whole tile leaves its sums in memory, for what comes after to
 * add them up, ascending. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_REGISTERS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_REGISTERS_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/matmul_registers_panel.cuh"
#include "backends/cuda/device/matmul_registers_pieces.cuh"
#include "backends/cuda/device/once.cuh"

struct qrn_registers_shared {
    char *ring;
    qrn_barrier *full, *empty;
};

/* --- some threads copy --- */

/* One of them, for a team: panels of its groups; the first one x, too. */
template <int N> struct qrn_registers_copies {
    enum { GROUPS = 64 / QRN_PANEL_ROWS, OF_TILE = GROUPS * qrn_registers_teams(N) };
    const qrn_matmul_registers_params &p;
    const qrn_registers_shared &s;
    const int copier;
    int panel;                   /* of the tile */
    const uint8_t *from[GROUPS]; /* the tile's next panels */

    __device__ __forceinline__ qrn_registers_copies(const qrn_matmul_registers_params &params,
                                                    const qrn_registers_shared &shared, int i)
        : p(params), s(shared), copier(i)
    {
    }
    /* Of groups past the last one: that again. */
    __device__ __forceinline__ void go_to_tile(int tile, int first_panel)
    {
        const int last = (int)((p.job.w.n - 1) / QRN_PANEL_ROWS), first = tile * OF_TILE + copier * GROUPS;
        panel = first_panel;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) from[i] = qrn_panel_at(p.job.w, 0, min(first + i, last), panel);
    }
    __device__ __forceinline__ void weights(int stage, uint64_t once)
    {
        const int panel_bytes = (int)p.job.w.panel_bytes;
        char *to = s.ring + stage * p.stage_bytes + p.x_bytes + copier * GROUPS * panel_bytes;
        qrn_barrier_arrive_expecting(&s.full[stage], GROUPS * panel_bytes + (copier ? 0 : p.x_bytes));
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            qrn_bulk_copy_hinted(to + i * panel_bytes, from[i], panel_bytes, &s.full[stage], once);
            from[i] += panel_bytes;
        }
    }
    __device__ __forceinline__ void x(int stage, int of_panel) const
    {
        char *to = s.ring + stage * p.stage_bytes;
        for (int i = 0; i < 2; i++)
            qrn_tensor_copy(to + i * (p.x_bytes / 2), &p.x, of_panel * QRN_PANEL_K + i * QRN_REGISTERS_BOX_K, 0, 0,
                            &s.full[stage]);
    }
    __device__ __forceinline__ void all(const qrn_units &units)
    {
        const uint64_t once = qrn_read_once();
        const int n = units.end - units.begin, n_early = min(p.n_early, n);
        int tile = units.begin / p.n_panels, x_panel = units.begin - tile * p.n_panels;
        qrn_ring_place ring;
        const auto copy_weights = [&](int stage) {
            if (panel == p.n_panels) go_to_tile(++tile, 0);
            weights(stage, once);
            panel++;
        };
        go_to_tile(tile, x_panel);
#pragma unroll 1
        for (int i = 0; i < n_early; i++) copy_weights(i);
        qrn_grid_waits();
#pragma unroll 1
        for (int i = 0; i < n; i++, ring.next(p.n_stages)) {
            if (i >= n_early) {
                qrn_barrier_wait(&s.empty[ring.at], ring.parity ^ 1);
                copy_weights(ring.at);
            }
            if (copier) continue;
            x(ring.at, x_panel);
            if (++x_panel == p.n_panels) x_panel = 0;
        }
    }
};

/* --- teams of four warps multiply --- */

/* c: a warp's sums of n stages, 2^-64 times as large. */
template <int dtype, int N>
static __device__ __forceinline__ void qrn_registers_sum(const qrn_matmul_registers_params &p, const qrn_registers_shared &s,
                                                         const qrn_panel_form &form, int n, qrn_ring_place &ring,
                                                         float (&c)[N / 2])
{
    const uint8_t *ring_of_panels = (const uint8_t *)s.ring + p.x_bytes + qrn_warp() / 2 * (int)p.job.w.panel_bytes;
    qrn_barrier *full = s.full, *empty = s.empty;
    int row = 16 * (qrn_warp() % 2) + qrn_lane() / 4, codes = 16 * row + qrn_lane() % 4 * 2;
    uint32_t a[2][4][4];
    int before = 0; /* the stage that is still multiplied */
#pragma unroll
    for (int j = 0; j < N / 2; j++) c[j] = 0.0f;
    qrn_wgmma_hold(c);
    qrn_hold_shared(ring_of_panels);
    qrn_hold_shared(full);
    qrn_hold_shared(empty);
    qrn_hold(row);
    qrn_hold(codes);
#pragma unroll 1
    for (int i = 0; i < n; i++, ring.next(p.n_stages)) {
        const char *stage = s.ring + ring.at * p.stage_bytes;
        const uint8_t *panel = ring_of_panels + ring.at * p.stage_bytes;
        const qrn_halfwords load = {panel + codes};
        qrn_pairs_of_block own[2];
        qrn_barrier_wait(&full[ring.at], ring.parity);
#pragma unroll
        for (int r = 0; r < 2; r++) qrn_load_pairs<dtype>(form, panel, row + 8 * r, own[r]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            qrn_weights_of_half<dtype>(load, half, own, a[half]);
            qrn_registers_multiply<N>(c, a[half], qrn_tile_by_k(stage + half * (N * QRN_LINE)));
            qrn_wgmma_wait<1>();
            qrn_wgmma_hold(a[half ^ 1]);
            if (half == 0 && i > 0 && qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&empty[before]);
        }
        before = ring.at;
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(c);
    if (qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&empty[before]);
#pragma unroll
    for (int j = 0; j < N / 2; j++) c[j] *= qrn_registers_unit();
}

/* A thread's sums of a piece go to memory as they are: what is done when a piece ends is done by all warps at once, each
 * instruction after the one before, and its code has to come. */
template <int N>
static __device__ __forceinline__ void qrn_registers_store_piece(const qrn_matmul_registers_params &p, bool is_first,
                                                                 const float (&c)[N / 2])
{
    enum { APART = qrn_registers_multipliers(N) };
    float *to = (float *)(uintptr_t)p.sums + (2 * (int)blockIdx.x + !is_first) * (int64_t)(N / 2 * APART) + threadIdx.x;
#pragma unroll
    for (int j = 0; j < N / 2; j++) to[j * APART] = c[j];
}

/* Those of a tile to rows `apart` floats from each other, of which `first` is the first one. */
template <int N>
static __device__ __forceinline__ void qrn_registers_store_rows(const qrn_matmul_registers_params &p, int tile, float *first,
                                                                int64_t apart, const float (&c)[N / 2])
{
    const qrn_place_of_results at((int)threadIdx.x);
    const int n_rows = (int)p.job.most_rows - at.first_row, n = tile * qrn_registers_weights(N) + at.of_tile,
              n_here = (int)p.job.w.n - n;
    float *to = first + n + at.first_row * apart;
    if (n_here <= 0) return;
#pragma unroll
    for (int j = 0; j < N / 2; j += j % 2 ? 3 : 1) { /* j + 2: eight rows of weights below */
        if (at.row_of(j) < n_rows) {
            to[0] = c[j];
            if (n_here > at.down_of(j + 2)) to[at.down_of(j + 2)] = c[j + 2];
        }
        to += (j % 2 ? 7 : 1) * apart;
    }
}

template <int dtype, int N>
static __device__ __forceinline__ void qrn_registers_multiplies(const qrn_matmul_registers_params &p,
                                                                const qrn_registers_shared &s, const qrn_units &units)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    int tile = units.begin / p.n_panels, end = (tile + 1) * p.n_panels;
    qrn_ring_place ring;
    qrn_grid_waits();
#pragma unroll 1
    for (int u = units.begin; u < units.end; tile++, end += p.n_panels) {
        const int n = min(end, units.end) - u;
        float c[N / 2];
        qrn_registers_sum<dtype, N>(p, s, form, n, ring, c);
        if (n == p.n_panels)
            qrn_registers_store_rows<N>(p, tile, (float *)(uintptr_t)p.job.out.data, p.out_apart, c);
        else if (p.to_rows)
            qrn_registers_store_rows<N>(p, tile, (float *)(uintptr_t)p.sums + (blockIdx.x - tile * p.n_parts) * p.of_part,
                                        p.job.w.n, c);
        else
            qrn_registers_store_piece<N>(p, u == units.begin, c);
        u += n;
    }
}

template <int dtype, int N>
static __device__ __forceinline__ void qrn_matmul_registers(const qrn_matmul_registers_params &p)
{
    enum { TEAMS = qrn_registers_teams(N) };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[QRN_REGISTERS_MOST_STAGES], empty[QRN_REGISTERS_MOST_STAGES];
    const qrn_registers_shared s = {(char *)qrn_align_shared(memory, QRN_ATOM), full, empty};
    const qrn_units units = qrn_units_of(p, (int)blockIdx.x);
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int i = 0; i < p.n_stages; i++) {
            qrn_barrier_init(&full[i], TEAMS);
            qrn_barrier_init(&empty[i], 4 * TEAMS * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    /* Registers of 640 threads: 61440; of 512: 65536. */
    const int copier = qrn_warp() - 4 * TEAMS;
    if (copier >= 0) {
        qrn_registers_fewer<24>();
        if (copier < TEAMS && qrn_lane() == 0) qrn_registers_copies<N>(p, s, copier).all(units);
    } else {
        qrn_registers_more<TEAMS == 3 ? 160 : 112>();
        qrn_registers_multiplies<dtype, N>(p, s, units);
    }
}

/* As with other products of several rows the next launch's blocks come when these end. */
#define QRN_MATMUL_REGISTERS_OF(N, NAME)                                                      \
    QRN_DEVICE_FUNCTION_ITSELF(qrn_matmul_registers##N##_##NAME, qrn_registers_threads(N), 1, \
                               qrn_matmul_registers_params)                                   \
    {                                                                                         \
        qrn_matmul_registers<QRN_##NAME, N>(p);                                               \
    }
#define QRN_MATMUL_REGISTERS(NAME)    \
    QRN_MATMUL_REGISTERS_OF(32, NAME) \
    QRN_MATMUL_REGISTERS_OF(64, NAME) \
    QRN_MATMUL_REGISTERS_OF(128, NAME)

#endif
