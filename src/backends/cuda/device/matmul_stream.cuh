/* SPDX-License-Identifier: MIT
 * Products of packed weights with few rows of x on Hopper, for each type a function of its own.
 *
 * Bound by reading weights once: 18.5 bytes a clock and multiprocessor, 31 weights of Q4_K, for which it
 * may issue four instructions of warps.  Decoding and multiplying 4096 of them (a panel) takes about 200
 * with one row of x, 300 with eight, of 528; so all depends on copies never stopping.
 *
 * Each multiprocessor has one block, which takes an equal share of all panels: a stream of bytes, copied
 * by one thread into a ring of stages of up to eight panels of a group of 32 rows.  Weights depend on
 * nothing that was launched before: the first stages are copied while that ends.
 *
 * Twelve warps take panels in turn, which hides that each instruction waits for the one before, and leave
 * what a panel adds to outputs in shared memory.  Another warp adds that up meanwhile, a lane a row, k
 * ascending: the order that other products have.
 *
 * A group that a share's end cuts is summed by two blocks.  The first one begins with its part of that
 * group, and hands the sum over; the second one does its part last of all, long after.  It is no waiting for
 * blocks that may never run: nobody waits but for the one before, which began earlier. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_CUH

#include "backends/cuda/device/matmul_stream_tiles.cuh"
#include "backends/cuda/device/once.cuh"

/* --- warps that multiply --- */

template <int dtype, int COLUMNS, class Tiles>
static __device__ __forceinline__ void qrn_stream_multiplies(const qrn_matmul_stream_params &p, const Tiles &tiles,
                                                             const qrn_stream_shared &s,
                                                             const qrn_share &share)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    const int lane = qrn_lane(), panel_bytes = (int)p.job.w.panel_bytes;
    int i_tile = -1, at = qrn_warp(), n_rows = 1; /* at: panels before this warp's next one */
    int piece_before = -1;
    qrn_stream_place ring;
    qrn_stream_walk walk;
    walk.start(share, p.n_panels);
    qrn_grid_waits();
    while (walk.end) {
        if (walk.piece != piece_before &&
            (i_tile < 0 || (tiles.has_own_x(i_tile) && walk.group / p.n_groups != i_tile))) {
            i_tile = walk.group / p.n_groups;
            const qrn_tile tile = tiles.at(i_tile);
            if (COLUMNS > 1) n_rows = tile.n_rows;
            qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
            if (p.job.x_dtype == QRN_Q8_ACT) qrn_stream_copy_x<dtype, COLUMNS>(p, tiles, tile, s);
            else qrn_stream_round_x<dtype>(p, tiles, tile, s);
            qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        }
        const int n_here = walk.n_here(), piece = walk.piece;
        /* All warps come to all stages: a round ahead of copies or behind them parities would deceive them. */
        qrn_barrier_wait(&s.places[ring.at].full, ring.parity);
        if (at < n_here) {
            qrn_barrier_wait(&s.places[ring.at].taken, ring.parity ^ 1);
            const int first = (walk.panel + at) * qrn_stream_rows<COLUMNS>(p);
            const uint8_t *panel = (const uint8_t *)s.ring + ring.at * p.stage_bytes + at * panel_bytes,
                          *x = s.x + first * QRN_STREAM_X;
            float *to = qrn_stream_sums<COLUMNS>(p, s, ring.at) + at * qrn_stream_rows<COLUMNS>(p) * QRN_STREAM_P;
            if (lane < n_rows) to[lane * QRN_STREAM_P + QRN_PANEL_ROWS] = s.d[first + lane];
            if constexpr (COLUMNS == 1) to[lane] = qrn_stream_panel_of_one<dtype>(form, p.flip, panel, x);
            else qrn_stream_panel_of_eight<dtype>(form, p.flip, panel, x, n_rows, to);
            at += QRN_STREAM_WARPS;
        }
        qrn_barrier_arrive_warp(&s.places[ring.at].done);
        at -= n_here;
        walk.next(share, p.n_panels);
        piece_before = piece;
        ring.next(p.n_stages);
    }
}

/* --- the warp that copies: one thread of it --- */

