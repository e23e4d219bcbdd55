/* SPDX-License-Identifier: MIT
 * A chain of products with one row of x, as one launch.
 *
 * Weights are a stream that does not end where a product does (matmul_stream.cuh): while the last sums of one
 * product are exchanged and the next row of x is made, the ring takes the weights of the next one.
 *
 * What a Weights has, besides what matmul_chain_row.cuh names:
 *     TEAM, ADDED          warps that share a stage; stages that are added at once
 *     ALIGNMENT            of the ring, in bytes
 *     group_rows, stage_panels, stages   of a link: rows of a group, panels of a stage, stages of n panels
 *     copy_x               the first link's row
 *     walk                 through a link's share, piece by piece, for warps that multiply and for the thread that copies
 *     source               stages of a piece of a share, for that thread
 *     multiply             a warp's part of n panels of the stage at a place
 *     add<N>               N stages, with n panels in the last one
 *     add_piece            all stages of a piece of a share
 *     out_of               where a link's outputs are stored, if they are; of those of a group
 *     normed               where a norm's floats lie in shared memory, all of them; null: nowhere
 *     silu_mul             its row
 *     begins, is_made, stores   what else is done: by warps that multiply before and after the launch's turn, and when
 *                          a link's row is made; by the warp that stores, first of all */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_CUH

#include "backends/cuda/device/matmul_chain_row.cuh"
#include "backends/cuda/device/matmul_stream.cuh"

static __device__ __forceinline__ qrn_share qrn_chain_share(const qrn_chain_link &l)
{
    const int block = (int)blockIdx.x - l.first_block;
    if ((unsigned)block >= (unsigned)l.n_blocks) return qrn_share{0, 0, 0, 0};
    const int unit = qrn_chain_share_unit(&l);
    qrn_share s = qrn_share_of(block, l.share, l.n_longer, l.n_panels / unit);
    s.begin *= unit, s.end *= unit;
    return s;
}

/* The number of this launch: its turn has come. */
static __device__ __forceinline__ uint32_t qrn_chain_epoch(const qrn_matmul_chain_params &p)
{
    return ((const volatile qrn_chain_notes *)(uintptr_t)p.notes)->epoch;
}

/* Where it exchanges words: launches take turns at two sets, and clear the other one. */
static __device__ __forceinline__ uint32_t *qrn_chain_words(const qrn_matmul_chain_params &p, uint32_t epoch, int at)
{
    return (uint32_t *)(uintptr_t)p.words + (epoch & 1) * QRN_CHAIN_SET_WORDS + at;
}

/* Sums that a block hands over to the next one; each link of each launch has a tag of its own, so nothing is cleared.
 * x: what was seen there before. */
static __device__ __forceinline__ uint64_t qrn_chain_tag(uint32_t epoch, int link)
{
    return (uint64_t)(epoch * QRN_CHAIN_LINKS + link + 1) << 32;
}
static __device__ __forceinline__ float qrn_chain_take_over(const uint64_t *from, uint64_t tag, uint64_t x)
{
    while (!__all_sync(QRN_ALL_OF_WARP, x >> 32 == tag >> 32)) {
        qrn_yield();
        x = qrn_load_relaxed(from + qrn_lane());
    }
    return __uint_as_float((uint32_t)x);
}

/* What products have that are all that a link does. */
struct qrn_chain_plain {
    enum { NORM_PIECES = QRN_CHAIN_NORM_PIECES };
    static __device__ __forceinline__ qrn_share_walk walk(const qrn_chain_link &) { return qrn_share_walk(); }
    static __device__ __forceinline__ float *normed(char *) { return nullptr; }
    static __device__ __forceinline__ void begins(const qrn_chain_shared &, bool) {}
    static __device__ __forceinline__ void is_made(int, uint32_t, const qrn_chain_shared &) {}
    static __device__ __forceinline__ void stores(uint32_t, const qrn_chain_shared &) {}
};

/* --- warps that multiply --- */

template <class Weights>
static __device__ __forceinline__ void qrn_chain_make_x(const Weights &weights, const qrn_matmul_chain_params &p, int i,
                                                        uint32_t epoch, const qrn_chain_shared &s)
{
    const qrn_chain_link &l = p.link[i];
    if (l.row.kind == QRN_CHAIN_ROUNDED) {
        weights.copy_x(s);
        qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
    } else {
        qrn_barrier_wait(s.residual, 0);
        qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        const uint32_t *words = qrn_chain_words(p, epoch, p.link[i - 1].words);
        if (l.row.kind == QRN_CHAIN_NORM) {
            qrn_chain_norm<Weights>(l.row, words, s);
        } else {
            weights.silu_mul(l.row, words, qrn_chain_words(p, epoch, l.pieces), s);
            qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        }
    }
    weights.is_made(i, epoch, s);
    if (i == p.late_link) qrn_barrier_arrive_warp(s.late);
}

