/* SPDX-License-Identifier: MIT
 * Which rows of x meet which matrix, and where rows are. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_JOB_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_JOB_CUH

#include "backends/cuda/device/weights.cuh"
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/matmul_cuda.h"

/* Some rows of x and their matrix; matrix = p.n_matrices: an id that is none, results are NaN. */
struct qrn_tile {
    int64_t matrix, first;
    int n_rows; /* 0: nothing to do */
};

struct qrn_tile_row {
    int64_t i_x, i_out; /* of all rows of x, of out */
};

/* Tile i of slots that are grouped by expert. */
static __device__ __forceinline__ qrn_tile qrn_grouped_tile_at(const qrn_matmul_params &p, int64_t i)
{
    const int32_t *tile = (const int32_t *)p.tiles + 2 * i;
    qrn_tile t;
    t.matrix = tile[0];
    t.first = tile[1];
    t.n_rows =
        t.matrix < 0 ? 0 : (int)min(((const int32_t *)p.first)[t.matrix + 1] - t.first, (int64_t)p.tile_rows);
    return t;
}

/* Tile i of p.n_tiles, of p.tile_rows rows. */
static __device__ __forceinline__ qrn_tile qrn_tile_at(const qrn_matmul_params &p, int64_t i)
{
    qrn_tile t;
    if (!p.ids) {
        const int64_t per_matrix = (p.most_rows + p.tile_rows - 1) / p.tile_rows;
        t.matrix = i / per_matrix;
        t.first = (i - t.matrix * per_matrix) * p.tile_rows;
        t.n_rows = (int)min(p.most_rows - t.first, (int64_t)p.tile_rows);
    } else if (!p.grouped) {
        const int32_t id = ((const int32_t *)p.ids)[i / p.top_k * p.ids_stride + i % p.top_k];
        t.matrix = id >= 0 && id < p.n_matrices ? id : p.n_matrices;
        t.first = i;
        t.n_rows = 1;
    } else {
        t = qrn_grouped_tile_at(p, i);
    }
    return t;
}

/* Row r of a tile. */
static __device__ __forceinline__ qrn_tile_row qrn_row_of_tile(const qrn_matmul_params &p,
                                                               const qrn_tile &t, int r)
{
    if (p.ids) {
        const int64_t slot = p.grouped ? ((const int32_t *)p.slots)[t.first + r] : t.first + r;
        return {p.x_per_token == p.top_k ? slot : slot / p.top_k, slot};
    }
    const int64_t at = t.first + r, batch = at / p.m, outer = t.matrix / p.w2;
    const int64_t i2 = (t.matrix - outer * p.w2) * p.r2 + batch % p.r2;
    const int64_t i3 = outer * p.r3 + batch / p.r2, i = (i3 * p.m2 + i2) * p.m + at % p.m;
    return {i, i};
}

static __device__ __forceinline__ const char *qrn_x_row(const qrn_matmul_params &p, int64_t i)
{
    return qrn_row(p.x, p.shape, i);
}

static __device__ __forceinline__ float *qrn_out_row(const qrn_matmul_params &p, int64_t i)
{
    return (float *)qrn_row(p.out, p.out_shape, i);
}

static __device__ __forceinline__ const uint8_t *qrn_matrix_row(const qrn_matrices &m, int64_t i3,
                                                                int64_t i2, int64_t n)
{
    return (const uint8_t *)(uintptr_t)m.data + i3 * m.stride[0] + i2 * m.stride[1] + n * m.stride[2];
}

/* Row n of a matrix of weights in rows; w2: matrices along dimension -3. */
static __device__ __forceinline__ qrn_weight_row qrn_row_of_weights(const qrn_weights_params &w,
                                                                    int64_t w2, int64_t matrix, int64_t n)
{
    const int64_t i3 = matrix / w2, i2 = matrix - i3 * w2;
    qrn_weight_row row;
    row.blocks = qrn_matrix_row(w.w, i3, i2, n);
    row.scales = qrn_matrix_row(w.scales, i3, i2, n);
    row.biases = qrn_matrix_row(w.biases, i3, i2, n);
    row.dtype = w.dtype;
    row.scales_dtype = w.scales.dtype;
    row.biases_dtype = w.biases.dtype;
    row.group = w.group;
    return row;
}

#endif
