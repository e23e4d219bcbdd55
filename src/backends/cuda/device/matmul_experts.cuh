/* SPDX-License-Identifier: MIT
 * Products by expert of packed weights with bf16 x on Hopper, for each type a function of its own.
 *
 * An expert meets some rows of x, 128 perhaps, and whoever multiplies has to decode its weights for those alone: with so few
 * rows decoding takes half as many instructions as there are in the time that the tensor cores take.  So sixteen warps
 * decode, each what it multiplies itself, to registers (matmul_registers_panel.cuh), 32 k while the 32 k before are
 * multiplied.  A tile is 256 rows of weights of four teams of four warps by up to 128 rows of x.  An expert's rows are cut in
 * tiles evenly, and a tile's products are as wide as it needs, to the next one of some widths.
 *
 * Three warps copy: panels of weights at once, x by their lanes, 16 bytes each, from where rows of tokens are.  A token's
 * row stays in the second cache for all of its slots, and is not written again for each.  Another warp looks up what comes
 * next.
 *
 * Blocks, one on each multiprocessor, take tile after tile in turn, tiles of many rows first. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXPERTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXPERTS_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/matmul_registers_panel.cuh"
#include "backends/cuda/device/matmul_registers_pieces.cuh"
#include "backends/cuda/matmul_experts_cuda.h"

/* A tile as one warp tells the others. */
struct qrn_experts_item {
    int matrix, n_rows; /* n_rows: of x; 0: there is none left */
    int weights, last_group; /* its first row of them; the last group of them that there is, from the first one on */
    const uint8_t *panels;   /* of the first group */
    uint64_t out;            /* of the first row */
    int slots[QRN_EXPERTS_MOST_X], rows[QRN_EXPERTS_MOST_X]; /* where rows of out are, and those of x */
};

struct qrn_experts_shared {
    char *ring;
    qrn_experts_item *items;
    qrn_barrier *full, *empty, *item_full, *item_empty;
};

/* --- one warp looks up --- */

/* Blocks take turns, and every second time the other way round, for tiles of many rows come first. */
static __device__ __forceinline__ void qrn_experts_tell(const qrn_matmul_experts_params &p, const qrn_experts_shared &s)
{
    const int n_blocks = (int)gridDim.x, block = (int)blockIdx.x;
    qrn_ring_place place;
#pragma unroll 1
    for (int i = 0;; i++, place.next(QRN_EXPERTS_ITEMS)) {
        const int at = i * n_blocks + (i % 2 ? n_blocks - 1 - block : block), i_tile = at / p.n_all_tiles,
                  of_all = at - i_tile * p.n_all_tiles, is_second = of_all >= p.n_weight_tiles,
                  weights = (of_all - (is_second ? p.n_weight_tiles : 0)) * QRN_EXPERTS_WEIGHTS;
        const int4 tile = i_tile < p.job.n_tiles ? ((const int4 *)p.job.tiles)[i_tile] : make_int4(0, 0, 0, 0);
        const int32_t *slots = (const int32_t *)p.job.slots + tile.y;
        qrn_experts_item &item = s.items[place.at];
        qrn_barrier_wait(&s.item_empty[place.at], place.parity ^ 1);
#pragma unroll
        for (int k = 0; k < QRN_EXPERTS_MOST_X / 32; k++) {
            const int r = 32 * k + qrn_lane();
            if (tile.z == 0) break;
            const int slot = slots[min(r, tile.z - 1)];
            item.slots[r] = slot;
            item.rows[r] = p.job.x_per_token == p.job.top_k ? slot : (int)((uint32_t)slot / (uint32_t)p.job.top_k);
        }
        if (qrn_lane() == 0) {
            item.matrix = tile.x;
            item.n_rows = tile.z;
            item.weights = weights;
            item.last_group = ((int)p.job.w.n - 1 - weights) / QRN_PANEL_ROWS;
            item.panels = (const uint8_t *)(uintptr_t)p.products[is_second].packed + tile.x * p.job.w.matrix_bytes +
                          weights / QRN_PANEL_ROWS * p.job.w.group_bytes;
            item.out = p.products[is_second].out;
        }
        qrn_barrier_arrive_warp(&s.item_full[place.at]);
        if (tile.z == 0) return;
    }
}

