/* SPDX-License-Identifier: MIT
 * What a block of a stream of packed weights (matmul_stream.cuh) has: its place in the ring, shared memory, tiles,
 * and rows of x, which lie in shared memory panel by panel. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_TILES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_TILES_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/matmul_stream_panel.cuh"
#include "backends/cuda/device/shares.cuh"

static_assert(QRN_STREAM_WARPS % QRN_STREAM_TEAM == 0 && QRN_STREAM_TEAM <= QRN_STREAM_PANELS, "");

/* Of a place in the ring: it is copied, multiplied by its team, its sums are read; then it is free. */
struct qrn_stream_barriers {
    qrn_barrier full, done, taken;
};

struct qrn_stream_shared {
    char *ring;
    float *sums, *d; /* d of x: [panel][row] */
    uint8_t *x;      /* [panel][row][QRN_STREAM_X] */
    qrn_stream_barriers *places; /* of the ring */
    qrn_q8_act *own; /* of each warp */
    qrn_barrier *turn; /* past phase 0: this launch's has come */
};

/* Rows of x that lie side by side. */
template <int COLUMNS> static __device__ __forceinline__ int qrn_stream_rows(const qrn_matmul_stream_params &p)
{
    return COLUMNS == 1 ? 1 : p.job.tile_rows;
}

/* Sums of a stage, and of row r of x where d of its panels are. */
template <int COLUMNS>
static __device__ __forceinline__ float *qrn_stream_sums(const qrn_matmul_stream_params &p, const qrn_stream_shared &s,
                                                         int place)
{
    return s.sums + place * qrn_stream_stage_sums(qrn_stream_rows<COLUMNS>(p));
}
template <int COLUMNS>
static __device__ __forceinline__ int qrn_stream_d_at(const qrn_matmul_stream_params &p, int r)
{
    return QRN_STREAM_PANELS * (QRN_STREAM_P * qrn_stream_rows<COLUMNS>(p) + r);
}

/* What the groups of a launch are made of: tiles of as many groups each, a matrix with some rows of x.  One matrix
 * for all tiles of its rows, or slots and the matrices of their experts, and both are few. */
struct qrn_stream_tiles {
    const qrn_matmul_stream_params &p;

    __device__ __forceinline__ qrn_tile at(int i) const
    {
        qrn_tile t = {0, (int64_t)i * p.job.tile_rows, 1};
        if (p.job.ids) {
            const int top_k = (int)p.job.top_k, token = i / top_k;
            const int32_t id = ((const int32_t *)p.job.ids)[token * p.job.ids_stride + i - token * top_k];
            t.matrix = id >= 0 && id < p.job.n_matrices ? id : p.job.n_matrices;
        } else {
            t.n_rows = min((int)p.job.most_rows - (int)t.first, p.job.tile_rows);
        }
        return t;
    }
    /* Row r of a tile; that of out is tile.first + r. */
    __device__ __forceinline__ const char *x_row(const qrn_tile &tile, int r) const
    {
        const int i = (int)tile.first + r;
        return qrn_x_row(p.job, p.job.ids && p.job.x_per_token != p.job.top_k ? i / (int)p.job.top_k : i);
    }
    __device__ __forceinline__ float *out_row(const qrn_tile &tile, int r) const
    {
        return qrn_out_row(p.job, tile.first + r);
    }
    /* Whether the tile's slot has no matrix: its results are NaN. */
    __device__ __forceinline__ bool is_none(const qrn_tile &tile) const
    {
        return tile.matrix == p.job.n_matrices;
    }
    /* The tile's weights; some matrix's where it has none. */
    __device__ __forceinline__ const uint8_t *weights(const qrn_tile &tile) const
    {
        return qrn_panel_at(p.job.w, is_none(tile) ? 0 : tile.matrix, 0, 0);
    }
    /* Whether tile i has rows of x of its own. */
    __device__ __forceinline__ bool has_own_x(int) const { return true; }

    /* Whether it is known before the launch's turn where rows of x are, and those of out. */
    __device__ __forceinline__ bool x_is_known() const { return !p.job.ids; }
    __device__ __forceinline__ bool out_is_known() const { return !p.job.ids; }

    /* What the warps that copy and that add do first; and all do before they read what launches before wrote. */
    __device__ __forceinline__ void copies_begin() const
    {
        if (p.job.ids) qrn_grid_waits();
    }
    __device__ __forceinline__ void adds_begin() const {}
};

/* The tile that groups are of, one after the other; groups of one tile follow each other, so it is seldom worked out. */
struct qrn_stream_tile_walk {
    int i = -1, begin = 0; /* its first group */

    /* Goes to the tile of a group; whether it is another than before. */
    __device__ __forceinline__ bool go(const qrn_matmul_stream_params &p, int group)
    {
        if (i >= 0 && (unsigned)(group - begin) < (unsigned)p.n_groups) return false;
        i = p.job.n_tiles > 1 ? group / p.n_groups : 0;
        begin = i * p.n_groups;
        return true;
    }
};

/* --- rows of x --- */

