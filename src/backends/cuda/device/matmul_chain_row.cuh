/* SPDX-License-Identifier: MIT
 * The rows of x of a chain of products: rms_norm and silu_mul as each block works them out, from words that blocks
 * exchange into the shared memory of products.
 *
 * A norm is done by each block for the whole row; what it multiplies does not wait for another launch.  Of
 * silu_mul each block makes its pieces of 128, and exchanges them rounded: reading all of both parts takes longer.
 *
 * What rows are rounded to, a Weights says (matmul_chain_packed.cuh, matmul_chain_bf16.cuh):
 *     NORM_PIECES          that a warp has of a row that is normed, at most
 *     pieces<N>            N pieces of a warp, from floats by round; put into shared memory, store, publish
 *     take_pieces          those of all blocks into shared memory */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_ROW_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_ROW_CUH

#include "backends/cuda/device/exchange.cuh"
#include "backends/cuda/device/matmul_stream_tiles.cuh"
#include "backends/cuda/device/norm.cuh"
#include "backends/cuda/matmul_chain_cuda.h"

struct qrn_chain_shared {
    qrn_stream_shared stream;
    const qrn_share *share; /* this block's, of each link */
    float *squares; /* of each piece of a row */
    float *sum;     /* of the last norm, whole */
    float *kept;    /* this block's pieces of the last norm's result */
    float *normed;  /* the last norm's result, whole; null: nobody wants it */
    qrn_barrier *residual, *late; /* past phase 0: the residual stream is in sum; the last norm is done */
};

static __device__ __forceinline__ bool qrn_chain_is_mine(int piece)
{
    return piece % (int)gridDim.x == (int)blockIdx.x;
}

/* Sums of squares in the order of norm.cuh: each eighth piece, then these eight.  There are zeros behind those of a row. */
template <int N> static __device__ __forceinline__ float qrn_chain_squares(const float4 *squares)
{
    float4 low = squares[0], high = squares[1];
#pragma unroll
    for (int i = 2; 4 * i < N * QRN_STREAM_WARPS; i += 2) {
        const float4 a = squares[i], b = squares[i + 1];
        low.x += a.x, low.y += a.y, low.z += a.z, low.w += a.w;
        high.x += b.x, high.y += b.y, high.z += b.z, high.w += b.w;
    }
    return low.x + low.y + low.z + low.w + high.x + high.y + high.z + high.w;
}

/* The norm of what the product before exchanges; the residual stream, if any, lies in s.sum, and the sum then does.  What
 * depends on no word is worked out before they are waited for, addresses and parameters among it, which come late where they
 * were not read before; what is stored, when all have the row. */
template <class Weights, int N>
static __device__ __forceinline__ void qrn_chain_norm_of(const qrn_chain_row &row, const uint32_t *words,
                                                         const qrn_chain_shared &shared)
{
    const int lane = qrn_lane(), n = row.n / QRN_PIECE, turned = (int)blockIdx.x % n;
    qrn_chain_shared s = shared;
    uint8_t *row_rounded = (uint8_t *)(uintptr_t)row.rounded;
    uint4 x[N];
    float4 weight[N], more[N];
    float v[N][4], squares[N], n_elements = (float)row.n, eps = row.eps;
    int piece[N]; /* blocks begin at other pieces: they do not ask for one line all at once */
    bool is_mine[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int i = qrn_warp() + j * QRN_STREAM_WARPS;
        piece[j] = i >= n ? -1 : i + turned < n ? i + turned : i + turned - n;
        is_mine[j] = piece[j] >= 0 && qrn_chain_is_mine(piece[j]);
        x[j] = piece[j] < 0 ? make_uint4(1, 1, 1, 1) : make_uint4(0, 0, 0, 0);
        weight[j] = make_float4(1, 1, 1, 1), more[j] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
        if (piece[j] >= 0 && row.weight)
            weight[j] = ((const float4 *)(uintptr_t)row.weight)[piece[j] * (QRN_PIECE / 4) + lane];
        if (piece[j] >= 0 && row.residual) more[j] = ((const float4 *)s.sum)[piece[j] * (QRN_PIECE / 4) + lane];
    }
    qrn_hold(n_elements), qrn_hold(eps), qrn_hold(row_rounded);
    qrn_hold_shared(s.stream.x), qrn_hold_shared(s.stream.d), qrn_hold_shared(s.kept), qrn_hold_shared(s.squares);
    const auto look = [&](int j) { return qrn_look_at_four(words + piece[j] * QRN_PIECE + 4 * lane); };
    qrn_wait_for_all(look, x);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float4 made = qrn_floats_of(x[j]);
        v[j][0] = made.x + more[j].x, v[j][1] = made.y + more[j].y;
        v[j][2] = made.z + more[j].z, v[j][3] = made.w + more[j].w;
        if (piece[j] >= 0)
            ((float4 *)s.sum)[piece[j] * (QRN_PIECE / 4) + lane] = make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
        squares[j] = qrn_add_squares(v[j], 0.0f);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < N; j++) squares[j] += __shfl_xor_sync(QRN_ALL_OF_WARP, squares[j], step);