/* Stages one after the other. */
template <class Tiles> struct qrn_stream_copies {
    const Tiles &tiles;
    qrn_stream_walk walk;
    int piece = -1;
    const uint8_t *weights = nullptr; /* of the piece: panel 0 of its group */
    const uint64_t once = qrn_read_once();

    __device__ __forceinline__ qrn_stream_copies(const qrn_matmul_stream_params &p, const Tiles &of,
                                                 const qrn_share &share)
        : tiles(of)
    {
        walk.start(share, p.n_panels);
    }
    /* Finds where the stage is; false past the last. */
    __device__ __forceinline__ bool find(const qrn_matmul_stream_params &p)
    {
        if (walk.end == 0) return false;
        if (walk.piece == piece) return true;
        const int i_tile = p.job.n_tiles > 1 ? walk.group / p.n_groups : 0;
        piece = walk.piece;
        weights = tiles.weights(tiles.at(i_tile)) + (walk.group - i_tile * p.n_groups) * p.job.w.group_bytes;
        return true;
    }
    __device__ __forceinline__ void copy(const qrn_matmul_stream_params &p, const qrn_share &share,
                                         const qrn_stream_shared &s, int at)
    {
        const int n_here = walk.n_here(), n_bytes = n_here * (int)p.job.w.panel_bytes;
        if (!find(p)) return;
        qrn_barrier_arrive_expecting(&s.places[at].full, n_bytes);
        qrn_bulk_copy_hinted(s.ring + at * p.stage_bytes, weights + walk.panel * (int)p.job.w.panel_bytes, n_bytes,
                             &s.places[at].full, once);
        walk.next(share, p.n_panels);
    }
};

/* The first stages before what was launched before has ended, if no ids are needed: not so many that what is
 * small there waits for memory.  Then the rest of the ring, and a stage for each that is multiplied. */
template <class Tiles>
static __device__ __forceinline__ void qrn_stream_copies_all(const qrn_matmul_stream_params &p, const Tiles &tiles,
                                                             const qrn_stream_shared &s, const qrn_share &share)
{
    qrn_stream_place ring;
    qrn_stream_copies<Tiles> copies(p, tiles, share);
#pragma unroll 1
    for (int i = 0; i < p.n_stages; i++) {
        if (i == p.n_early) qrn_grid_waits();
        copies.copy(p, share, s, i);
    }
    while (copies.walk.end) {
        qrn_barrier_wait(&s.places[ring.at].done, ring.parity);
        copies.copy(p, share, s, ring.at);
        ring.next(p.n_stages);
    }
}

/* --- the warp that adds --- */

/* The sums of a stage with n_here panels, each lane its row's; says when all are read. */
template <int COLUMNS, int AT_ONCE, class Read>
static __device__ __forceinline__ void qrn_stream_add(const float *sums, int tile_rows, int n_here, int n_rows,
                                                      float (&acc)[COLUMNS], const Read &read)
{
    for (int first = 0; first < n_here; first += AT_ONCE) {
        float p[AT_ONCE][COLUMNS], d[AT_ONCE][COLUMNS];
#pragma unroll
        for (int i = 0; i < AT_ONCE * COLUMNS; i++) {
            const int at = i / COLUMNS, r = i % COLUMNS;
            const float *from = sums + ((first + at) * tile_rows + min(r, n_rows - 1)) * QRN_STREAM_P;
            p[at][r] = from[qrn_lane()];
            d[at][r] = from[QRN_PANEL_ROWS];
        }
        if (first + AT_ONCE >= n_here) read();
#pragma unroll
        for (int i = 0; i < AT_ONCE * COLUMNS; i++) {
            const int at = i / COLUMNS, r = i % COLUMNS;
            acc[r] = fmaf(p[at][r], d[at][r], acc[r]);
        }
    }
}

/* Where rows of the tile go: a lane has one. */
template <class Tiles>
static __device__ __forceinline__ uint64_t qrn_stream_out(const Tiles &tiles, const qrn_tile &tile)
{
    if (qrn_lane() >= tile.n_rows) return 0;
    return (uint64_t)(uintptr_t)tiles.out_row(tile, qrn_lane());
}

template <int COLUMNS>
static __device__ __forceinline__ void qrn_stream_store(const qrn_matmul_stream_params &p, int n_rows,
                                                        bool is_none, uint64_t out, int64_t n,
                                                        const float (&acc)[COLUMNS])
{
#pragma unroll
    for (int r = 0; r < COLUMNS; r++) {
        float *row = (float *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, out, r);
        if (r < n_rows && n < p.job.w.n) row[n] = is_none ? __uint_as_float(0x7fc00000u) : acc[r];
    }
}

