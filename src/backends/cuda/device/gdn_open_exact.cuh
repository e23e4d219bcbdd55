/* SPDX-License-Identifier: MIT
 * Rows of a chunk in shared memory, for the kernels of gdn_open_chunk that take 64 tokens at once. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_EXACT_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_EXACT_CUH

#include "backends/cuda/device/gdn_open_chunk.cuh"

enum { TILE_KEY = QRN_GDN_TILE_MAX_KEY };

/* Where the four floats from column c = 4 * i on of a row are: pieces change places by the row's octet and its half of
 * that.  So lanes do not meet in a bank which read the same piece of the same row of different octets, or of
 * neighbouring quads. */
static __device__ __forceinline__ int tile_place(int row, int c)
{
    return c ^ 4 * (row >> 3 ^ (row & 4));
}

/* Pieces of a row of keys, of which an even number is there, zeros at the end. */
static __device__ __forceinline__ int tile_pieces(int d_k)
{
    return (d_k + 7) / 8 * 2;
}

/* Where elements do not lie at multiples of 16 bytes; n of them from this lane's on. */
static __device__ __noinline__ void tile_copy_odd_rows(float *to, const float *from, int64_t stride, int n, int r,
                                                       int end, int step)
{
#pragma unroll 1
    for (; r < end; r += step, from += step * stride)
        gdn_copy4(to + r * TILE_KEY + tile_place(r, 4 * qrn_lane()), from, n);
}

/* Begins to copy rows r, r + step .. of a chunk, up to end; from is row r, of d_k elements, stride elements from the
 * next row. */
static __device__ __forceinline__ void tile_copy_rows(float *to, const float *from, int64_t stride, int d_k, int r,
                                                      int end, int step)
{
    const int c = 4 * qrn_lane(), n = d_k - c;
    if (qrn_lane() >= tile_pieces(d_k)) return;
    from += c;
    if (n < 4 || stride % 4 || !qrn_is_aligned(from, 16)) {
        tile_copy_odd_rows(to, from, stride, n, r, end, step);
        return;
    }
#pragma unroll 4
    for (; r < end; r += step, from += step * stride)
        qrn_copy16_async(to + r * TILE_KEY + tile_place(r, c), from, 16);
}

/* The same of a segment's rows that there are, by n_warps warps of which this is number `warp`: keys of all, queries of
 * the segment's own.  They are there after qrn_copies_wait and a __syncthreads. */
static __device__ __forceinline__ void tile_load(float *k, float *q, const qrn_gdn_open_chunk_params &p,
                                                 const gdn_segment &g, int kh, int warp, int n_warps)
{
    const int d_k = (int)p.x.d_k, end = g.open + g.n, r = g.open + warp;
    const int64_t token = g.token + warp;
    const float *open = g.k + ((int64_t)kh * GDN_CHUNK + warp) * d_k;
    tile_copy_rows(k, open, d_k, d_k, warp, g.open, n_warps);
    tile_copy_rows(k, gdn_at(p.x.k, token, kh), p.x.k.token, d_k, r, end, n_warps);
    tile_copy_rows(q, gdn_at(p.x.q, token, kh), p.x.q.token, d_k, r, end, n_warps);
}

static __device__ __forceinline__ void tile_read4(float (&x)[4], const float *from)
{
    const float4 v = *(const float4 *)from;
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

static __device__ __forceinline__ void tile_write4(float *to, const float (&x)[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

#endif