/* --- three warps copy --- */

struct qrn_experts_copies {
    const qrn_matmul_experts_params &p;
    const qrn_experts_shared &s;
    const int copier;
    qrn_ring_place stage;

    __device__ __forceinline__ qrn_experts_copies(const qrn_matmul_experts_params &params, const qrn_experts_shared &shared,
                                                  int i)
        : p(params), s(shared), copier(i)
    {
    }
    /* Rows of x of a stage, this warp's eights: eight lanes two rows, of each both halves of the stage's k. */
    __device__ __forceinline__ void copy_x(char *to, int panel, const qrn_experts_item &item) const
    {
        const int line = qrn_lane() / 8 * 2, x = qrn_lane() % 8 * 16, below = QRN_LINE + ((x >> 4 ^ line) & 1 ? -16 : 16),
                  n = (item.n_rows + 7) / 8 * 8 * QRN_LINE;
        const char *from = (const char *)(uintptr_t)p.x + panel * (2 * QRN_PANEL_K) + x;
        const int *rows = item.rows + line + 8 * copier;
        to += qrn_in_atom(line, x);
        qrn_hold_shared(rows);
        qrn_hold_shared(to);
#pragma unroll 2
        for (int r = 8 * copier * QRN_LINE; r < n; r += 8 * QRN_EXPERTS_COPIERS * QRN_LINE) {
            const int2 two = *(const int2 *)rows;
            rows += 8 * QRN_EXPERTS_COPIERS;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const char *row = from + (int64_t)(i ? two.y : two.x) * p.x_row_bytes;
                qrn_copy16_async(to + r + i * below, row, 16);
                qrn_copy16_async(to + r + i * below + QRN_EXPERTS_HALF_BYTES, row + QRN_LINE, 16);
            }
        }
    }
    /* Of groups past the last one: that again.  Eight lanes have one each. */
    __device__ __forceinline__ void copy_panels(char *to, int panel, const qrn_experts_item &item) const
    {
        const int panel_bytes = (int)p.job.w.panel_bytes, of_group = qrn_lane();
        const uint8_t *from =
            item.panels + min(of_group, item.last_group) * p.job.w.group_bytes + (int64_t)panel * panel_bytes;
        qrn_barrier *full = &s.full[stage.at];
        if (qrn_lane() == 0) qrn_barrier_arrive_expecting(full, QRN_EXPERTS_GROUPS * panel_bytes);
        __syncwarp();
        if (of_group < QRN_EXPERTS_GROUPS)
            qrn_bulk_copy(to + of_group * panel_bytes, from, panel_bytes, full);
    }
    __device__ __forceinline__ void copy_stages(const qrn_experts_item &item)
    {
#pragma unroll 1
        for (int k = 0; k < p.n_panels; k++, stage.next(p.n_stages)) {
            char *to = s.ring + stage.at * p.stage_bytes;
            qrn_hold_shared(to);
            qrn_barrier_wait(&s.empty[stage.at], stage.parity ^ 1);
            if (copier == 0) copy_panels(to + QRN_EXPERTS_X_BYTES, k, item);
            copy_x(to, k, item);
            qrn_barrier_arrive_after_copies(&s.full[stage.at]);
        }
    }
    __device__ __forceinline__ void all()
    {
        qrn_ring_place place;
#pragma unroll 1
        for (;; place.next(QRN_EXPERTS_ITEMS)) {
            qrn_barrier_wait(&s.item_full[place.at], place.parity);
            const qrn_experts_item &item = s.items[place.at];
            if (item.n_rows == 0) return;
            if (item.matrix < p.job.n_matrices) copy_stages(item);
            qrn_barrier_arrive_warp(&s.item_empty[place.at]);
        }
    }
};

/* --- four teams of four warps multiply --- */

