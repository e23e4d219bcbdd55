/* SPDX-License-Identifier: MIT
 * Products of weights in rows, of every type: a warp an output of up to four rows of x.
 *
 * Blocks are read 128 k a lane: lines come whole, from the first cache after the first lane.  It is the
 * kernel that always works; what is multiplied often is packed (matmul_vec.cu, matmul_tiles.cu), or plain
 * floats (matmul_floats.cu). */
#include "backends/cuda/device/weights_float.cuh"
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/products.cuh"

enum { ROWS = QRN_MATMUL_ROWS };

/* Which output: n runs fastest, so that the warps of a block have the same rows of x. */
struct place {
    qrn_tile tile;
    int64_t n;
};

static __device__ __forceinline__ place place_of(const qrn_matmul_params &p, int64_t i)
{
    const int64_t tile = i / p.w.n;
    return {qrn_tile_at(p, tile), i - tile * p.w.n};
}

static __device__ __forceinline__ void store(const qrn_matmul_params &p, const place &at,
                                             const float (&acc)[ROWS])
{
    if (qrn_lane()) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < at.tile.n_rows) qrn_out_row(p, qrn_row_of_tile(p, at.tile, r).i_out)[at.n] = acc[r];
}

static __device__ __forceinline__ void no_such_matrix(const qrn_matmul_params &p, const place &at)
{
    const float nan = __uint_as_float(0x7fc00000u), all[ROWS] = {nan, nan, nan, nan};
    store(p, at, all);
}

/* Sums of 128 k in one thread, k ascending from 0; then acc += sum, k ascending. */
static __device__ __forceinline__ void sum_blocks(const qrn_matmul_params &p, const place &at,
                                                  float (&acc)[ROWS])
{
    const qrn_weight_row w = qrn_row_of_weights(p.w, p.w2, at.tile.matrix, at.n);
    const float *x[ROWS];
    for (int r = 0; r < ROWS; r++)
        x[r] = (const float *)qrn_x_row(p, qrn_row_of_tile(p, at.tile, r < at.tile.n_rows ? r : 0).i_x);
    for (int64_t first = 0; first < p.w.k; first += 32 * QRN_PANEL_K) {
        const int64_t begin = first + qrn_lane() * QRN_PANEL_K;
        float sums[ROWS] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int64_t k = begin; k < begin + QRN_PANEL_K && k < p.w.k; k += 32) {
            float v[32];
            qrn_decode_block(w, k / 32, v);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= at.tile.n_rows) break;
#pragma unroll
                for (int i = 0; i < 32; i += 4) {
                    float y[4];
                    qrn_load4(x[r], k + i, p.w.k, y);
#pragma unroll
                    for (int j = 0; j < 4; j++) sums[r] = fmaf(v[i + j], y[j], sums[r]);
                }
            }
        }
        const int64_t left = (p.w.k - first + QRN_PANEL_K - 1) / QRN_PANEL_K;
        for (int i = 0; i < 32 && i < left; i++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) acc[r] += __shfl_sync(QRN_ALL_OF_WARP, sums[r], i);
    }
}

QRN_DEVICE_FUNCTION(qrn_matmul_rows_blocks, 256, 1, qrn_matmul_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); i < p.n_tiles * p.w.n; i += step) {
        const place at = place_of(p, i);
        float acc[ROWS] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (at.tile.matrix == p.n_matrices) {
            no_such_matrix(p, at);
            continue;
        }
        sum_blocks(p, at, acc);
        store(p, at, acc);
    }
}

/* What a lane makes of 128 k. */
static __device__ __forceinline__ void sum_panel(const qrn_matmul_params &p, const place &at,
                                                 const qrn_weight_row &w, const qrn_form &f,
                                                 const int64_t (&i_x)[ROWS], int64_t panel,
                                                 float (&sums)[ROWS])
{
    const int run = f.run ? f.run : w.group / 32;
    qrn_run_sums of_run[ROWS] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    for (int j = 0; j < 4 && panel * QRN_PANEL_K + 32 * j < p.w.k; j++) {
        qrn_block b;
        qrn_take_block(w, 4 * panel + j, b);
        qrn_find_levels(f.levels, b);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= at.tile.n_rows) break;
            const int64_t block = i_x[r] * p.acts_at.n_blocks + panel;
            const uint4 *q = (const uint4 *)((const char *)p.acts_at.q + block * QRN_PANEL_K + 32 * j);
            const int16_t *of_x = (const int16_t *)p.acts_at.sums + 8 * block + 2 * j;
            const uint4 q0 = q[0], q1 = q[1];
            const uint32_t x[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w};
            qrn_add_block(f, b, x, of_x[0], of_x[1], of_run[r]);
            if ((j + 1) % run == 0) qrn_end_run(f, b.d, b.m, of_run[r], sums[r]);
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_matmul_rows_q8, 256, 1, qrn_matmul_params)
{
    const qrn_form f = qrn_form_of(p.w.dtype);
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32), n_panels = p.acts_at.n_blocks;
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); i < p.n_tiles * p.w.n; i += step) {
        const place at = place_of(p, i);
        float acc[ROWS] = {0.0f, 0.0f, 0.0f, 0.0f};
        int64_t i_x[ROWS];
        if (at.tile.matrix == p.n_matrices) {
            no_such_matrix(p, at);
            continue;
        }
        const qrn_weight_row w = qrn_row_of_weights(p.w, p.w2, at.tile.matrix, at.n);
        for (int r = 0; r < ROWS; r++)
            i_x[r] = qrn_row_of_tile(p, at.tile, r < at.tile.n_rows ? r : 0).i_x;
        for (int64_t first = 0; first < n_panels; first += 32) {
            const int64_t panel = first + qrn_lane();
            float sums[ROWS] = {0.0f, 0.0f, 0.0f, 0.0f}, d[ROWS] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (panel < n_panels) {
                sum_panel(p, at, w, f, i_x, panel, sums);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    d[r] = ((const float *)p.acts_at.d)[i_x[r] * n_panels + panel];
            }
            __syncwarp();
            for (int lane = 0; lane < 32 && first + lane < n_panels; lane++)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    acc[r] = fmaf(__shfl_sync(QRN_ALL_OF_WARP, sums[r], lane),
                                  __shfl_sync(QRN_ALL_OF_WARP, d[r], lane), acc[r]);
        }
        store(p, at, acc);
    }
}