template <class Weights>
static __device__ __forceinline__ void qrn_chain_multiplies(const Weights &weights, const qrn_matmul_chain_params &p,
                                                            const qrn_chain_shared &s)
{
    enum { TEAMS = QRN_STREAM_WARPS / Weights::TEAM };
    const int team = qrn_warp() / Weights::TEAM;
    int next = team < p.stream.n_stages ? team : INT32_MAX / 2; /* stages to the team's next one */
    qrn_ring_place ring;
    uint32_t epoch = 0;
    ring.at = team;
#pragma unroll 1
    for (int i = 0; i < p.n_links; i++) {
        const qrn_chain_link &l = p.link[i];
        const int n_panels = l.n_panels, stage_panels = weights.stage_panels(l);
        const qrn_share share = s.share[i];
        auto walk = weights.walk(l);
        walk.start(share, n_panels);
        if (i == 0) {
            weights.begins(s, true);
            qrn_grid_waits();
            weights.begins(s, false);
            epoch = qrn_chain_epoch(p);
        }
        qrn_chain_make_x(weights, p, i, epoch, s);
        for (; walk.end; walk.next_piece(share, n_panels)) {
            const int n = walk.end - walk.panel, n_stages = weights.stages(l, n);
            while (next < n_stages) {
                const int first = next * stage_panels;
                qrn_barrier_wait(&s.stream.places[ring.at].full, ring.parity);
                weights.multiply(l, s, ring.at, walk.panel + first, min(n - first, stage_panels));
                qrn_barrier_arrive_warp(&s.stream.places[ring.at].done);
                next += ring.next_of<TEAMS>(team, p.stream.n_stages);
            }
            next -= n_stages;
        }
    }
}

/* --- the thread that copies --- */

/* The ring by addresses that are counted on: what is done for each stage is what bounds it.  Before the launch's turn,
 * where it may copy then, the first stages come at once, the others at a pace.  No more than the window are under way:
 * words that are exchanged and small loads wait behind all that was asked for before. */
template <class Weights> struct qrn_chain_copies {
    const Weights &weights;
    const qrn_matmul_chain_params &p;
    const qrn_stream_shared &s;
    const qrn_share *const shares;
    qrn_stream_pace pace;
    const uint64_t once;
    qrn_stream_barriers *const end;
    qrn_stream_barriers *place, *behind; /* of the next stage, and of the one the window before */
    char *to;                            /* where the next stage goes */
    int parity, behind_parity;
    int first_round; /* stages that the ring has room for before any is taken */

    __device__ __forceinline__ qrn_chain_copies(const Weights &of, const qrn_matmul_chain_params &params,
                                                const qrn_chain_shared &shared)
        : weights(of), p(params), s(shared.stream), shares(shared.share), pace(p.stream, s), once(qrn_read_once()),
          end(s.places + p.stream.n_stages), place(s.places), behind(s.places), to(s.ring), parity(1), behind_parity(0),
          first_round(p.stream.n_stages)
    {
    }
    __device__ __forceinline__ void wait_behind()
    {
        qrn_barrier_wait(&behind->full, behind_parity);
        if (++behind == end) behind = s.places, behind_parity ^= 1;
    }
    /* Until the next stage may be asked for. */
    __device__ __forceinline__ void wait()
    {
        if (first_round > 0) {
            const int n = p.stream.n_stages - first_round--;
            if (n >= p.stream.n_early) pace.wait();
            if (n >= p.window) wait_behind();
        } else {
            qrn_barrier_wait(&place->taken, parity);
            wait_behind();
        }
    }
    /* The next stage, of n panels. */
    __device__ __forceinline__ void copy(typename Weights::source &source, int n)
    {
        wait();
        source.copy(weights, to, &place->full, n, once);
        to += p.stream.stage_bytes;
        if (++place == end) place = s.places, to = s.ring, parity ^= 1;
    }
    __device__ __forceinline__ void all()
    {
        if (p.stream.n_early == 0) qrn_grid_waits();
#pragma unroll 1
        for (int i = 0; i < p.n_links; i++) {
            const qrn_chain_link &l = p.link[i];
            const int n_panels = l.n_panels, stage_panels = weights.stage_panels(l);
            const qrn_share share = shares[i];
            auto walk = weights.walk(l);
            for (walk.start(share, n_panels); walk.end; walk.next_piece(share, n_panels)) {
                typename Weights::source source(weights, i, walk);
                int left = walk.end - walk.panel;
#pragma unroll 1
                for (; left >= stage_panels; left -= stage_panels) copy(source, stage_panels);
                if (left > 0) copy(source, left);
            }
        }
    }
};

