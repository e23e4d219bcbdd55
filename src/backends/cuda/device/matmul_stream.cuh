/* SPDX-License-Identifier: MIT
 * Products of packed weights with few rows of x on Hopper, for each type a function of its own.
 *
 * Bound by reading weights once: 18.5 bytes a clock and multiprocessor, 31 weights of Q4_K, for which it
 * may issue four instructions of warps.  Decoding and multiplying 4096 of them (a panel) takes about 200
 * with one row of x, 300 with eight, of 528; so all depends on copies never stopping.
 *
 * Each multiprocessor has one block, which takes an equal share of all panels: a stream of bytes, copied
 * by one thread into a ring of stages of up to four panels of a group of 32 rows.  Weights depend on
 * nothing that was launched before: the ring is filled while that ends, and the second cache asked for more.
 *
 * Two warps share a stage, six such teams take stages in turn, which hides that each instruction waits for the
 * one before, and leave what a panel adds to outputs in shared memory.  Another warp adds that up meanwhile, a
 * lane a row, k ascending: the order that other products have.  It has 250 clocks for a stage and needs 150, in
 * 40 instructions: one more that waits, an address worked out anew, and it is what all wait for.
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
    const int team = qrn_warp() / QRN_STREAM_TEAM, part = qrn_warp() % QRN_STREAM_TEAM;
    int i_tile = -1, n_rows = 1;
    int next = team < p.n_stages ? team : INT32_MAX / 2; /* stages from the piece's first to the team's next one */
    qrn_ring_place ring;
    qrn_share_walk walk;
    ring.at = team;
    qrn_grid_waits();
    for (walk.start(share, p.n_panels); walk.end; walk.next_piece(share, p.n_panels)) {
        if (i_tile < 0 || (tiles.has_own_x(i_tile) && walk.group / p.n_groups != i_tile)) {
            i_tile = walk.group / p.n_groups;
            const qrn_tile tile = tiles.at(i_tile);
            if (COLUMNS > 1) n_rows = tile.n_rows;
            qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
            if (p.job.x_dtype == QRN_Q8_ACT) qrn_stream_copy_x<dtype, COLUMNS>(p, tiles, tile, s);
            else qrn_stream_round_x<dtype>(p, tiles, tile, s);
            qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        }
        const int n_stages = (walk.end - walk.panel + QRN_STREAM_PANELS - 1) / QRN_STREAM_PANELS;
        while (next < n_stages) {
            const int begin = walk.panel + next * QRN_STREAM_PANELS,
                      n_here = min(walk.end - begin, (int)QRN_STREAM_PANELS);
            float *sums = qrn_stream_sums<COLUMNS>(p, s, ring.at);
            qrn_barrier_wait(&s.places[ring.at].full, ring.parity);
            qrn_barrier_wait(&s.places[ring.at].taken, ring.parity ^ 1);
#pragma unroll 1
            for (int at = part; at < n_here; at += QRN_STREAM_TEAM) {
                const int first = (begin + at) * qrn_stream_rows<COLUMNS>(p);
                const uint8_t *panel = (const uint8_t *)s.ring + ring.at * p.stage_bytes + at * panel_bytes,
                              *x = s.x + first * QRN_STREAM_X;
                float *to = sums + at * qrn_stream_rows<COLUMNS>(p) * QRN_STREAM_P;
                const float d = s.d[first + (COLUMNS == 1 ? 0 : min(lane, n_rows - 1))];
                if constexpr (COLUMNS == 1) to[lane] = qrn_stream_panel_of_one<dtype>(form, p.flip, panel, x);
                else qrn_stream_panel_of_eight<dtype>(form, p.flip, panel, x, n_rows, to);
                if (lane < n_rows) sums[qrn_stream_d_at<COLUMNS>(p, lane) + at] = d;
            }
            qrn_barrier_arrive_warp(&s.places[ring.at].done);
            next += ring.next_of<QRN_STREAM_TEAMS>(team, p.n_stages);
        }
        next -= n_stages;
    }
}

/* --- the warp that copies: one thread of it --- */

