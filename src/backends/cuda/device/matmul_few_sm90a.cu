/* SPDX-License-Identifier: MIT
 * Products of bf16 weights in rows with up to 8 rows of x rounded to bf16, on Hopper.
 *
 * Bound by reading weights once: 18.5 bytes a clock and multiprocessor, a panel of 32 rows by 128 k (8 KiB)
 * every 443 clocks.  A warp multiplies one in about 500, and eight share them; so all depends on
 * copies never stopping.
 *
 * Where matrices are so small that groups of 32 rows leave multiprocessors without one, groups have 16.
 *
 * Each multiprocessor has one block, which takes an equal share of all panels (shares.cuh).  One thread
 * copies them by a map into a ring, a slot for each, 64 to 128 KiB on their way; where no step of a graph
 * writes the weights the ring is filled while the launch before runs; else that must have ended, but
 * the second cache is asked for the first ones.
 *
 * A warp reads a panel's weights from shared memory as fragments of mma (matmul_few_panel.cuh).  It leaves e, what its
 * 8 mma make from 0, in shared memory, and another warp adds acc += e over the panels in ascending order: the bits of
 * matmul_bf16.cu.
 *
 * Rows of x are rounded into shared memory once, whole, while the ring fills; those that are too long for it
 * are matmul_several_sm90a.cu's. */
#include "backends/cuda/device/matmul_few_panel.cuh"
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/once.cuh"
#include "backends/cuda/device/shares.cuh"
#include "backends/cuda/device/x_bf16.cuh"

struct few_shared {
    char *ring;
    uint8_t *x;  /* [panel][row][QRN_FEW_X] */
    float *sums; /* [slot][row of x][QRN_FEW_P] */
    qrn_barrier *full, *empty, *done, *taken; /* of each slot: weights, then sums, there and read */
};

/* --- one thread copies --- */

template <int ROWS> struct few_reader {
    qrn_share_walk walk;

    __device__ __forceinline__ void ask(const qrn_matmul_few_params &p, const qrn_share &share)
    {
        if (!walk.end) return;
        for (int i = 0; i < 2; i++)
            qrn_tensor_prefetch(&p.w, walk.panel * QRN_PANEL_K + i * QRN_FEW_BOX_K,
                                walk.group * ROWS, 0);
        walk.next(share, p.n_panels);
    }
    __device__ __forceinline__ void copy(const qrn_matmul_few_params &p, const qrn_share &share, char *to,
                                         qrn_barrier *full, uint64_t hint)
    {
        qrn_barrier_arrive_expecting(full, qrn_few_panel_bytes(ROWS));
        for (int i = 0; i < 2; i++)
            qrn_tensor_copy_hinted(to + i * ROWS * QRN_LINE, &p.w,
                                   walk.panel * QRN_PANEL_K + i * QRN_FEW_BOX_K,
                                   walk.group * ROWS, 0, full, hint);
        walk.next(share, p.n_panels);
    }
};

template <int ROWS>
static __device__ __forceinline__ void copies(const qrn_matmul_few_params &p, const few_shared &s,
                                              const qrn_share &share)
{
    const uint64_t hint = qrn_read_once();
    few_reader<ROWS> asked, copied;
    qrn_ring_place ring;
    asked.walk.start(share, p.n_panels);
    copied.walk.start(share, p.n_panels);
    if (p.n_early == 0)
        for (int i = 0; i < p.n_asked; i++) asked.ask(p, share);
    for (int i = 0; copied.walk.end; i++) {
        if (i == p.n_early) qrn_grid_waits();
        qrn_barrier_wait(&s.empty[ring.at], ring.parity ^ 1);
        copied.copy(p, share, s.ring + ring.at * qrn_few_panel_bytes(ROWS), &s.full[ring.at], hint);
        ring.next(p.n_slots);
    }
}

/* --- warps that multiply --- */

/* A piece of 16 bytes of a row: it stands elsewhere in each of eight rows, so that they meet all banks. */
static __device__ __forceinline__ uint8_t *piece_of(uint8_t *x, int row, int piece)
{
    return x + row * QRN_FEW_X + 16 * (piece ^ (row & 7));
}

/* Where four k of row r of x, which a lane has rounded, are read as fragments. */
static __device__ __forceinline__ void put_x(const qrn_matmul_few_params &p, const few_shared &s, int r,
                                             int panel, uint2 v)
{
    uint8_t *x = s.x + panel * p.n_rows * QRN_FEW_X;
    *(uint2 *)(piece_of(x, r, qrn_lane() / 2) + qrn_lane() % 2 * 8) = v;
}