#pragma unroll
    for (int j = 0; j < N; j++)
        if (lane == 0 && piece[j] >= 0) s.squares[piece[j]] = squares[j];
    qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
    const float scale = qrn_rms_scale(qrn_chain_squares<N>((const float4 *)s.squares), n_elements, eps);
    typename Weights::template pieces<N> rounded;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float w[4] = {weight[j].x, weight[j].y, weight[j].z, weight[j].w};
#pragma unroll
        for (int i = 0; i < 4; i++) v[j][i] = v[j][i] * scale * w[i];
    }
    rounded.round(v);
#pragma unroll
    for (int j = 0; j < N; j++)
        if (piece[j] >= 0) rounded.put(s, j, piece[j]);
    qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (!is_mine[j]) continue;
        if (row_rounded) rounded.store((uint64_t)(uintptr_t)row_rounded, j, piece[j]);
        ((float4 *)s.kept)[piece[j] / (int)gridDim.x * (QRN_PIECE / 4) + lane] =
            make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
    }
}

template <class Weights>
static __device__ __forceinline__ void qrn_chain_norm(const qrn_chain_row &row, const uint32_t *words,
                                                      const qrn_chain_shared &s)
{
    enum { N = QRN_CHAIN_NORM_PIECES };
    if constexpr ((int)Weights::NORM_PIECES < (int)N) qrn_chain_norm_of<Weights, Weights::NORM_PIECES>(row, words, s);
    else if (row.n <= QRN_STREAM_WARPS * QRN_PIECE) qrn_chain_norm_of<Weights, 1>(row, words, s);
    else if (row.n <= (N - 1) * QRN_STREAM_WARPS * QRN_PIECE) qrn_chain_norm_of<Weights, N - 1>(row, words, s);
    else qrn_chain_norm_of<Weights, N>(row, words, s);
}

/* Gate times up. */
static __device__ __forceinline__ void qrn_chain_multiply_gate(const uint4 &gate, const uint4 &up, float (&v)[4])
{
    const float4 a = qrn_floats_of(gate), b = qrn_floats_of(up);
    v[0] = qrn_silu(a.x) * b.x, v[1] = qrn_silu(a.y) * b.y, v[2] = qrn_silu(a.z) * b.z, v[3] = qrn_silu(a.w) * b.w;
}

/* Pieces of silu_mul that are this block's. */
template <class Weights>
static __device__ __forceinline__ void qrn_chain_make_pieces(const qrn_chain_row &row, const uint32_t *words,
                                                             uint32_t *pieces)
{
    const int lane = qrn_lane(), n = row.n / QRN_PIECE;
#pragma unroll 1
    for (int piece = (int)blockIdx.x + qrn_warp() * (int)gridDim.x; piece < n; piece += QRN_STREAM_WARPS * (int)gridDim.x) {
        const uint32_t *from = words + piece * QRN_PIECE + 4 * lane;
        uint4 seen[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
        qrn_wait_for_all([&](int j) { return qrn_look_at_four(from + (j ? row.up_at : row.gate_at)); }, seen);
        float v[1][4];
        qrn_chain_multiply_gate(seen[0], seen[1], v[0]);
        typename Weights::template pieces<1> made;
        made.round(v);
        made.publish(pieces, piece, n);
        if (row.rounded) made.store(row.rounded, 0, piece);
    }
}

template <class Weights>
static __device__ __forceinline__ void qrn_chain_silu_mul(const qrn_chain_row &row, const uint32_t *words,
                                                          uint32_t *pieces, const qrn_chain_shared &s)
{
    qrn_chain_make_pieces<Weights>(row, words, pieces);
    Weights::take_pieces(pieces, row.n / QRN_PIECE, s);
}

#endif
