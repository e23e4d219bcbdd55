/* SPDX-License-Identifier: MIT
 * Products of packed weights with many rows of bf16 x on Hopper, for each type a function of its own.
 *
 * Bound by the tensor cores, or by the power they take.  A tile is 128 rows of weights by 256 of x, or by 160, 192 or
 * 224, so that few of its columns are of no row, or rounds are full; with fewer decoding would take longer than products.  Two teams of four warps multiply 64 rows of weights each: a warp
 * decodes 64 k of its sixteen rows to registers (matmul_registers_panel.cuh) while the 64 k before are multiplied, from
 * there, with x in shared memory.  A team's four wgmma take 512 cycles with 256 rows of x, and the other team's as many;
 * decoding what they multiply takes 130 instructions of each warp.  Weights as bf16 are nowhere but in registers: neither
 * written to shared memory nor read there.
 *
 * One thread copies x, 64 k of a tile's rows at once, one for each team panels of its rows.  Each team has its own ring of
 * panels, and gives back stages of x when it is done with them: one may store results while the other multiplies.
 *
 * Tiles are cut, and summed, as matmul_prompts_pieces.cuh says. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_PROMPTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_PROMPTS_CUH

#include "backends/cuda/device/matmul_prompts_pieces.cuh"
#include "backends/cuda/device/matmul_registers_panel.cuh"

/* What a block has in shared memory; panels of a team. */
struct qrn_prompts_shared {
    char *x, *panels;
    qrn_barrier *x_full, *x_empty, *panel_full, *panel_empty;
};

/* --- some threads copy --- */

template <int N>
static __device__ __forceinline__ void qrn_prompts_copy_x(const qrn_matmul_prompts_params &p, const qrn_prompts_shared &s)
{
    qrn_ring_place ring;
    for (qrn_prompts_pieces piece(p); piece.next(p);) {
        const int row = qrn_prompts_tile<N>(p, piece.tile).x;
#pragma unroll 1
        for (int k = 2 * piece.panel; k < 2 * piece.end; k++, ring.next(p.n_x_stages)) {
            qrn_barrier_wait(&s.x_empty[ring.at], ring.parity ^ 1);
            qrn_barrier_arrive_expecting(&s.x_full[ring.at], qrn_prompts_x_bytes(N));
            qrn_tensor_copy(s.x + ring.at * qrn_prompts_x_bytes(N), &p.x, k * QRN_PROMPTS_K, row, 0, &s.x_full[ring.at]);
        }
    }
}

/* Groups of rows of weights that a team has of a tile: side by side, or for silu one of gates and one of their ups.  Past the
 * last one: that again. */
template <bool silu>
static __device__ __forceinline__ int qrn_prompts_group(const qrn_matmul_prompts_params &p, int weights, int team, int i)
{
    if (silu) {
        const int n = (int)(p.silu.n_gates / QRN_PANEL_ROWS);
        return min(weights / 2 / QRN_PANEL_ROWS + team, n - 1) + i * n;
    }
    const int last = (int)((p.job.w.n - 1) / QRN_PANEL_ROWS);
    return min(weights / QRN_PANEL_ROWS + team * QRN_PROMPTS_GROUPS + i, last);
}
template <int N, bool silu>
static __device__ __forceinline__ void qrn_prompts_copy_panels(const qrn_matmul_prompts_params &p,
                                                               const qrn_prompts_shared &s, int team)
{
    enum { GROUPS = QRN_PROMPTS_GROUPS };
    const int panel_bytes = (int)p.job.w.panel_bytes;
    qrn_ring_place ring;
    for (qrn_prompts_pieces piece(p); piece.next(p);) {
        const int weights = qrn_prompts_tile<N>(p, piece.tile).weights;
        const uint8_t *from[GROUPS];
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            from[i] = qrn_panel_at(p.job.w, 0, qrn_prompts_group<silu>(p, weights, team, i), piece.panel);
#pragma unroll 1
        for (int k = piece.panel; k < piece.end; k++, ring.next(p.n_panel_stages)) {
            char *to = s.panels + ring.at * GROUPS * panel_bytes;
            qrn_barrier_wait(&s.panel_empty[ring.at], ring.parity ^ 1);
            qrn_barrier_arrive_expecting(&s.panel_full[ring.at], GROUPS * panel_bytes);
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                qrn_bulk_copy(to + i * panel_bytes, from[i], panel_bytes, &s.panel_full[ring.at]);
                from[i] += panel_bytes;
            }
        }
    }
}

/* --- two teams of four warps multiply --- */

/* The rings as a team goes through them. */
struct qrn_prompts_places {
    qrn_ring_place x, panels;
};