/* As it is in memory. */
static __device__ __forceinline__ uint2 rounded(uint2 v)
{
    return v;
}
static __device__ __forceinline__ uint2 rounded(float4 v)
{
    return make_uint2(qrn_bf16_of_float(v.x) | (uint32_t)qrn_bf16_of_float(v.y) << 16,
                      qrn_bf16_of_float(v.z) | (uint32_t)qrn_bf16_of_float(v.w) << 16);
}

/* All rows of x, in fours that are aligned: a warp 128 k of one, eight of them under way, with nothing to
 * decide between loads. */
template <typename Four>
static __device__ __forceinline__ void round_fours(const qrn_matmul_few_params &p, const few_shared &s)
{
    enum { MANY = 8 };
    const int n = p.n_rows * p.n_panels, n_fours = (int)(p.job.w.k / 4);
    for (int first = qrn_warp(); first < n; first += MANY * QRN_FEW_WARPS) {
        Four v[MANY];
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i = first + j * QRN_FEW_WARPS, r = i / p.n_panels;
            const int four = (i - r * p.n_panels) * (QRN_PANEL_K / 4) + qrn_lane();
            v[j] = Four();
            if (i < n && four < n_fours)
                v[j] = *((const Four *)(uintptr_t)(p.job.x.data + (uint64_t)(r * p.x_stride)) + four);
        }
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i = first + j * QRN_FEW_WARPS, r = i / p.n_panels;
            if (i < n) put_x(p, s, r, i - r * p.n_panels, rounded(v[j]));
        }
    }
}

/* All rows of x. */
static __device__ __forceinline__ void round_x(const qrn_matmul_few_params &p, const few_shared &s)
{
    if (p.x_stride > 0) {
        if (p.job.x_dtype == QRN_BF16) round_fours<uint2>(p, s);
        else round_fours<float4>(p, s);
        return;
    }
#pragma unroll 1
    for (int i = qrn_warp(); i < p.n_rows * p.n_panels; i += QRN_FEW_WARPS) {
        const int r = i / p.n_panels, panel = i - r * p.n_panels;
        put_x(p, s, r, panel,
              qrn_four_of_x(p.job, qrn_x_row(p.job, r), (int64_t)panel * QRN_PANEL_K + 4 * qrn_lane()));
    }
}

/* Fragments of x of a panel; columns that have no row are like the first one. */
static __device__ __forceinline__ void load_x(const qrn_matmul_few_params &p, const few_shared &s, int panel,
                                              uint32_t (&x)[4][4])
{
    const int r = qrn_lane() % 8 < p.n_rows ? qrn_lane() % 8 : 0;
    uint8_t *from = s.x + panel * p.n_rows * QRN_FEW_X;
#pragma unroll
    for (int j = 0; j < 4; j++)
        qrn_ldmatrix4(x[j], piece_of(from, r, 4 * j + qrn_lane() / 8));
}

template <int ROWS>
static __device__ __forceinline__ void multiplies(const qrn_matmul_few_params &p, const few_shared &s,
                                                  const qrn_share &share)
{
    const int warp = qrn_warp(), lane = qrn_lane(), column = 2 * (lane % 4);
    qrn_ring_place ring;
    qrn_share_walk walk;
    round_x(p, s);
    qrn_sync_some(1, 32 * QRN_FEW_WARPS);
    walk.start(share, p.n_panels);
    walk.next(share, p.n_panels, warp);
    ring.at = warp;
    while (walk.end) {
        uint32_t x[4][4];
        float e[ROWS / 16][4];
        load_x(p, s, walk.panel, x);
        qrn_barrier_wait(&s.full[ring.at], ring.parity);
#pragma unroll
        for (int i = 0; i < ROWS / 16; i++)
            qrn_few_multiply<ROWS>(s.ring + ring.at * qrn_few_panel_bytes(ROWS), i, x, e[i]);
        qrn_barrier_arrive_warp(&s.empty[ring.at]);
        float *sums = s.sums + ring.at * p.n_rows * QRN_FEW_P;
        qrn_barrier_wait(&s.taken[ring.at], ring.parity ^ 1);
#pragma unroll
        for (int n = 0; n < ROWS / 4; n++)
            if (column + n % 2 < p.n_rows)
                sums[(column + n % 2) * QRN_FEW_P + 8 * (n / 2) + lane / 4] = e[n / 4][n % 4];
        qrn_barrier_arrive_warp(&s.done[ring.at]);
        walk.next(share, p.n_panels, ring.next_of<QRN_FEW_WARPS>(warp, p.n_slots));
    }
}

/* --- the warp that adds --- */

template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void store(const qrn_matmul_few_params &p, uint64_t out, int64_t n,
                                             const float (&acc)[COLUMNS])
{
#pragma unroll
    for (int r = 0; r < COLUMNS; r++) {
        float *row = (float *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, out, r);
        if (r < p.n_rows && n < p.job.w.n && qrn_lane() < ROWS) row[n] = acc[r];
    }
}