/* c += 64 rows of weights times N of x, of 32 k; c has room for more rows. */
template <int N>
static __device__ __forceinline__ void qrn_experts_add(float (&c)[QRN_EXPERTS_MOST_X / 2], const uint32_t (&a)[2][4],
                                                       uint64_t x)
{
    float(&of_rows)[N / 2] = *(float(*)[N / 2]) & c;
    qrn_wgmma_fence();
#pragma unroll
    for (int h = 0; h < 2; h++) qrn_wgmma_bf16<N, QRN_BY_K>(of_rows, a[h], qrn_tile_moved(x, 32 * h), 1);
    qrn_wgmma_commit();
}

/* c: sums of 64 rows of weights times n_rows of x, 2^-64 times as large. */
template <int dtype>
static __device__ __forceinline__ void qrn_experts_sum(const qrn_matmul_experts_params &p, const qrn_experts_shared &s,
                                                       const qrn_panel_form &form, int n_rows, qrn_ring_place &ring,
                                                       float (&c)[QRN_EXPERTS_MOST_X / 2])
{
    const uint8_t *panels = (const uint8_t *)s.ring + QRN_EXPERTS_X_BYTES + qrn_warp() / 2 * (int)p.job.w.panel_bytes;
    int codes = 16 * (16 * (qrn_warp() % 2) + qrn_lane() / 4) + qrn_lane() % 4 * 2;
    uint32_t a[2][2][4];
    int before = -1; /* the stage that is still multiplied */
#pragma unroll
    for (int j = 0; j < QRN_EXPERTS_MOST_X / 2; j++) c[j] = 0.0f;
    qrn_wgmma_hold(c);
    qrn_hold_shared(panels);
    qrn_hold(codes);
#pragma unroll 1
    for (int i = 0; i < p.n_panels; i++, ring.next(p.n_stages)) {
        const uint8_t *panel = panels + ring.at * p.stage_bytes;
        const uint64_t x = qrn_tile_by_k(s.ring + ring.at * p.stage_bytes);
        const qrn_halfwords load = {panel + codes};
        qrn_pairs_of_block own[2];
        qrn_barrier_wait(&s.full[ring.at], ring.parity);
        qrn_fence_async(); /* x was copied by threads */
#pragma unroll
        for (int r = 0; r < 2; r++) qrn_load_pairs<dtype>(form, panel, codes / 16 + 8 * r, own[r]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const qrn_pairs_of_block pairs[2] = {qrn_pairs_of<dtype>(own[0], j), qrn_pairs_of<dtype>(own[1], j)};
            qrn_weights_of_block<dtype>(load, j, pairs, a[j % 2][0], a[j % 2][1]);
            const uint64_t at = qrn_tile_moved(x, j / 2 * QRN_EXPERTS_HALF_BYTES + j % 2 * 64);
            if (n_rows > 96) qrn_experts_add<128>(c, a[j % 2], at);
            else if (n_rows > 64) qrn_experts_add<96>(c, a[j % 2], at);
            else if (n_rows > 32) qrn_experts_add<64>(c, a[j % 2], at);
            else qrn_experts_add<32>(c, a[j % 2], at);
            qrn_wgmma_wait<1>();
            qrn_wgmma_hold(a[(j + 1) % 2]);
            if (j == 0 && before >= 0 && qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.empty[before]);
        }
        before = ring.at;
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(c);
    if (qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(&s.empty[before]);
}

/* Results of a thread. */
static __device__ __forceinline__ void qrn_experts_store(const qrn_matmul_experts_params &p, const qrn_experts_item &item,
                                                         float (&c)[QRN_EXPERTS_MOST_X / 2])
{
    const qrn_place_of_results at((int)threadIdx.x);
    const int n = item.weights + at.of_tile, n_here = (int)p.job.w.n - n, n_rows = n_here > 0 ? item.n_rows - at.first_row : 0;
    char *out = (char *)(uintptr_t)item.out + (int64_t)n * (int64_t)sizeof(float);
#pragma unroll
    for (int j = 0; j < QRN_EXPERTS_MOST_X / 2; j++) c[j] *= qrn_registers_unit();
    qrn_wgmma_hold(c);
#pragma unroll
    for (int j = 0; j < QRN_EXPERTS_MOST_X / 2; j += 4) {
        if (at.row_of(j) >= item.n_rows) break;
        const int2 slots = *(const int2 *)(item.slots + at.first_row + at.row_of(j));
        float *to[2] = {(float *)(out + (int64_t)slots.x * p.out_row_bytes),
                        (float *)(out + (int64_t)slots.y * p.out_row_bytes)};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (at.row_of(j + i) >= n_rows) continue;
            to[i][0] = c[j + i];
            if (n_here > 8) to[i][8] = c[j + 2 + i];
        }
    }
}

static __device__ __forceinline__ void qrn_experts_store_nan(const qrn_matmul_experts_params &p, const qrn_experts_item &item)
{
    const int n_here = min((int)p.job.w.n - item.weights, (int)QRN_EXPERTS_WEIGHTS);
    for (int r = 0; r < item.n_rows; r++) {
        float *to = (float *)(uintptr_t)(item.out + (int64_t)item.slots[r] * p.out_row_bytes) + item.weights;
        for (int n = (int)threadIdx.x; n < n_here; n += QRN_EXPERTS_MULTIPLIERS) to[n] = __uint_as_float(0x7fc00000u);
    }
}

template <int dtype>
static __device__ __forceinline__ void qrn_experts_multiply(const qrn_matmul_experts_params &p, const qrn_experts_shared &s)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    qrn_ring_place ring, place;
#pragma unroll 1
    for (;; place.next(QRN_EXPERTS_ITEMS)) {
        qrn_barrier_wait(&s.item_full[place.at], place.parity);
        const qrn_experts_item &item = s.items[place.at];
        if (item.n_rows == 0) return;
        if (item.matrix == p.job.n_matrices) {
            qrn_experts_store_nan(p, item);
        } else {
            float c[QRN_EXPERTS_MOST_X / 2];
            qrn_experts_sum<dtype>(p, s, form, item.n_rows, ring, c);
            qrn_experts_store(p, item, c);
        }
        qrn_barrier_arrive_warp(&s.item_empty[place.at]);
    }
}

