/* SPDX-License-Identifier: MIT
 * The rows of x of a chain of products: rms_norm and silu_mul as each block works them out, from words that blocks
 * exchange into the shared memory of products.
 *
 * A norm is done by each block for the whole row; what it multiplies does not wait for another launch.  Of
 * silu_mul each block makes its pieces of 128, and exchanges them rounded: reading all of both parts takes longer. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_ROW_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_ROW_CUH

#include "backends/cuda/device/exchange.cuh"
#include "backends/cuda/device/matmul_stream_tiles.cuh"
#include "backends/cuda/device/norm.cuh"
#include "backends/cuda/matmul_chain_cuda.h"

struct qrn_chain_shared {
    qrn_stream_shared stream;
    float *squares; /* of each piece of a row */
    float *sum;     /* of the last norm, whole */
    float *kept;    /* this block's pieces of the last norm's result */
    qrn_barrier *late; /* past phase 0: the last norm is done */
};

static __device__ __forceinline__ bool qrn_chain_is_mine(int piece)
{
    return piece % (int)gridDim.x == (int)blockIdx.x;
}

static __device__ __forceinline__ void qrn_chain_store_q8(uint64_t row, int piece, uint32_t codes, uint32_t sums, float d)
{
    qrn_q8_act *to = (qrn_q8_act *)(uintptr_t)row + piece;
    const int lane = qrn_lane();
    ((uint32_t *)to->q)[lane] = codes;
    if (lane % 8 == 0) ((uint32_t *)to->sum)[lane / 8] = sums;
    if (lane == 0) to->d = d;
}
static_assert(sizeof(qrn_q8_act) == 4 * QRN_CHAIN_Q8_HEAD + QRN_PIECE, "d, four sums of two, 128 codes");

/* A piece that the warp has rounded, as products have it in shared memory. */
template <int dtype>
static __device__ __forceinline__ void qrn_chain_put(const qrn_chain_shared &s, int piece, uint32_t codes, uint32_t sums,
                                                     float d)
{
    const int lane = qrn_lane();
    uint8_t *to = s.stream.x + piece * QRN_STREAM_X;
    ((uint32_t *)to)[lane] = codes;
    if (lane % 8 == 0) qrn_stream_put_sum<dtype>(to, lane / 8, sums);
    if (lane == 0) s.stream.d[piece] = d;
}

/* Sums of squares in the order of norm.cuh: each eighth piece, then these eight. */
static __device__ __forceinline__ float qrn_chain_squares(const float4 *squares)
{
    float4 low = squares[0], high = squares[1];
#pragma unroll
    for (int i = 2; 4 * i < QRN_CHAIN_NORM_PIECES * QRN_STREAM_WARPS; i += 2) {
        const float4 a = squares[i], b = squares[i + 1];
        low.x += a.x, low.y += a.y, low.z += a.z, low.w += a.w;
        high.x += b.x, high.y += b.y, high.z += b.z, high.w += b.w;
    }
    return low.x + low.y + low.z + low.w + high.x + high.y + high.z + high.w;
}

/* The norm of what the product before exchanges; the residual stream, if any, lies in s.sum, and the sum then does. */
template <int dtype, int N>
static __device__ __forceinline__ void qrn_chain_norm_of(const qrn_chain_row &row, const uint32_t *words,
                                                         const qrn_chain_shared &s)
{
    const int lane = qrn_lane(), n = row.n / QRN_PIECE, turned = (int)blockIdx.x % n;
    uint4 x[N];
    float4 weight[N];
    float v[N][4], squares[N];
    int piece[N]; /* blocks begin at other pieces: they do not ask for one line all at once */
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int i = qrn_warp() + j * QRN_STREAM_WARPS;
        piece[j] = i >= n ? -1 : i + turned < n ? i + turned : i + turned - n;
        x[j] = piece[j] < 0 ? make_uint4(1, 1, 1, 1) : make_uint4(0, 0, 0, 0);
        weight[j] = make_float4(1, 1, 1, 1);
        if (piece[j] >= 0 && row.weight)
            weight[j] = ((const float4 *)(uintptr_t)row.weight)[piece[j] * (QRN_PIECE / 4) + lane];
    }
    const auto look = [&](int j) { return qrn_look_at_four(words + piece[j] * QRN_PIECE + 4 * lane); };
    qrn_wait_for_all(look, x);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float4 made = qrn_floats_of(x[j]);
        v[j][0] = made.x, v[j][1] = made.y, v[j][2] = made.z, v[j][3] = made.w;
        if (piece[j] >= 0 && row.residual) {
            const float4 more = ((const float4 *)s.sum)[piece[j] * (QRN_PIECE / 4) + lane];
            v[j][0] += more.x, v[j][1] += more.y, v[j][2] += more.z, v[j][3] += more.w;
        }
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
    const float scale = qrn_rms_scale(qrn_chain_squares((const float4 *)s.squares), row.n, row.eps);
    qrn_q8_pieces<N> rounded;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float w[4] = {weight[j].x, weight[j].y, weight[j].z, weight[j].w};
        if (piece[j] >= 0)
            ((float4 *)s.sum)[piece[j] * (QRN_PIECE / 4) + lane] = make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