/* Stages one after the other. */
template <class Tiles> struct qrn_stream_copies {
    const Tiles &tiles;
    qrn_share_walk walk;
    const uint8_t *from; /* the next panel */
    int left;            /* panels of the piece; 0: there are no more */

    __device__ __forceinline__ qrn_stream_copies(const qrn_matmul_stream_params &p, const Tiles &of,
                                                 const qrn_share &share)
        : tiles(of)
    {
        walk.start(share, p.n_panels);
        find(p);
    }
    __device__ __forceinline__ void find(const qrn_matmul_stream_params &p)
    {
        left = walk.end ? walk.end - walk.panel : 0;
        if (left == 0) return;
        const int i_tile = p.job.n_tiles > 1 ? walk.group / p.n_groups : 0;
        from = tiles.weights(tiles.at(i_tile)) + (walk.group - i_tile * p.n_groups) * p.job.w.group_bytes +
               walk.panel * (int)p.job.w.panel_bytes;
    }
    /* Bytes of the next stage, at `from`. */
    __device__ __forceinline__ int n_bytes(const qrn_matmul_stream_params &p) const
    {
        return left >= QRN_STREAM_PANELS ? p.stage_bytes : left * (int)p.job.w.panel_bytes;
    }
    __device__ __forceinline__ void next(const qrn_matmul_stream_params &p, const qrn_share &share)
    {
        from += p.stage_bytes;
        left -= QRN_STREAM_PANELS;
        if (left > 0) return;
        walk.next_piece(share, p.n_panels);
        find(p);
    }
    __device__ __forceinline__ void copy(const qrn_matmul_stream_params &p, const qrn_share &share,
                                         const qrn_stream_shared &s, int at, uint64_t once)
    {
        qrn_barrier_arrive_expecting(&s.places[at].full, n_bytes(p));
        qrn_bulk_copy_hinted(s.ring + at * p.stage_bytes, from, n_bytes(p), &s.places[at].full, once);
        next(p, share);
    }
};

/* What is done before a launch's turn is done at a pace, so that what is small and runs meanwhile does not wait for
 * memory. */
struct qrn_stream_pace {
    qrn_barrier *turn; /* past phase 0: it has come */
    int each;          /* clocks */
    long long next;

    __device__ __forceinline__ qrn_stream_pace(const qrn_matmul_stream_params &p, const qrn_stream_shared &s)
        : turn(s.turn), each(p.pace), next(qrn_clock() + p.n_early * p.pace)
    {
    }
    /* Waits for its time, or for the turn; whether that has come. */
    __device__ __forceinline__ bool wait()
    {
        bool on = qrn_barrier_is_past(turn, 0);
        while (!on && qrn_clock() < next) on = qrn_barrier_is_past(turn, 0);
        next += each;
        return on;
    }
};

/* The ring, and a stage for each that is multiplied.  Before the launch's turn the first stages at once, if no ids are
 * needed, and the others at a pace; then the second cache is asked for more. */
template <class Tiles>
static __device__ __forceinline__ void qrn_stream_copies_all(const qrn_matmul_stream_params &p, const Tiles &tiles,
                                                             const qrn_stream_shared &s, const qrn_share &share)
{
    const uint64_t once = qrn_read_once();
    qrn_ring_place ring;
    qrn_stream_copies<Tiles> copies(p, tiles, share);
    qrn_stream_pace pace(p, s);
#pragma unroll 1
    for (int i = 0; i < p.n_stages && copies.left; i++) {
        if (i >= p.n_early) pace.wait();
        copies.copy(p, share, s, i, once);
    }
    qrn_stream_copies<Tiles> asks = copies;
#pragma unroll 1
    for (int i = 0; i < p.n_asked && asks.left && !pace.wait(); i++) {
        qrn_prefetch_bulk(asks.from, asks.n_bytes(p));
        asks.next(p, share);
    }
    while (copies.left) {
        qrn_barrier_wait(&s.places[ring.at].done, ring.parity);
        copies.copy(p, share, s, ring.at, once);
        ring.next(p.n_stages);
    }
}

/* --- the warp that adds --- */