/* --- the warp that adds --- */

/* The next n panels, ascending. */
template <class Weights>
static __device__ __forceinline__ void qrn_chain_add_panels(const Weights &weights, const qrn_chain_link &l,
                                                            const qrn_chain_shared &s, int n, qrn_ring_place &ring,
                                                            float (&acc)[1])
{
    const int stage_panels = weights.stage_panels(l);
#pragma unroll 1
    for (; n >= Weights::ADDED * stage_panels; n -= Weights::ADDED * stage_panels)
        weights.template add<Weights::ADDED>(l, s, stage_panels, ring, acc);
#pragma unroll 1
    for (; n > 0; n -= stage_panels) weights.template add<1>(l, s, n, ring, acc);
}

template <class Weights>
static __device__ __forceinline__ void qrn_chain_adds(const Weights &weights, const qrn_matmul_chain_params &p,
                                                      const qrn_chain_shared &s)
{
    uint64_t *handover = (uint64_t *)(uintptr_t)p.stream.handover + (int)blockIdx.x * QRN_PANEL_ROWS;
    qrn_ring_place ring;
    qrn_grid_waits();
    const uint32_t epoch = qrn_chain_epoch(p);
    qrn_barrier_arrive_warp(s.stream.turn);
#pragma unroll 1
    for (int i = 0; i < p.n_links; i++) {
        const qrn_chain_link &l = p.link[i];
        const qrn_share share = s.share[i];
        const int n_panels = l.n_panels, n_rows = (int)l.w.n, group_rows = weights.group_rows(l);
        uint32_t *words = i + 1 < p.n_links ? qrn_chain_words(p, epoch, l.words) : nullptr;
        uint64_t seen = 0; /* of what is handed over, which is asked for a group ahead */
        qrn_share_walk walk;
        for (walk.start(share, n_panels); walk.end; walk.next_piece(share, n_panels)) {
            float acc[1] = {0.0f};
            if (walk.panel) acc[0] = qrn_chain_take_over(handover, qrn_chain_tag(epoch, i), seen);
            else seen = qrn_load_relaxed(handover + qrn_lane());
            weights.add_piece(i, epoch, s, walk, ring, acc);
            const int n = walk.group * group_rows + qrn_lane();
            if (walk.end < n_panels) {
                qrn_store_relaxed(handover + QRN_PANEL_ROWS + qrn_lane(),
                                  qrn_chain_tag(epoch, i) | __float_as_uint(acc[0]));
            } else if (qrn_lane() < group_rows && n < n_rows) {
                if (words) qrn_publish(words + n, qrn_word_of_float(acc[0]));
                float *out = weights.out_of(i, walk.group);
                if (out) out[n] = acc[0];
            }
        }
    }
}

/* --- the warp that stores what is late, and first of all asks for what the first norm reads --- */

/* The residual stream that it adds to, if any; one thread. */
static __device__ __forceinline__ void qrn_chain_ask_residual(const qrn_matmul_chain_params &p, const qrn_chain_shared &s)
{
    const int n_bytes = p.residual ? 4 * p.n_residual : 0;
    qrn_barrier_arrive_expecting(s.residual, n_bytes);
    if (n_bytes) qrn_bulk_copy(s.sum, (const void *)(uintptr_t)p.residual, n_bytes, s.residual);
}

/* Brings weights of norms to the second cache: from memory, behind those of products, they would come late. */
static __device__ __forceinline__ void qrn_chain_ask_weights(const qrn_matmul_chain_params &p)
{
    enum { LINE = 32 };
    for (int i = 1; i < p.n_links; i++) {
        const float *weight = (const float *)(uintptr_t)p.link[i].row.weight;
        for (int at = LINE * (int)(blockIdx.x + gridDim.x * qrn_lane()); weight && at < p.link[i].row.n;
             at += LINE * 32 * (int)gridDim.x)
            qrn_prefetch(weight + at);
    }
}

