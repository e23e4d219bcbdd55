/* SPDX-License-Identifier: MIT
 * Products of packed weights with few rows of x on Hopper, for each type a function of its own.
 *
 * Bound by reading weights once: 18.5 bytes a clock and multiprocessor, 31 weights of Q4_K, for which it
 * may issue four instructions of warps.  Decoding and multiplying 4096 of them (a panel) takes about 200
 * with one row of x, 230 with four, 280 with eight, of 528; so all depends on copies never stopping, and what the ring
 * holds when x comes is multiplied at twice the pace of memory.
 *
 * Each multiprocessor has one block, which takes an equal share of all panels: a stream of bytes, copied
 * by one thread into a ring of stages of up to four panels of a group of 32 rows.  Weights depend on
 * nothing that was launched before: the ring is filled while that ends, and the second cache asked for more.
 *
 * Four warps share a stage, a panel each, or with two to four rows of x half of two panels; three such teams take
 * stages in turn, which hides that each instruction waits for the one before.  What a panel adds to outputs they leave in
 * shared memory.  Another warp adds that up meanwhile, or two for several rows of x, a lane a row of weights, k
 * ascending: the order that other products have.  It takes five clocks for each instruction and has 250 for a stage: one
 * division at the end of a group, an address worked out anew, and it is what all wait for.  With one row it has two
 * stages under way.  Then the stage's place is free.
 *
 * A group that a share's end cuts is summed by two blocks.  The first one begins with its part of that
 * group, and hands the sum over; the second one does its part last of all, long after.  It is no waiting for
 * blocks that may never run: nobody waits but for the one before, which began earlier. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_CUH

#include "backends/cuda/device/matmul_stream_x.cuh"
#include "backends/cuda/device/once.cuh"

/* --- warps that multiply --- */

/* What warp `part` of a team multiplies of a stage of n_here panels, the first of which is the piece's number `begin`;
 * d of x beside it. */
template <int dtype, int COLUMNS>
static __device__ __forceinline__ void qrn_stream_multiply_part(const qrn_matmul_stream_params &p, const qrn_panel_form &form,
                                                                const qrn_stream_shared &s,
                                                                const qrn_stream_columns<COLUMNS> &x, const uint8_t *stage,
                                                                int part, int begin, int n_here, int n_rows, float *sums)
{
    const int lane = qrn_lane(), panel_bytes = (int)p.job.w.panel_bytes, n_side = qrn_stream_rows<COLUMNS>(p);
    const bool has_d = part < n_here && lane < n_rows;
    float d = 0.0f;
    if (has_d) d = COLUMNS == 1 ? s.d[begin + part] : *(const float *)(s.x + lane * p.x_pitch + (begin + part) * QRN_STREAM_Q8);
    if constexpr (COLUMNS == 1) {
        if (part < n_here)
            sums[part * QRN_STREAM_P + lane] = qrn_stream_panel_of_one<dtype>(form, p.flip, stage + part * panel_bytes,
                                                                              s.x + (begin + part) * QRN_STREAM_X);
    } else {
        enum { PANELS = qrn_stream_columns<COLUMNS>::PANELS };
        const int at = part - part % PANELS;
        qrn_stream_work<COLUMNS> work;
        work.n_panels = n_here - at, work.first_row = QRN_PANEL_ROWS / PANELS * (part % PANELS);
        work.p = sums + at * n_side * QRN_STREAM_P, work.p_panel = n_side * QRN_STREAM_P;
#pragma unroll
        for (int i = 0; i < PANELS; i++) {
            const int there = i < work.n_panels ? at + i : at;
            work.panel[i] = stage + there * panel_bytes;
            work.k[i] = begin + there;
        }
        if (at < n_here) qrn_stream_multiply_panels<dtype, COLUMNS>(form, p.flip, x, work);
    }
    if (has_d) sums[qrn_stream_d_at<COLUMNS>(p, lane) + part] = d;
}