/* Adds N panels one after the other, whose sums are read together. */
template <int N, int COLUMNS>
static __device__ __forceinline__ void add_panels(const few_shared &s, int n_rows, int n_slots, qrn_ring_place &ring,
                                                  float (&acc)[COLUMNS])
{
    float e[N][COLUMNS];
    int at[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        at[i] = ring.at;
        qrn_barrier_wait(&s.done[at[i]], ring.parity);
        ring.next(n_slots);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < COLUMNS; r++)
            if (r < n_rows) e[i][r] = s.sums[(at[i] * n_rows + r) * QRN_FEW_P + qrn_lane()];
#pragma unroll
    for (int i = 0; i < N; i++) qrn_barrier_arrive_warp(&s.taken[at[i]]);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int r = 0; r < COLUMNS; r++)
            if (r < n_rows) acc[r] += e[i][r];
}

/* A lane has a row of weights; of 16 rows half of them have none.  One row of x has a form of its own: what eight
 * columns take for a panel, a hundred instructions, is longer than its bytes take to come. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void adds(const qrn_matmul_few_params &p, const few_shared &s,
                                            const qrn_share &share)
{
    enum { AT_ONCE = 4 };
    qrn_stream_handover *handover = (qrn_stream_handover *)(uintptr_t)p.handover + blockIdx.x;
    const int lane = qrn_lane(), n_rows = COLUMNS == 1 ? 1 : p.n_rows;
    const uint64_t out = lane < n_rows ? (uint64_t)(uintptr_t)qrn_out_row(p.job, lane) : 0;
    qrn_ring_place ring;
    qrn_share_walk walk;
    for (walk.start(share, p.n_panels); walk.end; walk.next_piece(share, p.n_panels)) {
        float acc[COLUMNS];
#pragma unroll
        for (int r = 0; r < COLUMNS; r++) acc[r] = 0.0f;
        if (walk.panel) qrn_take_over<COLUMNS>(handover, 0, n_rows, acc);
        int left = walk.end - walk.panel;
#pragma unroll 1
        for (; left >= AT_ONCE; left -= AT_ONCE) add_panels<AT_ONCE, COLUMNS>(s, n_rows, p.n_slots, ring, acc);
#pragma unroll 1
        for (; left > 0; left--) add_panels<1, COLUMNS>(s, n_rows, p.n_slots, ring, acc);
        if (walk.end < p.n_panels) qrn_hand_over<COLUMNS>(handover + 1, 0, n_rows, acc);
        else store<ROWS, COLUMNS>(p, out, (int64_t)walk.group * ROWS + lane, acc);
    }
}

/* --- the block --- */

template <int ROWS> static __device__ __forceinline__ void matmul_few(const qrn_matmul_few_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[QRN_FEW_SLOTS], empty[QRN_FEW_SLOTS], done[QRN_FEW_SLOTS],
        taken[QRN_FEW_SLOTS];
    const qrn_share share = qrn_share_of((int)blockIdx.x, p.share, p.n_longer, p.n_panels);
    few_shared s;
    s.ring = (char *)qrn_align_shared(memory, QRN_ATOM);
    s.x = (uint8_t *)s.ring + p.n_slots * qrn_few_panel_bytes(ROWS);
    s.sums = (float *)(s.x + p.n_panels * p.n_rows * QRN_FEW_X);
    s.full = full, s.empty = empty, s.done = done, s.taken = taken;
    qrn_hold_shared(s.sums), qrn_hold_shared(s.done), qrn_hold_shared(s.taken);
    if (threadIdx.x == 32 * QRN_FEW_WARPS) {
        for (int i = 0; i < p.n_slots; i++) {
            qrn_barrier_init(&full[i], 1);
            qrn_barrier_init(&empty[i], QRN_WARP_ARRIVALS);
            qrn_barrier_init(&done[i], QRN_WARP_ARRIVALS);
            qrn_barrier_init(&taken[i], QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (qrn_warp() == QRN_FEW_WARPS) {
        if (qrn_lane() == 0) copies<ROWS>(p, s, share);
        return;
    }
    qrn_grid_waits();
    if (qrn_warp() < QRN_FEW_WARPS) multiplies<ROWS>(p, s, share);
    else if (p.n_rows == 1) adds<ROWS, 1>(p, s, share);
    else adds<ROWS, QRN_FEW_COLUMNS>(p, s, share);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_few32_bf16, QRN_FEW_THREADS, 2, qrn_matmul_few_params)
{
    matmul_few<32>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_few16_bf16, QRN_FEW_THREADS, 2, qrn_matmul_few_params)
{
    matmul_few<16>(p);
}
