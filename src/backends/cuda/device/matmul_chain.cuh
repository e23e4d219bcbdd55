/* SPDX-License-Identifier: MIT
 * A chain of products of packed weights with one row of x, as one launch.
 *
 * Weights are a stream that does not end where a product does (matmul_stream.cuh): while the last sums of one
 * product are exchanged and the next row of x is made, the ring takes the weights of the next one. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_CUH

#include "backends/cuda/device/matmul_chain_row.cuh"
#include "backends/cuda/device/matmul_stream.cuh"

static __device__ __forceinline__ qrn_share qrn_chain_share(const qrn_chain_link &l)
{
    if ((int)blockIdx.x >= l.n_blocks) return qrn_share{0, 0, 0, 0};
    return qrn_share_of((int)blockIdx.x, l.share, l.n_longer, l.n_panels);
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

/* Sums that a block hands over to the next one; each link of each launch has a tag of its own, so nothing is cleared. */
static __device__ __forceinline__ uint64_t qrn_chain_tag(uint32_t epoch, int link)
{
    return (uint64_t)(epoch * QRN_CHAIN_LINKS + link + 1) << 32;
}
static __device__ __forceinline__ float qrn_chain_take_over(const uint64_t *from, uint64_t tag)
{
    uint64_t x = qrn_load_relaxed(from + qrn_lane());
    while (!__all_sync(QRN_ALL_OF_WARP, x >> 32 == tag >> 32)) {
        qrn_yield();
        x = qrn_load_relaxed(from + qrn_lane());
    }
    return __uint_as_float((uint32_t)x);
}

/* --- warps that multiply --- */

/* The residual stream that the first norm adds to. */
static __device__ __forceinline__ void qrn_chain_ask_residual(const qrn_matmul_chain_params &p, const qrn_chain_shared &s)
{
    const char *from = (const char *)(uintptr_t)p.residual;
    for (int i = (int)threadIdx.x; from && i < p.n_residual / 4; i += 32 * QRN_STREAM_WARPS)
        qrn_copy16_async((char *)s.sum + 16 * i, from + 16 * i, 16);
}

template <int dtype>
static __device__ __forceinline__ void qrn_chain_make_x(const qrn_matmul_chain_params &p, int i, uint32_t epoch,
                                                        const qrn_chain_shared &s)
{
    const qrn_chain_link &l = p.link[i];
    qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
    if (l.row.kind == QRN_CHAIN_NORM)
        qrn_chain_norm<dtype>(l.row, qrn_chain_words(p, epoch, p.link[i - 1].words), s);
    else if (l.row.kind == QRN_CHAIN_SILU_MUL)
        qrn_chain_silu_mul<dtype>(l.row, qrn_chain_words(p, epoch, p.link[i - 1].words),
                                  qrn_chain_words(p, epoch, l.pieces), s);
    else qrn_stream_copy_x<dtype, 1>(p.stream, l.x, 1, s.stream);
    qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
    if (qrn_warp() == 0 && i == p.late_link) qrn_barrier_arrive_warp(s.late);
}

template <int dtype>
static __device__ __forceinline__ void qrn_chain_multiply_stage(const qrn_matmul_stream_params &p,
                                                                const qrn_panel_form &form, const qrn_stream_shared &s,
                                                                const qrn_ring_place &ring, int begin, int n_here, int part)
{
    const int lane = qrn_lane(), panel_bytes = (int)p.job.w.panel_bytes;
    float *sums = qrn_stream_sums<1>(p, s, ring.at);
    qrn_barrier_wait(&s.places[ring.at].full, ring.parity);
#pragma unroll 1
    for (int at = part; at < n_here; at += QRN_STREAM_TEAM) {
        const uint8_t *panel = (const uint8_t *)s.ring + ring.at * p.stage_bytes + at * panel_bytes;
        const float d = s.d[begin + at];
        sums[at * QRN_STREAM_P + lane] =
            qrn_stream_panel_of_one<dtype>(form, p.flip, panel, s.x + (begin + at) * QRN_STREAM_X);
        if (lane == 0) sums[qrn_stream_d_at<1>(p, 0) + at] = d;
    }
    qrn_barrier_arrive_warp(&s.places[ring.at].done);
}