/* Where rows of x of a tile begin: lane r has row r's.  Worked out before a launch's turn where that can be. */
template <class Tiles>
static __device__ __forceinline__ uint64_t qrn_stream_x_rows(const Tiles &tiles, const qrn_tile &tile)
{
    return qrn_lane() < tile.n_rows ? (uint64_t)(uintptr_t)tiles.x_row(tile, qrn_lane()) : 0;
}
template <int COLUMNS, typename T>
static __device__ __forceinline__ const T *qrn_stream_x_row(uint64_t rows, int r)
{
    return (const T *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, rows, COLUMNS == 1 ? 0 : r);
}

/* Sums of block j's halves, as a word, beside 128 k of x. */
template <int dtype>
static __device__ __forceinline__ void qrn_stream_put_sum(uint8_t *x, int j, uint32_t word)
{
    if (qrn_stream_splits_sums(qrn_form_of(dtype))) {
        const int sum = (int16_t)word + ((int)word >> 16), low = ((sum + 64) & 127) - 64;
        x[QRN_PANEL_K + j] = (uint8_t)low;
        x[QRN_PANEL_K + 4 + j] = (uint8_t)((sum - low) >> 7);
    } else {
        ((uint32_t *)(x + QRN_PANEL_K))[j] = word;
    }
}

/* Rounded ones: a warp has 128 k of a row, and then the next; all are under way at once. */
template <int dtype, int COLUMNS>
static __device__ __forceinline__ void qrn_stream_copy_x(const qrn_matmul_stream_params &p, uint64_t rows, int n_rows,
                                                         const qrn_stream_shared &s)
{
    enum { WORDS = sizeof(qrn_q8_act) / 4, CODES = WORDS - QRN_PANEL_K / 4 };
    const int lane = qrn_lane(), n = n_rows * p.n_panels;
#pragma unroll COLUMNS == 1 ? 2 : 1
    for (int i = qrn_warp(); i < n; i += QRN_STREAM_WARPS) {
        const int r = COLUMNS == 1 ? 0 : i / p.n_panels, panel = i - r * p.n_panels,
                  at = panel * qrn_stream_rows<COLUMNS>(p) + r;
        const uint32_t *from = qrn_stream_x_row<COLUMNS, uint32_t>(rows, r) + panel * WORDS; /* d, sums, codes */
        uint32_t *to = (uint32_t *)(s.x + at * QRN_STREAM_X);
        qrn_copy4_async(to + lane, from + CODES + lane);
        if (lane < CODES) qrn_copy4_async(lane ? to + QRN_PANEL_K / 4 + lane - 1 : (uint32_t *)(s.d + at), from + lane);
    }
    qrn_copies_commit();
    qrn_copies_wait<0>();
    if (!qrn_stream_splits_sums(qrn_form_of(dtype))) return;
    __syncwarp();
#pragma unroll 1
    for (int first = qrn_warp(); first < n; first += 8 * QRN_STREAM_WARPS) {
        const int i = first + lane / 4 * QRN_STREAM_WARPS, r = COLUMNS == 1 ? 0 : i / p.n_panels,
                  at = (i - r * p.n_panels) * qrn_stream_rows<COLUMNS>(p) + r;
        uint8_t *x = s.x + at * QRN_STREAM_X;
        const uint32_t word = i < n ? ((const uint32_t *)(x + QRN_PANEL_K))[lane % 4] : 0;
        __syncwarp();
        if (i < n) qrn_stream_put_sum<dtype>(x, lane % 4, word);
    }
}

/* Those that are rounded here: a warp has 128 k of a row, three of them under way, if registers are left for that. */
template <int dtype>
static __device__ __forceinline__ void qrn_stream_round_x(const qrn_matmul_stream_params &p, uint64_t rows, int n_rows,
                                                          const qrn_stream_shared &s)
{
    enum { MANY = qrn_form_of(dtype).bits == 8 ? 1 : 3 };
    const int lane = qrn_lane(), n = n_rows * p.n_panels;
    qrn_q8_act *own = s.own + qrn_warp();
    for (int first = qrn_warp(); first < n; first += MANY * QRN_STREAM_WARPS) {
        float v[MANY][4];
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i = min(first + j * QRN_STREAM_WARPS, n - 1), r = i / p.n_panels;
            qrn_load4(qrn_stream_x_row<QRN_STREAM_COLUMNS, float>(rows, r),
                      (int64_t)(i - r * p.n_panels) * QRN_PIECE + 4 * lane, p.job.w.k, v[j]);
        }
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i = first + j * QRN_STREAM_WARPS, r = i / p.n_panels;
            if (i >= n) break;
            const int at = (i - r * p.n_panels) * p.job.tile_rows + r;
            uint8_t *to = s.x + at * QRN_STREAM_X;
            __syncwarp();
            qrn_store_q8_act(own, v[j]);
            __syncwarp();
            ((uint32_t *)to)[lane] = ((const uint32_t *)own->q)[lane];
            if (lane < 4) qrn_stream_put_sum<dtype>(to, lane, ((const uint32_t *)own->sum)[lane]);
            if (lane == 0) s.d[at] = own->d;
        }
    }
}

#endif
