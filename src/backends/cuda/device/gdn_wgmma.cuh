/* SPDX-License-Identifier: MIT
 * What the kernels of gdn_open_chunk for Hopper share: chunks as tiles of 64 rows, of which some may
 * be open ones of earlier calls and some may lie behind the end. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_WGMMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_WGMMA_CUH

#include "backends/cuda/device/gdn_open_chunk.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/gdn_wgmma_cuda.h"

enum { WIDTH = QRN_GDN_WGMMA_WIDTH, SQUARE = QRN_GDN_WGMMA_SQUARE, TILE = 2 * SQUARE };

/* Rows of a chunk: first is the token of row 0, below 0 if that would come before the tensor. */
struct gdn_rows_of_chunk {
    int first, open, end; /* rows open .. end - 1 are the call's */
    __device__ bool are_all() const { return open == 0 && end == GDN_CHUNK; }
};

/* Of a sequence's chunks. */
struct gdn_rows_of_sequence {
    int first, open, end; /* of wave 0, whose end may be far behind it */
    __device__ explicit gdn_rows_of_sequence(const gdn_sequence &q)
    {
        open = (int)(q.position - q.first_chunk() * GDN_CHUNK);
        first = (int)q.begin - open;
        end = open + (int)q.n;
    }
    __device__ __forceinline__ gdn_rows_of_chunk of(int wave) const
    {
        return {first + wave * GDN_CHUNK, wave ? 0 : open, min(end - wave * GDN_CHUNK, (int)GDN_CHUNK)};
    }
};

static __device__ __forceinline__ int gdn_value_head(const qrn_gdn_wgmma_params &p, int kh, int i)
{
    return p.c.x.heads.tiled ? kh + i * (int)p.c.x.heads.n_k : kh * p.ratio + i;
}

/* All of a chunk's rows of a tensor of 128 columns, of which two boxes of 64 columns are asked
 * for. */
static __device__ __forceinline__ void gdn_load_tile(void *tile, const qrn_tensor_map *map, int row,
                                                     int head, qrn_barrier *b)
{
    qrn_tensor_copy(tile, map, 0, row, head, b);
    qrn_tensor_copy((char *)tile + SQUARE, map, 64, row, head, b);
}

/* Element (row, column) of such a tile. */
static __device__ __forceinline__ uint16_t *gdn_in_tile(void *tile, int row, int column)
{
    return (uint16_t *)((char *)tile + column / 64 * SQUARE + qrn_in_atom(row, column % 64 * 2));
}

/* A lower triangle of 64 x 64 bf16 by slices of 16 columns (qrn_slice_by_k), of which slice i has rows 16 i
 * and on.  Where its row 0 would be, and where 8 columns j of slice i of a row are. */
static __device__ __forceinline__ int gdn_slice(int i)
{
    return 256 * i * (7 - i);
}
static __device__ __forceinline__ int gdn_in_slices(int row, int i, int j)
{
    return gdn_slice(i) + qrn_in_slice(row, 16 * j);
}

/* A warp: G of rows 2 lane and 2 lane + 1 of a value head, whose open rows have it. */
static __device__ __forceinline__ void gdn_sum_gates(double (&G)[2],
                                                     const qrn_gdn_open_chunk_params &p,
                                                     const gdn_rows_of_chunk &rows,
                                                     const double *open, int64_t h)
{
    double x[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = 2 * qrn_lane() + i;
        const bool mine = r >= rows.open && r < rows.end;
        x[i] = mine ? (double)*gdn_at(p.x.g, rows.first + r, h) : 0.0;
    }
    double sum = x[0] + x[1];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double before = __shfl_up_sync(QRN_ALL_OF_WARP, sum, (unsigned)step);
        if (qrn_lane() >= step) sum += before;
    }
    const double base = rows.open ? open[rows.open - 1] : 0.0;
    G[0] = 2 * qrn_lane() < rows.open ? open[2 * qrn_lane()] : base + (sum - x[1]);
    G[1] = 2 * qrn_lane() + 1 < rows.open ? open[2 * qrn_lane() + 1] : base + sum;
}

/* Four elements of a row, which may lie anywhere. */
static __device__ __forceinline__ float4 gdn_four_at(const float *from)
{
    if (qrn_is_aligned(from, 16)) return *(const float4 *)from;
    return make_float4(from[0], from[1], from[2], from[3]);
}

/* Two floats, each the sum of two bf16. */
static __device__ __forceinline__ void gdn_split(float a, float b, uint32_t *high, uint32_t *low)
{
    *high = qrn_bf16_pair(a, b);
    *low = qrn_bf16_pair(a - qrn_float_of_bf16((uint16_t)*high),
                         b - qrn_float_of_bf16((uint16_t)(*high >> 16)));
}

#endif