template <int COLUMNS, class Tiles>
static __device__ __forceinline__ void qrn_stream_adds(const qrn_matmul_stream_params &p, const Tiles &tiles,
                                                       const qrn_stream_shared &s, const qrn_share &share)
{
    qrn_stream_handover *handover = (qrn_stream_handover *)(uintptr_t)p.handover;
    const int lane = qrn_lane();
    int i_tile = -1;
    int n_rows = 0;
    bool is_none = false;
    uint64_t out = 0;
    float acc[COLUMNS];
    bool begins = true;
    qrn_stream_place ring;
    qrn_stream_walk walk;
    walk.start(share, p.n_panels);
    while (walk.end) {
        if (begins) {
            if (walk.group / p.n_groups != i_tile) {
                i_tile = walk.group / p.n_groups;
                const qrn_tile tile = tiles.at(i_tile);
                n_rows = tile.n_rows;
                is_none = tiles.is_none(tile);
                out = qrn_stream_out(tiles, tile);
            }
#pragma unroll
            for (int r = 0; r < COLUMNS; r++) acc[r] = 0.0f;
            if (walk.panel) qrn_take_over<COLUMNS>(handover + blockIdx.x, n_rows, acc);
        }
        qrn_barrier_wait(&s.places[ring.at].done, ring.parity);
        const float *from = qrn_stream_sums<COLUMNS>(p, s, ring.at);
        const int n_here = walk.n_here();
        const auto read = [&] { qrn_barrier_arrive_warp(&s.places[ring.at].taken); };
        if (n_here == QRN_STREAM_PANELS)
            qrn_stream_add<COLUMNS, COLUMNS == 1 ? QRN_STREAM_PANELS : 2>(from, qrn_stream_rows<COLUMNS>(p),
                                                                          QRN_STREAM_PANELS, n_rows, acc, read);
        else
            qrn_stream_add<COLUMNS, 1>(from, qrn_stream_rows<COLUMNS>(p), n_here, n_rows, acc, read);
        const int end = walk.end, piece = walk.piece;
        const int64_t n = (int64_t)(walk.group - i_tile * p.n_groups) * QRN_PANEL_ROWS + lane;
        walk.next(share, p.n_panels);
        begins = walk.piece != piece || walk.end == 0;
        if (begins && end < p.n_panels)
            qrn_hand_over<COLUMNS>(handover + blockIdx.x + 1, n_rows, acc);
        else if (begins)
            qrn_stream_store<COLUMNS>(p, n_rows, is_none, out, n, acc);
        ring.next(p.n_stages);
    }
}

/* --- the block --- */

template <int dtype, int COLUMNS, class Tiles>
static __device__ __forceinline__ void qrn_matmul_stream(const qrn_matmul_stream_params &p, const Tiles &tiles)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_stream_barriers places[QRN_STREAM_STAGES];
    __shared__ qrn_q8_act own[QRN_STREAM_WARPS];
    const qrn_share share = qrn_share_of((int)blockIdx.x, p.share, p.n_longer, p.n_panels);
    qrn_stream_shared s;
    s.sums = (float *)memory;
    s.ring = memory + p.ring_at;
    s.x = (uint8_t *)memory + p.x_at;
    s.d = (float *)(memory + p.d_at);
    s.places = places, s.own = own;
    qrn_hold(s.places);
    if (threadIdx.x == 32 * QRN_STREAM_WARPS) {
#pragma unroll 1
        for (int i = 0; i < p.n_stages; i++) {
            qrn_barrier_init(&places[i].full, 1);
            qrn_barrier_init(&places[i].done, QRN_STREAM_WARPS * QRN_WARP_ARRIVALS);
            qrn_barrier_init(&places[i].taken, QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (qrn_warp() == QRN_STREAM_WARPS) {
        tiles.copies_begin();
        if (qrn_lane() == 0) qrn_stream_copies_all(p, tiles, s, share);
        return;
    }
    if (qrn_warp() < QRN_STREAM_WARPS) {
        qrn_stream_multiplies<dtype, COLUMNS>(p, tiles, s, share);
    } else {
        qrn_grid_waits();
        tiles.adds_begin();
        qrn_stream_adds<COLUMNS>(p, tiles, s, share);
    }
}

/* Two blocks of one row leave room for one of the next launch. */
#define QRN_MATMUL_STREAM(NAME)                                                                   \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_stream1_##NAME, QRN_STREAM_THREADS, 2,                  \
                              qrn_matmul_stream_params)                                          \
    {                                                                                            \
        qrn_matmul_stream<QRN_##NAME, 1>(p, qrn_stream_tiles{p});                                \
    }                                                                                            \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_stream8_##NAME, QRN_STREAM_THREADS, 1,                  \
                              qrn_matmul_stream_params)                                          \
    {                                                                                            \
        qrn_matmul_stream<QRN_##NAME, QRN_STREAM_COLUMNS>(p, qrn_stream_tiles{p});               \
    }

#endif