template <int dtype, int COLUMNS, class Tiles>
static __device__ __forceinline__ void qrn_stream_multiplies(const qrn_matmul_stream_params &p, const Tiles &tiles,
                                                             const qrn_stream_shared &s,
                                                             const qrn_share &share)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    const int team = qrn_warp() / QRN_STREAM_TEAM, part = qrn_warp() % QRN_STREAM_TEAM;
    int n_rows = 1, next = team < p.n_stages ? team : INT32_MAX / 2; /* stages from the piece's first to the team's next */
    uint64_t x_rows = 0;
    int x_parity = 0;
    bool x_is_there = false;
    qrn_ring_place ring;
    qrn_share_walk walk;
    qrn_stream_tile_walk of_tile;
    qrn_stream_columns<COLUMNS> x;
    ring.at = team;
    walk.start(share, p.n_panels);
    const auto go_to_tile = [&] {
        if (!of_tile.go(p, walk.group)) return;
        const qrn_tile tile = tiles.at(of_tile.i);
        if (COLUMNS > 1) n_rows = tile.n_rows;
        if constexpr (COLUMNS > 1) x.find(s.x, s.zeros, n_rows, p.x_pitch);
        x_rows = qrn_stream_x_rows(tiles, tile);
        x_is_there = x_is_there && !tiles.has_own_x(of_tile.i);
    };
    if (tiles.x_is_known()) go_to_tile();
    qrn_grid_waits();
    for (; walk.end; walk.next_piece(share, p.n_panels)) {
        go_to_tile();
        if (!x_is_there) {
            qrn_stream_take_x<dtype, COLUMNS>(p, x_rows, n_rows, s, x_parity);
            x_is_there = true;
        }
        const int n_stages = (walk.end - walk.panel + QRN_STREAM_PANELS - 1) / QRN_STREAM_PANELS;
        while (next < n_stages) {
            const int begin = walk.panel + next * QRN_STREAM_PANELS,
                      n_here = min(walk.end - begin, (int)QRN_STREAM_PANELS);
            qrn_barrier_wait(&s.places[ring.at].full, ring.parity);
            qrn_stream_multiply_part<dtype, COLUMNS>(p, form, s, x, (const uint8_t *)s.ring + ring.at * p.stage_bytes, part,
                                                     begin, n_here, n_rows, qrn_stream_sums<COLUMNS>(p, s, ring.at));
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
        qrn_barrier_wait(&s.places[ring.at].taken, ring.parity);
        copies.copy(p, share, s, ring.at, once);
        ring.next(p.n_stages);
    }
}

/* --- the warp that adds --- */

/* What a stage leaves for MINE rows of x, from row `first` on, each lane its row of weights: sums of panels, d of x. */
template <int MINE> struct qrn_stream_stage {
    float e[MINE][QRN_STREAM_PANELS], d[MINE][QRN_STREAM_PANELS];

    template <int COLUMNS>
    __device__ __forceinline__ void read(const qrn_matmul_stream_params &p, const float *sums, int first, int n_rows)
    {
#pragma unroll
        for (int r = 0; r < MINE; r++) {
            const int row = COLUMNS == 1 ? 0 : min(first + r, n_rows - 1);
#pragma unroll
            for (int i = 0; i < QRN_STREAM_PANELS; i++)
                e[r][i] = sums[(i * qrn_stream_rows<COLUMNS>(p) + row) * QRN_STREAM_P + qrn_lane()];
            const float4 of_row = *(const float4 *)(sums + qrn_stream_d_at<COLUMNS>(p, row));
            d[r][0] = of_row.x, d[r][1] = of_row.y, d[r][2] = of_row.z, d[r][3] = of_row.w;
        }
    }
    /* Of its first n panels. */
    __device__ __forceinline__ void add(int n, float (&acc)[MINE]) const
    {
#pragma unroll
        for (int i = 0; i < QRN_STREAM_PANELS; i++)
#pragma unroll
            for (int r = 0; i < n && r < MINE; r++) acc[r] = fmaf(e[r][i], d[r][i], acc[r]);
    }
};
static_assert(QRN_STREAM_PANELS == 4, "");