template <int dtype>
static __device__ __forceinline__ void qrn_chain_multiplies(const qrn_matmul_chain_params &p, const qrn_chain_shared &s)
{
    const qrn_matmul_stream_params &layout = p.stream;
    const qrn_panel_form form = qrn_panel_form_of(dtype, layout.job.w);
    const int team = qrn_warp() / QRN_STREAM_TEAM, part = qrn_warp() % QRN_STREAM_TEAM;
    int next = team < layout.n_stages ? team : INT32_MAX / 2; /* stages to the team's next one */
    qrn_ring_place ring;
    ring.at = team;
    qrn_grid_waits();
    const uint32_t epoch = qrn_chain_epoch(p);
    qrn_chain_ask_residual(p, s);
#pragma unroll 1
    for (int i = 0; i < p.n_links; i++) {
        const int n_panels = p.link[i].n_panels;
        const qrn_share share = qrn_chain_share(p.link[i]);
        qrn_share_walk walk;
        walk.start(share, n_panels);
        qrn_chain_make_x<dtype>(p, i, epoch, s);
        for (; walk.end; walk.next_piece(share, n_panels)) {
            const int n = walk.end - walk.panel, n_stages = (n + QRN_STREAM_PANELS - 1) / QRN_STREAM_PANELS;
            while (next < n_stages) {
                qrn_chain_multiply_stage<dtype>(layout, form, s.stream, ring, walk.panel + next * QRN_STREAM_PANELS,
                                                min(n - next * QRN_STREAM_PANELS, (int)QRN_STREAM_PANELS), part);
                next += ring.next_of<QRN_STREAM_TEAMS>(team, layout.n_stages);
            }
            next -= n_stages;
        }
    }
}

/* --- the thread that copies --- */

/* Before the launch's turn the first stages come at once, the others at a pace.  No more than the window are under way:
 * words that are exchanged and small loads wait behind all that was asked for before. */
static __device__ __forceinline__ void qrn_chain_copies(const qrn_matmul_chain_params &p, const qrn_chain_shared &s)
{
    const uint64_t once = qrn_read_once();
    const int stage_bytes = p.stream.stage_bytes, panel_bytes = (int)p.stream.job.w.panel_bytes;
    qrn_ring_place ring, behind; /* behind: the stage p.window before */
    qrn_stream_pace pace(p.stream, s.stream);
    int n = 0; /* stages begun */
#pragma unroll 1
    for (int i = 0; i < p.n_links; i++) {
        const qrn_chain_link &l = p.link[i];
        const qrn_share share = qrn_chain_share(l);
        qrn_share_walk walk;
        for (walk.start(share, l.n_panels); walk.end; walk.next_piece(share, l.n_panels)) {
            const uint8_t *from = qrn_panel_at(l.w, 0, walk.group, walk.panel);
#pragma unroll 1
            for (int left = walk.end - walk.panel; left > 0; left -= QRN_STREAM_PANELS, from += stage_bytes) {
                const int bytes = left >= QRN_STREAM_PANELS ? stage_bytes : left * panel_bytes;
                if (n >= p.stream.n_stages) qrn_barrier_wait(&s.stream.places[ring.at].taken, ring.parity ^ 1);
                else if (n >= p.stream.n_early) pace.wait();
                if (n++ >= p.window) {
                    qrn_barrier_wait(&s.stream.places[behind.at].full, behind.parity);
                    behind.next(p.stream.n_stages);
                }
                qrn_barrier_arrive_expecting(&s.stream.places[ring.at].full, bytes);
                qrn_bulk_copy_hinted(s.stream.ring + ring.at * stage_bytes, from, bytes, &s.stream.places[ring.at].full,
                                     once);
                ring.next(p.stream.n_stages);
            }
        }
    }
}

/* --- the warp that adds --- */

static __device__ __forceinline__ void qrn_chain_adds(const qrn_matmul_chain_params &p, const qrn_chain_shared &s)
{
    uint64_t *handover = (uint64_t *)(uintptr_t)p.stream.handover + (int)blockIdx.x * QRN_PANEL_ROWS;
    qrn_ring_place ring;
    qrn_grid_waits();
    const uint32_t epoch = qrn_chain_epoch(p);
    qrn_barrier_arrive_warp(s.stream.turn);
#pragma unroll 1
    for (int i = 0; i < p.n_links; i++) {
        const qrn_chain_link &l = p.link[i];
        const qrn_share share = qrn_chain_share(l);
        const int n_panels = l.n_panels, n_rows = (int)l.w.n;
        uint32_t *words = i + 1 < p.n_links ? qrn_chain_words(p, epoch, l.words) : nullptr;
        float *out = (float *)(uintptr_t)l.out;
        qrn_share_walk walk;
        for (walk.start(share, n_panels); walk.end; walk.next_piece(share, n_panels)) {
            float acc[1] = {0.0f};
            if (walk.panel) acc[0] = qrn_chain_take_over(handover, qrn_chain_tag(epoch, i));
            int left = walk.end - walk.panel;
#pragma unroll 1
            for (; left >= 2 * QRN_STREAM_PANELS; left -= 2 * QRN_STREAM_PANELS)
                qrn_stream_add_stages<1, 1, 2>(p.stream, s.stream, 0, 1, QRN_STREAM_PANELS, ring, acc);
#pragma unroll 1
            for (; left > 0; left -= QRN_STREAM_PANELS)
                qrn_stream_add_stages<1, 1, 1>(p.stream, s.stream, 0, 1, left, ring, acc);
            const int n = walk.group * QRN_PANEL_ROWS + qrn_lane();
            if (walk.end < n_panels) {
                qrn_store_relaxed(handover + QRN_PANEL_ROWS + qrn_lane(),
                                  qrn_chain_tag(epoch, i) | __float_as_uint(acc[0]));
            } else if (n < n_rows) {
                if (words) qrn_publish(words + n, qrn_word_of_float(acc[0]));
                if (out) out[n] = acc[0];
            }
        }
    }
}