template <int dtype> static __device__ __forceinline__ void qrn_matmul_experts(const qrn_matmul_experts_params &p)
{
    enum { N_WARPS = 4 * QRN_EXPERTS_TEAMS };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_experts_item items[QRN_EXPERTS_ITEMS];
    __shared__ qrn_barrier full[QRN_EXPERTS_MOST_STAGES], empty[QRN_EXPERTS_MOST_STAGES], item_full[QRN_EXPERTS_ITEMS],
        item_empty[QRN_EXPERTS_ITEMS];
    const qrn_experts_shared s = {(char *)qrn_align_shared(memory, QRN_ATOM), items, full, empty, item_full, item_empty};
    if (threadIdx.x == 0) {
        for (int i = 0; i < QRN_EXPERTS_MOST_STAGES; i++) {
            qrn_barrier_init(&full[i], 1 + 32 * QRN_EXPERTS_COPIERS);
            qrn_barrier_init(&empty[i], N_WARPS * QRN_WARP_ARRIVALS);
        }
        for (int i = 0; i < QRN_EXPERTS_ITEMS; i++) {
            qrn_barrier_init(&item_full[i], QRN_WARP_ARRIVALS);
            qrn_barrier_init(&item_empty[i], (N_WARPS + QRN_EXPERTS_COPIERS) * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    /* Registers of 640 threads: 61440. */
    if (qrn_warp() >= N_WARPS) {
        qrn_registers_fewer<32>();
        if (qrn_warp() == N_WARPS + QRN_EXPERTS_COPIERS) qrn_experts_tell(p, s);
        else qrn_experts_copies(p, s, qrn_warp() - N_WARPS).all();
    } else {
        qrn_registers_more<112>();
        qrn_experts_multiply<dtype>(p, s);
    }
}

#define QRN_MATMUL_EXPERTS(NAME)                                                                         \
    QRN_DEVICE_FUNCTION(qrn_matmul_experts_##NAME, QRN_EXPERTS_THREADS, 1, qrn_matmul_experts_params) \
    {                                                                                                    \
        qrn_matmul_experts<QRN_##NAME>(p);                                                               \
    }

#endif