/* c += 64 rows of weights times N of x, of n panels; pairs: a thread's two rows are one of gates and the same one of ups. */
template <int dtype, int N, bool pairs>
static __device__ __forceinline__ void qrn_prompts_sum(const qrn_matmul_prompts_params &p, const qrn_prompts_shared &s,
                                                       const qrn_panel_form &form, int n, qrn_prompts_places &places,
                                                       float (&c)[N / 2])
{
    const int panel_bytes = (int)p.job.w.panel_bytes, warp = qrn_warp() % 4;
    const uint8_t *panels = (const uint8_t *)s.panels + (pairs ? 0 : warp / 2 * panel_bytes);
    const int first = pairs ? 8 * warp : 16 * (warp % 2), down_panel = pairs ? panel_bytes : 0, down_row = pairs ? 0 : 8;
    int row = first + qrn_lane() / 4, codes = 16 * row + qrn_lane() % 4 * 2, down = down_panel + 16 * down_row;
    uint32_t a[2][4][4];
    int before = -1; /* the stage of x that is still multiplied */
    qrn_hold_shared(panels);
    qrn_hold(row);
    qrn_hold(codes);
    if (pairs) qrn_hold(down);
#pragma unroll 1
    for (int i = 0; i < n; i++, places.panels.next(p.n_panel_stages)) {
        const uint8_t *panel = panels + places.panels.at * QRN_PROMPTS_GROUPS * panel_bytes;
        const qrn_halfwords load = {panel + codes, down};
        qrn_pairs_of_block own[2];
        qrn_barrier_wait(&s.panel_full[places.panels.at], places.panels.parity);
#pragma unroll
        for (int r = 0; r < 2; r++)
            qrn_load_pairs<dtype>(form, panel + r * down_panel, row + r * down_row, own[r]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            qrn_weights_of_half<dtype>(load, half, own, a[half]);
            const uint64_t x = qrn_tile_by_k(s.x + places.x.at * qrn_prompts_x_bytes(N));
            qrn_barrier_wait(&s.x_full[places.x.at], places.x.parity);
            qrn_registers_multiply<N>(c, a[half], x);
            if (half && qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.panel_empty[places.panels.at]);
            qrn_wgmma_wait<1>();
            qrn_wgmma_hold(a[half ^ 1]);
            if (before >= 0 && qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.x_empty[before]);
            before = places.x.at;
            places.x.next(p.n_x_stages);
        }
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(c);
    if (qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.x_empty[before]);
}

template <int dtype, int N, bool silu>
static __device__ __forceinline__ void qrn_prompts_multiply(const qrn_matmul_prompts_params &p, const qrn_prompts_shared &s)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    qrn_prompts_places places;
    for (qrn_prompts_pieces piece(p); piece.next(p);) {
        float c[N / 2];
#pragma unroll
        for (int j = 0; j < N / 2; j++) c[j] = 0.0f;
        qrn_wgmma_hold(c);
        qrn_prompts_sum<dtype, N, silu>(p, s, form, piece.end - piece.panel, places, c);
        if (piece.panel) qrn_prompts_take_over<N>(p, c);
        if (piece.end < p.n_panels) {
            qrn_prompts_hand_over<N>(p, c);
            continue;
        }
#pragma unroll
        for (int j = 0; j < N / 2; j++) c[j] *= qrn_registers_unit();
        qrn_wgmma_hold(c);
        qrn_prompts_store<N, silu>(p, qrn_prompts_tile<N>(p, piece.tile), c);
    }
}

template <int dtype, int N, bool silu>
static __device__ __forceinline__ void qrn_matmul_prompts(const qrn_matmul_prompts_params &p)
{
    enum { TEAMS = QRN_PROMPTS_TEAMS, OF_TEAM = QRN_PROMPTS_MOST_PANELS };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier x_full[QRN_PROMPTS_MOST_X_STAGES], x_empty[QRN_PROMPTS_MOST_X_STAGES],
        panel_full[TEAMS * OF_TEAM], panel_empty[TEAMS * OF_TEAM];
    const int warp = qrn_warp(), copier = warp - 4 * TEAMS, team = copier < 0 ? warp / 4 : copier % TEAMS;
    qrn_prompts_shared s;
    s.x = (char *)qrn_align_shared(memory, QRN_ATOM);
    s.panels = s.x + p.n_x_stages * qrn_prompts_x_bytes(N) +
               team * p.n_panel_stages * QRN_PROMPTS_GROUPS * (int)p.job.w.panel_bytes;
    s.x_full = x_full, s.x_empty = x_empty;
    s.panel_full = panel_full + team * OF_TEAM, s.panel_empty = panel_empty + team * OF_TEAM;
    if (threadIdx.x == 0) {
        for (int i = 0; i < QRN_PROMPTS_MOST_X_STAGES; i++) {
            qrn_barrier_init(&x_full[i], 1);
            qrn_barrier_init(&x_empty[i], 4 * TEAMS * QRN_WARP_ARRIVALS);
        }
        for (int i = 0; i < TEAMS * OF_TEAM; i++) {
            qrn_barrier_init(&panel_full[i], 1);
            qrn_barrier_init(&panel_empty[i], 4 * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    /* Registers of 384 threads: 64512. */
    if (copier >= 0) {
        qrn_registers_fewer<40>();
        if (copier < TEAMS && qrn_lane() == 0) qrn_prompts_copy_panels<N, silu>(p, s, team);
        if (copier == TEAMS && qrn_lane() == 0) qrn_prompts_copy_x<N>(p, s);
    } else {
        qrn_registers_more<232>();
        qrn_prompts_multiply<dtype, N, silu>(p, s);
    }
}

/* Each with a second form, whose results are silu_mul of gates and ups. */
#define QRN_MATMUL_PROMPTS_OF(N, NAME)                                                                          \
    QRN_DEVICE_FUNCTION(qrn_matmul_prompts##N##_##NAME, QRN_PROMPTS_THREADS, 1, qrn_matmul_prompts_params)      \
    {                                                                                                           \
        qrn_matmul_prompts<QRN_##NAME, N, false>(p);                                                            \
    }                                                                                                           \
    QRN_DEVICE_FUNCTION(qrn_matmul_prompts_silu##N##_##NAME, QRN_PROMPTS_THREADS, 1, qrn_matmul_prompts_params) \
    {                                                                                                           \
        qrn_matmul_prompts<QRN_##NAME, N, true>(p);                                                             \
    }
#define QRN_MATMUL_PROMPTS(NAME)     \
    QRN_MATMUL_PROMPTS_OF(160, NAME) \
    QRN_MATMUL_PROMPTS_OF(192, NAME) \
    QRN_MATMUL_PROMPTS_OF(224, NAME) \
    QRN_MATMUL_PROMPTS_OF(256, NAME)

#endif