#pragma unroll
        for (int i = 0; i < 4; i++) v[j][i] = row.weight ? v[j][i] * scale * w[i] : v[j][i] * scale;
    }
    rounded.round(v);
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (piece[j] < 0) break;
        qrn_chain_put<dtype>(s, piece[j], rounded.codes[j], rounded.sums[j], rounded.d[j]);
        if (!qrn_chain_is_mine(piece[j])) continue;
        if (row.rounded) qrn_chain_store_q8(row.rounded, piece[j], rounded.codes[j], rounded.sums[j], rounded.d[j]);
        ((float4 *)s.kept)[piece[j] / (int)gridDim.x * (QRN_PIECE / 4) + lane] =
            make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
    }
}

template <int dtype>
static __device__ __forceinline__ void qrn_chain_norm(const qrn_chain_row &row, const uint32_t *words,
                                                      const qrn_chain_shared &s)
{
    enum { N = QRN_CHAIN_NORM_PIECES };
    if (row.n <= (N - 1) * QRN_STREAM_WARPS * QRN_PIECE) qrn_chain_norm_of<dtype, N - 1>(row, words, s);
    else qrn_chain_norm_of<dtype, N>(row, words, s);
}

/* What no word of a block of Q8_ACT is. */
enum : uint32_t { QRN_CHAIN_NO_Q8 = 0x80808080u };

/* Where codes of n pieces begin among words that are exchanged. */
static __device__ __forceinline__ int qrn_chain_codes_at(int n)
{
    return (n * QRN_CHAIN_Q8_HEAD + 3) / 4 * 4;
}

/* Pieces of silu_mul that are this block's. */
static __device__ __forceinline__ void qrn_chain_make_pieces(const qrn_chain_row &row, const uint32_t *words,
                                                             uint32_t *pieces)
{
    const int lane = qrn_lane(), n = row.n / QRN_PIECE;
#pragma unroll 1
    for (int piece = (int)blockIdx.x + qrn_warp() * (int)gridDim.x; piece < n; piece += QRN_STREAM_WARPS * (int)gridDim.x) {
        const uint32_t *from = words + piece * QRN_PIECE + 4 * lane;
        uint4 seen[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
        qrn_wait_for_all([&](int j) { return qrn_look_at_four(from + (j ? row.up_at : row.gate_at)); }, seen);
        const float4 a = qrn_floats_of(seen[0]), b = qrn_floats_of(seen[1]);
        qrn_q8_pieces<1> made;
        made.round({{qrn_silu(a.x) * b.x, qrn_silu(a.y) * b.y, qrn_silu(a.z) * b.z, qrn_silu(a.w) * b.w}});
        uint32_t *head = pieces + piece * QRN_CHAIN_Q8_HEAD;
        qrn_publish(pieces + qrn_chain_codes_at(n) + piece * (QRN_PIECE / 4) + lane, made.codes[0] ^ QRN_CHAIN_NO_Q8);
        if (lane % 8 == 0) qrn_publish(head + 1 + lane / 8, made.sums[0] ^ QRN_CHAIN_NO_Q8);
        if (lane == 0) qrn_publish(head, __float_as_uint(made.d[0]) ^ QRN_CHAIN_NO_Q8);
        if (row.rounded) qrn_chain_store_q8(row.rounded, piece, made.codes[0], made.sums[0], made.d[0]);
    }
}

/* Those of all blocks: first d and sums, a thread a word, then codes, four words each. */
template <int dtype>
static __device__ __forceinline__ void qrn_chain_silu_mul(const qrn_chain_row &row, const uint32_t *words,
                                                          uint32_t *pieces, const qrn_chain_shared &s)
{
    enum { MANY = 3, THREADS = 32 * QRN_STREAM_WARPS };
    const int n = row.n / QRN_PIECE, n_codes = n * (QRN_PIECE / 16), n_heads = n * QRN_CHAIN_Q8_HEAD;
    const uint32_t *codes_at = pieces + qrn_chain_codes_at(n);
    qrn_chain_make_pieces(row, words, pieces);
#pragma unroll 1
    for (int first = (int)threadIdx.x; first - qrn_lane() < n_codes; first += MANY * THREADS) {
        uint4 codes[MANY];
        uint32_t head[MANY];
        const auto at = [&](int j) { return first + j * THREADS; };
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            codes[j] = at(j) < n_codes ? make_uint4(0, 0, 0, 0) : make_uint4(1, 1, 1, 1);
            head[j] = at(j) < n_heads ? 0 : 1;
        }
        qrn_wait_for_all([&](int j) { return qrn_look_at_four(codes_at + 4 * at(j)); }, codes);
        qrn_wait_for_all([&](int j) { return qrn_look_at(pieces + at(j)); }, head);
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i_head = at(j) / QRN_CHAIN_Q8_HEAD, word = at(j) - i_head * QRN_CHAIN_Q8_HEAD;
            if (at(j) < n_codes) {
                codes[j].x ^= QRN_CHAIN_NO_Q8, codes[j].y ^= QRN_CHAIN_NO_Q8;
                codes[j].z ^= QRN_CHAIN_NO_Q8, codes[j].w ^= QRN_CHAIN_NO_Q8;
                *(uint4 *)(s.stream.x + at(j) / 8 * QRN_STREAM_X + at(j) % 8 * 16) = codes[j];
            }
            if (at(j) >= n_heads) continue;
            head[j] ^= QRN_CHAIN_NO_Q8;
            if (word == 0) s.stream.d[i_head] = __uint_as_float(head[j]);
            else qrn_stream_put_sum<dtype>(s.stream.x + i_head * QRN_STREAM_X, word - 1, head[j]);
        }
    }
}

#endif