template <class Weights>
static __device__ __forceinline__ void qrn_chain_stores(const Weights &weights, const qrn_matmul_chain_params &p,
                                                        const qrn_chain_shared &s)
{
    qrn_chain_notes *notes = (qrn_chain_notes *)(uintptr_t)p.notes;
    const qrn_chain_row &row = p.link[p.late_link].row;
    const int n = row.n / QRN_PIECE, lane = qrn_lane();
    qrn_chain_ask_weights(p);
    qrn_grid_waits();
    if (qrn_elected()) qrn_chain_ask_residual(p, s);
    const uint32_t epoch = qrn_chain_epoch(p), n_dirty = ((const volatile qrn_chain_notes *)notes)->n_dirty;
    uint4 *dirty = (uint4 *)qrn_chain_words(p, epoch + 1, 0);
    for (uint32_t i = blockIdx.x * 32 + lane; i < n_dirty / 4; i += 32 * gridDim.x) dirty[i] = make_uint4(0, 0, 0, 0);
    qrn_barrier_wait(s.stream.turn, 0);
    weights.stores(epoch, s);
    qrn_barrier_wait(s.late, 0);
    if (lane == 0) qrn_meet_at(&notes->loaded, qrn_come_to(&notes->loaded));
    __syncwarp();
    for (int piece = (int)blockIdx.x; piece < n; piece += (int)gridDim.x) {
        const int at = piece * (QRN_PIECE / 4) + lane;
        if (row.sum) ((float4 *)(uintptr_t)row.sum)[at] = ((const float4 *)s.sum)[at];
        if (row.out)
            ((float4 *)(uintptr_t)row.out)[at] = ((const float4 *)s.kept)[piece / (int)gridDim.x * (QRN_PIECE / 4) + lane];
    }
    if (blockIdx.x == 0 && lane == 0) notes->epoch = epoch + 1, notes->n_dirty = p.n_words;
}

/* --- the block --- */

template <class Weights>
static __device__ __forceinline__ void qrn_matmul_chain(const Weights &weights, const qrn_matmul_chain_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_stream_barriers places[QRN_CHAIN_STAGES];
    __shared__ __align__(16) float squares[QRN_CHAIN_NORM_PIECES * QRN_STREAM_WARPS];
    __shared__ qrn_barrier turn, residual, late;
    __shared__ qrn_share share[QRN_CHAIN_LINKS];

    qrn_chain_shared s;
    char *ring = Weights::ALIGNMENT > 1 ? (char *)qrn_align_shared(memory, Weights::ALIGNMENT) : memory;
    s.stream.ring = ring;
    s.stream.sums = (float *)(ring + p.stream.sums_at);
    s.stream.x = (uint8_t *)ring + p.stream.x_at;
    s.stream.d = (float *)(ring + p.stream.d_at);
    s.stream.places = places, s.stream.turn = &turn;
    s.squares = squares, s.share = share, s.residual = &residual, s.late = &late;
    s.kept = (float *)(ring + p.kept_at), s.sum = (float *)(ring + p.sum_at);
    s.normed = weights.normed(ring);
    qrn_hold_shared(s.stream.places), qrn_hold_shared(s.stream.sums);
    qrn_make_barriers<QRN_CHAIN_STAGES, QRN_STREAM_WARPS>([&](int i) {
        qrn_barrier_init(&places[i].full, 1);
        qrn_barrier_init(&places[i].done, Weights::TEAM * QRN_WARP_ARRIVALS);
        qrn_barrier_init(&places[i].taken, QRN_WARP_ARRIVALS);
    });
    if (threadIdx.x == 32 * (QRN_STREAM_WARPS + 1)) {
        qrn_barrier_init(&turn, QRN_WARP_ARRIVALS);
        qrn_barrier_init(&residual, 1);
        qrn_barrier_init(&late, QRN_STREAM_WARPS * QRN_WARP_ARRIVALS);
        qrn_barriers_are_ready();
    }
    const int i_link = (int)threadIdx.x - 32 * (QRN_STREAM_WARPS + 2); /* of the warp that stores */
    if (i_link >= 0 && i_link < p.n_links) share[i_link] = qrn_chain_share(p.link[i_link]);
    if (threadIdx.x < QRN_CHAIN_NORM_PIECES * QRN_STREAM_WARPS) squares[threadIdx.x] = 0.0f;
    __syncthreads();
    if (qrn_warp() < QRN_STREAM_WARPS) qrn_chain_multiplies(weights, p, s);
    else if (qrn_warp() == QRN_STREAM_WARPS + 1) qrn_chain_adds(weights, p, s);
    else if (qrn_warp() == QRN_STREAM_WARPS + 2) qrn_chain_stores(weights, p, s);
    else if (qrn_elected()) qrn_chain_copies<Weights>(weights, p, s).all();
}

#endif