/* --- the warp that stores what is late --- */

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

static __device__ __forceinline__ void qrn_chain_stores(const qrn_matmul_chain_params &p, const qrn_chain_shared &s)
{
    qrn_chain_notes *notes = (qrn_chain_notes *)(uintptr_t)p.notes;
    const qrn_chain_row &row = p.link[p.late_link].row;
    const int n = row.n / QRN_PIECE, lane = qrn_lane();
    qrn_chain_ask_weights(p);
    qrn_grid_waits();
    const uint32_t epoch = qrn_chain_epoch(p), n_dirty = ((const volatile qrn_chain_notes *)notes)->n_dirty;
    uint4 *dirty = (uint4 *)qrn_chain_words(p, epoch + 1, 0);
    for (uint32_t i = blockIdx.x * 32 + lane; i < n_dirty / 4; i += 32 * gridDim.x) dirty[i] = make_uint4(0, 0, 0, 0);
    qrn_barrier_wait(s.stream.turn, 0);
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

template <int dtype> static __device__ __forceinline__ void qrn_matmul_chain(const qrn_matmul_chain_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_stream_barriers places[QRN_CHAIN_STAGES];
    __shared__ qrn_q8_act own[QRN_STREAM_WARPS];
    __shared__ __align__(16) float squares[QRN_CHAIN_NORM_PIECES * QRN_STREAM_WARPS];
    __shared__ qrn_barrier turn, late;

    qrn_chain_shared s;
    s.stream.ring = memory;
    s.stream.sums = (float *)(memory + p.stream.sums_at);
    s.stream.x = (uint8_t *)memory + p.stream.x_at;
    s.stream.d = (float *)(memory + p.stream.d_at);
    s.stream.places = places, s.stream.own = own, s.stream.turn = &turn;
    s.squares = squares, s.late = &late;
    s.kept = (float *)(memory + p.kept_at), s.sum = (float *)(memory + p.sum_at);
    qrn_hold_shared(s.stream.places), qrn_hold_shared(s.stream.sums);
    if (threadIdx.x == 32 * QRN_STREAM_WARPS) {
#pragma unroll 1
        for (int i = 0; i < p.stream.n_stages; i++) {
            qrn_barrier_init(&places[i].full, 1);
            qrn_barrier_init(&places[i].done, QRN_STREAM_TEAM * QRN_WARP_ARRIVALS);
            qrn_barrier_init(&places[i].taken, QRN_WARP_ARRIVALS);
        }
        qrn_barrier_init(&turn, QRN_WARP_ARRIVALS);
        qrn_barrier_init(&late, QRN_WARP_ARRIVALS);
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (threadIdx.x < QRN_CHAIN_NORM_PIECES * QRN_STREAM_WARPS) squares[threadIdx.x] = 0.0f;
    if (qrn_warp() < QRN_STREAM_WARPS) qrn_chain_multiplies<dtype>(p, s);
    else if (qrn_warp() == QRN_STREAM_WARPS + 1) qrn_chain_adds(p, s);
    else if (qrn_warp() == QRN_STREAM_WARPS + 2) qrn_chain_stores(p, s);
    else if (qrn_lane() == 0) qrn_chain_copies(p, s);
}

#define QRN_MATMUL_CHAIN(NAME)                                                                                    \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_chain_##NAME, qrn_chain_threads(), 1, qrn_matmul_chain_params)            \
    {                                                                                                             \
        qrn_matmul_chain<QRN_##NAME>(p);                                                                          \
    }

#endif