/* N stages that follow each other, with n panels in the last one: all of them are waited for and asked for, then added. */
template <int COLUMNS, int MINE, int N>
static __device__ __forceinline__ void qrn_stream_add_stages(const qrn_matmul_stream_params &p, const qrn_stream_shared &s,
                                                             int first, int n_rows, int n, qrn_ring_place &ring,
                                                             float (&acc)[MINE])
{
    qrn_stream_stage<MINE> stage[N];
    qrn_barrier *taken[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        taken[i] = &s.places[ring.at].taken;
        qrn_barrier_wait(&s.places[ring.at].done, ring.parity);
        stage[i].template read<COLUMNS>(p, qrn_stream_sums<COLUMNS>(p, s, ring.at), first, n_rows);
        ring.next(p.n_stages);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        stage[i].add(i < N - 1 ? (int)QRN_STREAM_PANELS : n, acc);
        qrn_barrier_arrive_warp(taken[i]);
    }
}

/* Where a tile's rows of out begin: lane r has row r's. */
template <class Tiles>
static __device__ __forceinline__ uint64_t qrn_stream_out(const Tiles &tiles, const qrn_tile &tile)
{
    return qrn_lane() < tile.n_rows ? (uint64_t)(uintptr_t)tiles.out_row(tile, qrn_lane()) : 0;
}

/* The lane's row of weights, n, for MINE rows of x. */
template <int MINE>
static __device__ __forceinline__ void qrn_stream_store(const qrn_matmul_stream_params &p, int first, int n_rows,
                                                        bool is_none, uint64_t out, int n, const float (&acc)[MINE])
{
#pragma unroll
    for (int r = 0; r < MINE; r++) {
        float *row = (float *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, out, first + r);
        if (first + r < n_rows && n < (int)p.job.w.n) row[n] = is_none ? __uint_as_float(0x7fc00000u) : acc[r];
    }
}

/* Of MINE rows of x, from row `first` on. */
template <int COLUMNS, int MINE, class Tiles>
static __device__ __forceinline__ void qrn_stream_adds(const qrn_matmul_stream_params &p, const Tiles &tiles,
                                                       const qrn_stream_shared &s, const qrn_share &share, int first)
{
    enum { AT_ONCE = MINE == 1 ? 2 : 1 }; /* stages: what latency costs is shared by both */
    qrn_stream_handover *handover = (qrn_stream_handover *)(uintptr_t)p.handover;
    int n_rows = 0;
    bool is_none = false;
    uint64_t out = 0;
    qrn_ring_place ring;
    qrn_share_walk walk;
    qrn_stream_tile_walk of_tile;
    const auto go_to_tile = [&] {
        if (!of_tile.go(p, walk.group)) return;
        const qrn_tile tile = tiles.at(of_tile.i);
        n_rows = tile.n_rows;
        is_none = tiles.is_none(tile);
        out = qrn_stream_out(tiles, tile);
    };
    walk.start(share, p.n_panels);
    if (tiles.out_is_known()) go_to_tile();
    qrn_grid_waits();
    if (first == 0) qrn_barrier_arrive_warp(s.turn);
    tiles.adds_begin();
    for (; walk.end; walk.next_piece(share, p.n_panels)) {
        go_to_tile();
        float acc[MINE];
#pragma unroll
        for (int r = 0; r < MINE; r++) acc[r] = 0.0f;
        if (walk.panel) qrn_take_over<MINE>(handover + blockIdx.x, first, n_rows, acc);
        int left = walk.end - walk.panel;
#pragma unroll 1
        for (; left >= AT_ONCE * QRN_STREAM_PANELS; left -= AT_ONCE * QRN_STREAM_PANELS)
            qrn_stream_add_stages<COLUMNS, MINE, AT_ONCE>(p, s, first, n_rows, QRN_STREAM_PANELS, ring, acc);
#pragma unroll 1
        for (; left > 0; left -= QRN_STREAM_PANELS)
            qrn_stream_add_stages<COLUMNS, MINE, 1>(p, s, first, n_rows, left, ring, acc);
        if (walk.end < p.n_panels)
            qrn_hand_over<MINE>(handover + blockIdx.x + 1, first, n_rows, acc);
        else
            qrn_stream_store(p, first, n_rows, is_none, out,
                             (walk.group - of_tile.begin) * QRN_PANEL_ROWS + qrn_lane(), acc);
    }
}