/* N panels' sums of a stage, each lane its row's, from panel `first` on; says when they are read. */
template <int COLUMNS, int N, class Read>
static __device__ __forceinline__ void qrn_stream_add(const qrn_matmul_stream_params &p, const float *sums, int first,
                                                      int n_rows, float (&acc)[COLUMNS], const Read &read)
{
    float e[COLUMNS][N], d[COLUMNS][N];
#pragma unroll
    for (int r = 0; r < COLUMNS; r++) {
        const int row = COLUMNS == 1 ? 0 : min(r, n_rows - 1);
#pragma unroll
        for (int i = 0; i < N; i++)
            e[r][i] = sums[((first + i) * qrn_stream_rows<COLUMNS>(p) + row) * QRN_STREAM_P + qrn_lane()];
        const float *of_row = sums + qrn_stream_d_at<COLUMNS>(p, row) + first;
        if (N == 4) {
            const float4 four = *(const float4 *)of_row;
            d[r][0] = four.x, d[r][1 % N] = four.y, d[r][2 % N] = four.z, d[r][3 % N] = four.w;
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) d[r][i] = of_row[i];
        }
    }
    read();
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < COLUMNS; r++) acc[r] = fmaf(e[r][i], d[r][i], acc[r]);
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
    int i_tile = -1, n_rows = 0;
    bool is_none = false;
    uint64_t out = 0;
    qrn_ring_place ring;
    qrn_share_walk walk;
    for (walk.start(share, p.n_panels); walk.end; walk.next_piece(share, p.n_panels)) {
        if (walk.group / p.n_groups != i_tile) {
            i_tile = walk.group / p.n_groups;
            const qrn_tile tile = tiles.at(i_tile);
            n_rows = tile.n_rows;
            is_none = tiles.is_none(tile);
            out = qrn_stream_out(tiles, tile);
        }
        float acc[COLUMNS];
#pragma unroll
        for (int r = 0; r < COLUMNS; r++) acc[r] = 0.0f;
        if (walk.panel) qrn_take_over<COLUMNS>(handover + blockIdx.x, n_rows, acc);
#pragma unroll 1
        for (int left = walk.end - walk.panel; left > 0; left -= QRN_STREAM_PANELS) {
            qrn_stream_barriers *place = &s.places[ring.at];
            const float *sums = qrn_stream_sums<COLUMNS>(p, s, ring.at);
            const auto read = [&] { qrn_barrier_arrive_warp(&place->taken); };
            qrn_barrier_wait(&place->done, ring.parity);
            if (left >= QRN_STREAM_PANELS) {
                qrn_stream_add<COLUMNS, QRN_STREAM_PANELS>(p, sums, 0, n_rows, acc, read);
            } else {
#pragma unroll 1
                for (int i = 0; i < left; i++) qrn_stream_add<COLUMNS, 1>(p, sums, i, n_rows, acc, [] {});
                read();
            }
            ring.next(p.n_stages);
        }
        if (walk.end < p.n_panels)
            qrn_hand_over<COLUMNS>(handover + blockIdx.x + 1, n_rows, acc);
        else
            qrn_stream_store<COLUMNS>(p, n_rows, is_none, out,
                                      (int64_t)(walk.group - i_tile * p.n_groups) * QRN_PANEL_ROWS + qrn_lane(), acc);
    }
}

/* --- the block --- */

template <int dtype, int COLUMNS, class Tiles>
static __device__ __forceinline__ void qrn_matmul_stream(const qrn_matmul_stream_params &p, const Tiles &tiles)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_stream_barriers places[QRN_STREAM_STAGES];
    __shared__ qrn_q8_act own[QRN_STREAM_WARPS];
    __shared__ qrn_barrier turn;
    __shared__ qrn_share share;
    qrn_stream_shared s;
    s.ring = memory;
    s.sums = (float *)(memory + p.sums_at);
    s.x = (uint8_t *)memory + p.x_at;
    s.d = (float *)(memory + p.d_at);
    s.places = places, s.own = own, s.turn = &turn;
    qrn_hold_shared(s.places), qrn_hold_shared(s.sums);
    if (threadIdx.x == 32 * QRN_STREAM_WARPS) {
#pragma unroll 1
        for (int i = 0; i < p.n_stages; i++) {
            qrn_barrier_init(&places[i].full, 1);
            qrn_barrier_init(&places[i].done, QRN_STREAM_TEAM * QRN_WARP_ARRIVALS);
            qrn_barrier_init(&places[i].taken, QRN_WARP_ARRIVALS);
        }
        qrn_barrier_init(&turn, QRN_WARP_ARRIVALS);
        qrn_barriers_are_ready();
        share = qrn_share_of((int)blockIdx.x, p.share, p.n_longer, p.n_panels);
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
        qrn_barrier_arrive_warp(s.turn);
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
