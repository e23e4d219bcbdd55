/* SPDX-License-Identifier: MIT
 * What a block of a stream of packed weights (matmul_stream.cuh) has: its place in the ring, shared memory, tiles. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_TILES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_TILES_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/matmul_stream_columns.cuh"
#include "backends/cuda/device/shares.cuh"

static_assert(QRN_STREAM_WARPS % QRN_STREAM_TEAM == 0, "");

/* Of a place in the ring: it is copied, multiplied by its team, its sums are read; then it is free. */
struct qrn_stream_barriers {
    qrn_barrier full, done, taken;
};

struct qrn_stream_shared {
    char *ring;
    float *sums, *d; /* d of one row of x: [panel] */
    uint8_t *x;      /* of one row: [panel][QRN_STREAM_X]; of several: [row][p.x_pitch] */
    qrn_stream_barriers *places; /* of the ring */
    qrn_q8_act *own; /* of each warp */
    qrn_barrier *turn; /* past phase 0: this launch's has come */
    qrn_barrier *x_there; /* several rows of x are, once more */
    const uint8_t *zeros; /* QRN_STREAM_Q8 of them */
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

    __device__ __forceinline__ bool is_second(const qrn_tile &tile) const
    {
        return p.job.ids && tile.first >= p.job.n_slots;
    }
    /* The first of its rows of x and of out, or its slot. */
    __device__ __forceinline__ int first_of(const qrn_tile &tile) const
    {
        return (int)tile.first - (is_second(tile) ? (int)p.job.n_slots : 0);
    }
    __device__ __forceinline__ qrn_tile at(int i) const
    {
        qrn_tile t = {0, (int64_t)i * p.job.tile_rows, 1};
        if (p.job.ids) {
            const int top_k = (int)p.job.top_k, slot = first_of(t), token = slot / top_k;
            const int32_t id = ((const int32_t *)p.job.ids)[token * p.job.ids_stride + slot - token * top_k];
            t.matrix = id >= 0 && id < p.job.n_matrices ? id : p.job.n_matrices;
        } else {
            t.n_rows = min((int)p.job.most_rows - (int)t.first, p.job.tile_rows);
        }
        return t;
    }
    /* Row r of a tile. */
    __device__ __forceinline__ const char *x_row(const qrn_tile &tile, int r) const
    {
        const int i = first_of(tile) + r;
        return qrn_x_row(p.job, p.job.ids && p.job.x_per_token != p.job.top_k ? i / (int)p.job.top_k : i);
    }
    __device__ __forceinline__ float *out_row(const qrn_tile &tile, int r) const
    {
        float *const row = qrn_out_row(p.job, first_of(tile) + r);
        return (float *)((char *)row + (is_second(tile) ? p.second_out : 0));
    }
    /* Whether the tile's slot has no matrix: its results are NaN. */
    __device__ __forceinline__ bool is_none(const qrn_tile &tile) const
    {
        return tile.matrix == p.job.n_matrices;
    }
    /* The tile's weights; some matrix's where it has none. */
    __device__ __forceinline__ const uint8_t *weights(const qrn_tile &tile) const
    {
        return qrn_panel_at(p.job.w, is_none(tile) ? 0 : tile.matrix, 0, 0) + (is_second(tile) ? p.second_w : 0);
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

#endif