/* --- the block --- */

template <int dtype, int COLUMNS, class Tiles>
static __device__ __forceinline__ void qrn_matmul_stream(const qrn_matmul_stream_params &p, const Tiles &tiles)
{
    constexpr int N_ADDERS = qrn_stream_adders(COLUMNS);
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_stream_barriers places[QRN_STREAM_STAGES];
    __shared__ qrn_q8_act own[QRN_STREAM_WARPS];
    __shared__ qrn_barrier turn, x_there;
    __shared__ qrn_share share;
    __shared__ uint32_t zeros[QRN_STREAM_Q8 / 4];
    qrn_stream_shared s;
    s.ring = memory;
    s.sums = (float *)(memory + p.sums_at);
    s.x = (uint8_t *)memory + p.x_at;
    s.d = (float *)(memory + p.d_at);
    s.places = places, s.own = own, s.turn = &turn, s.x_there = &x_there, s.zeros = (const uint8_t *)zeros;
    qrn_hold_shared(s.places), qrn_hold_shared(s.sums);
    if (COLUMNS > 1 && threadIdx.x < QRN_STREAM_Q8 / 4) zeros[threadIdx.x] = 0;
    qrn_make_barriers<QRN_STREAM_STAGES, QRN_STREAM_WARPS>([&](int i) {
        qrn_barrier_init(&places[i].full, 1);
        qrn_barrier_init(&places[i].done, QRN_STREAM_TEAM * QRN_WARP_ARRIVALS);
        qrn_barrier_init(&places[i].taken, N_ADDERS * QRN_WARP_ARRIVALS);
    });
    if (threadIdx.x == 32 * (QRN_STREAM_WARPS + 1)) {
        qrn_barrier_init(&turn, QRN_WARP_ARRIVALS);
        qrn_barrier_init(&x_there, 1);
        qrn_barriers_are_ready();
    }
    if (threadIdx.x == 32 * QRN_STREAM_WARPS)
        share = qrn_share_of((int)blockIdx.x, p.share, p.n_longer, p.n_panels);
    __syncthreads();
    if (qrn_warp() == QRN_STREAM_WARPS) {
        tiles.copies_begin();
        if (qrn_elected()) qrn_stream_copies_all(p, tiles, s, share);
        return;
    }
    if (qrn_warp() < QRN_STREAM_WARPS)
        qrn_stream_multiplies<dtype, COLUMNS>(p, tiles, s, share);
    else
        qrn_stream_adds<COLUMNS, COLUMNS / N_ADDERS>(p, tiles, s, share,
                                                     (qrn_warp() - QRN_STREAM_WARPS - 1) * (COLUMNS / N_ADDERS));
}

/* Two blocks of one row leave room for one of the next launch. */
#define QRN_MATMUL_STREAM(NAME)                                                                   \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_stream1_##NAME, qrn_stream_threads(1), 2,               \
                              qrn_matmul_stream_params)                                          \
    {                                                                                            \
        qrn_matmul_stream<QRN_##NAME, 1>(p, qrn_stream_tiles{p});                                \
    }                                                                                            \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_stream4_##NAME, qrn_stream_threads(QRN_STREAM_FEW), 1,    \
                              qrn_matmul_stream_params)                                          \
    {                                                                                            \
        qrn_matmul_stream<QRN_##NAME, QRN_STREAM_FEW>(p, qrn_stream_tiles{p});                   \
    }                                                                                            \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_stream8_##NAME, qrn_stream_threads(QRN_STREAM_COLUMNS), 1, \
                              qrn_matmul_stream_params)                                          \
    {                                                                                            \
        qrn_matmul_stream<QRN_##NAME, QRN_STREAM_COLUMNS>(p, qrn_stream_tiles{p});               \
    }

#endif
