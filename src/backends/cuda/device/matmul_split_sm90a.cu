/* SPDX-License-Identifier: MIT
 * Products of float32 weights, or bf16 ones, with many rows of float32 x on Hopper's tensor cores.
 *
 * A float is the sum of three bf16, each what is left of it by the ones before, rounded: 24 bits.  So a product of two is
 * nine products of bf16, of which the six largest are made; what is left out is 2^-24 of it.  Tensor cores make those six in less
 * time than multiply-adds take for one.  A bf16 is its first part.  They cut off what does not fit in a sum where others round it; so sums begin anew
 * with each 128 k, and are added up by rounding.
 *
 * Eight warps load rows of x and of weights, split them and write three tiles of each to shared memory, four warps multiply.
 * Where tiles are few the blocks of a cluster share the k of one; the first one adds up their sums, ascending. */
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/matmul_split_cuda.h"

/* The parts of two floats, as pairs of bf16: of what bf16 has no number for, the first alone. */
static __device__ __forceinline__ void split(float a, float b, uint32_t (&parts)[QRN_SPLIT_PARTS])
{
#pragma unroll
    for (int i = 0; i < QRN_SPLIT_PARTS; i++) {
        parts[i] = qrn_bf16_pair(a, b);
        a -= __uint_as_float(parts[i] << 16);
        b -= __uint_as_float(parts[i] & 0xffff0000u);
        if (i) continue;
        a = fabsf(a) <= 3.4e38f ? a : 0.0f;
        b = fabsf(b) <= 3.4e38f ? b : 0.0f;
    }
}

/* Eight k of a row. */
struct piece {
    float4 low, high;
};

template <int WEIGHTS, bool IS_BF16> struct shape {
    enum {
        ROWS = QRN_SPLIT_X + WEIGHTS,
        W_PARTS = IS_BF16 ? 1 : QRN_SPLIT_PARTS,
        EACH = ROWS * 8 / QRN_SPLIT_SPLITTERS, /* pieces of a stage that a thread has: of rows 32 apart */
        OF_X = QRN_SPLIT_X * 8 / QRN_SPLIT_SPLITTERS, /* the first of them are of x */
        PART_BYTES = ROWS * QRN_LINE,                 /* rows of x, then those of weights */
        STAGE_BYTES = QRN_SPLIT_PARTS * PART_BYTES
    };
};

/* Eight bf16. */
static __device__ __forceinline__ piece widened(const uint4 &v)
{
    return {make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
                        __uint_as_float(v.y & 0xffff0000u)),
            make_float4(__uint_as_float(v.z << 16), __uint_as_float(v.z & 0xffff0000u), __uint_as_float(v.w << 16),
                        __uint_as_float(v.w & 0xffff0000u))};
}

/* Where a thread's pieces of the next stage are; past the last row: that again. */
template <int WEIGHTS, bool IS_BF16> struct places {
    using of = shape<WEIGHTS, IS_BF16>;
    const char *from[of::EACH];

    static __device__ __forceinline__ bool is_x(int i) { return i < of::OF_X; }
    static __device__ __forceinline__ int element(int i) { return is_x(i) || !IS_BF16 ? 4 : 2; }

    __device__ __forceinline__ places(const qrn_matmul_split_params &p, int first_x, int first_w, int step, int thread)
    {
#pragma unroll
        for (int i = 0; i < of::EACH; i++) {
            const int row = thread / 8 + 32 * i;
            from[i] = (const char *)(uintptr_t)(is_x(i) ? p.x + min(first_x + row, p.n_rows - 1) * p.x_row_bytes
                                                        : p.w + min(first_w + row - QRN_SPLIT_X, p.n - 1) * p.w_row_bytes) +
                      (step * QRN_SPLIT_K + thread % 8 * 8) * element(i);
        }
    }
    __device__ __forceinline__ void load(piece (&to)[of::EACH])
    {
#pragma unroll
        for (int i = 0; i < of::EACH; i++) {
            if (element(i) == 2) to[i] = widened(*(const uint4 *)from[i]);
            else to[i] = {*(const float4 *)from[i], *(const float4 *)(from[i] + 16)};
            from[i] += QRN_SPLIT_K * element(i);
        }
    }
};

template <int WEIGHTS, bool IS_BF16>
static __device__ __forceinline__ void store(const piece (&from)[shape<WEIGHTS, IS_BF16>::EACH], int thread, char *stage)
{
    using of = shape<WEIGHTS, IS_BF16>;
#pragma unroll
    for (int i = 0; i < of::EACH; i++) {
        uint32_t parts[4][QRN_SPLIT_PARTS];
        split(from[i].low.x, from[i].low.y, parts[0]);
        split(from[i].low.z, from[i].low.w, parts[1]);
        split(from[i].high.x, from[i].high.y, parts[2]);
        split(from[i].high.z, from[i].high.w, parts[3]);
        char *to = stage + qrn_in_atom(thread / 8 + 32 * i, thread % 8 * 16);
#pragma unroll
        for (int part = 0; part < (i < of::OF_X ? (int)QRN_SPLIT_PARTS : (int)of::W_PARTS); part++)
            *(uint4 *)(to + part * of::PART_BYTES) =
                make_uint4(parts[0][part], parts[1][part], parts[2][part], parts[3][part]);
    }
}

/* c = the six products of a stage's k, of bf16 weights three, or, if `adds`, c += .. */
template <int WEIGHTS, bool IS_BF16>
static __device__ __forceinline__ void multiply(const char *stage, int adds, float (&c)[WEIGHTS / 2])
{
    using of = shape<WEIGHTS, IS_BF16>;
    enum { PART = of::PART_BYTES, W = QRN_SPLIT_X * QRN_LINE };
    const uint64_t tile = qrn_tile_by_k(stage);
    qrn_wgmma_fence();
#pragma unroll
    for (int k = 0; k < QRN_SPLIT_K / 16; k++)
#pragma unroll
        for (int i = 0; i < QRN_SPLIT_PARTS; i++)
#pragma unroll
            for (int j = 0; i + j < QRN_SPLIT_PARTS && j < of::W_PARTS; j++)
                qrn_wgmma_bf16<WEIGHTS, QRN_BY_K, QRN_BY_K>(c, qrn_tile_moved(tile, i * PART + 32 * k),
                                                            qrn_tile_moved(tile, j * PART + W + 32 * k), adds || k || i || j);
    qrn_wgmma_commit();
}

template <int WEIGHTS>
static __device__ __forceinline__ void store_sums(const qrn_matmul_split_params &p, int first_x, int first_w,
                                                  const float (&sums)[WEIGHTS / 2])
{
    const int row = first_x + (int)threadIdx.x / 32 * 16 + qrn_lane() / 4, n = first_w + qrn_lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < WEIGHTS / 2; j++) {
        const int down = j % 4 / 2 * 8, right = j / 4 * 8 + j % 2;
        if (row + down < p.n_rows && n + right < p.n)
            ((float *)(uintptr_t)(p.out + (row + down) * p.out_row_bytes))[n + right] = sums[j];
    }
}

/* A block's share of the steps: whole pairs of them, but for the last one's. */
struct share {
    int rank, begin, n;

    __device__ __forceinline__ share(const qrn_matmul_split_params &p)
    {
        const int n_pairs = (p.n_steps + 1) / 2;
        rank = (int)blockIdx.x % p.n_shares;
        begin = 2 * (n_pairs * rank / p.n_shares);
        n = min(2 * (n_pairs * (rank + 1) / p.n_shares), p.n_steps) - begin;
    }
};

/* Sums that the other blocks of a cluster send to its first one. */
template <int WEIGHTS> struct sent_sums {
    float of[QRN_SPLIT_SHARES - 1][WEIGHTS / 2][QRN_SPLIT_MULTIPLIERS];
    qrn_barrier whole;

    /* Before any is sent; all threads of all blocks. */
    __device__ __forceinline__ void begin(int n_shares, int rank)
    {
        if (threadIdx.x == 0 && rank == 0) {
            qrn_barrier_init(&whole, 1);
            qrn_barriers_are_ready();
            qrn_barrier_arrive_expecting(&whole, (n_shares - 1) * (int)sizeof of[0]);
        }
        qrn_cluster_arrive();
        qrn_cluster_wait();
    }
    /* Added up in the first block, by threads that multiply.  Whether this is that one. */
    __device__ __forceinline__ bool add(int n_shares, int rank, float (&sums)[WEIGHTS / 2])
    {
        if (rank) {
#pragma unroll
            for (int j = 0; j < WEIGHTS / 2; j++) qrn_send_to_block(&of[rank - 1][j][threadIdx.x], sums[j], &whole, 0);
            return false;
        }
        qrn_barrier_wait(&whole, 0);
        for (int i = 0; i < n_shares - 1; i++)
#pragma unroll
            for (int j = 0; j < WEIGHTS / 2; j++) sums[j] += of[i][j][threadIdx.x];
        return true;
    }
};

template <int WEIGHTS, bool IS_BF16>
static __device__ __forceinline__ void product(const qrn_matmul_split_params &p)
{
    using of = shape<WEIGHTS, IS_BF16>;
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[QRN_SPLIT_STAGES], empty[QRN_SPLIT_STAGES];
    char *stages = (char *)qrn_align_shared(memory, QRN_ATOM);
    const share own(p);
    const int tile = (int)blockIdx.x / p.n_shares, i_x = tile / p.n_weight_tiles, first_x = i_x * QRN_SPLIT_X,
              first_w = (tile - i_x * p.n_weight_tiles) * WEIGHTS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < QRN_SPLIT_STAGES; i++) {
            qrn_barrier_init(&full[i], QRN_SPLIT_SPLITTERS / 32 * QRN_WARP_ARRIVALS);
            qrn_barrier_init(&empty[i], QRN_SPLIT_MULTIPLIERS / 32 * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    sent_sums<WEIGHTS> *sent = (sent_sums<WEIGHTS> *)(stages + QRN_SPLIT_STAGES * of::STAGE_BYTES);
    if (p.n_shares > 1) sent->begin(p.n_shares, own.rank);
    __syncthreads();
    qrn_ring<QRN_SPLIT_STAGES> ring;
    if (threadIdx.x >= QRN_SPLIT_MULTIPLIERS) {
        const int thread = (int)threadIdx.x - QRN_SPLIT_MULTIPLIERS;
        places<WEIGHTS, IS_BF16> ahead(p, first_x, first_w, own.begin, thread);
        piece now[of::EACH];
        ahead.load(now);
#pragma unroll 1
        for (int i = 0; i < own.n; i++, ring.next()) {
            piece next[of::EACH];
            if (i + 1 < own.n) ahead.load(next);
            qrn_barrier_wait(&empty[ring.stage], ring.parity ^ 1);
            store<WEIGHTS, IS_BF16>(now, thread, stages + ring.stage * of::STAGE_BYTES);
            qrn_fence_async();
            qrn_barrier_arrive_warp(&full[ring.stage]);
#pragma unroll
            for (int k = 0; k < of::EACH; k++) now[k] = next[k];
        }
        return;
    }
    float sums[WEIGHTS / 2], c[WEIGHTS / 2];
#pragma unroll
    for (int j = 0; j < WEIGHTS / 2; j++) sums[j] = c[j] = 0.0f;
    qrn_wgmma_hold(c);
#pragma unroll 1
    for (int i = 0; i < own.n; i++, ring.next()) {
        qrn_barrier_wait(&full[ring.stage], ring.parity);
        multiply<WEIGHTS, IS_BF16>(stages + ring.stage * of::STAGE_BYTES, i % 2, c);
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(c);
        qrn_barrier_arrive_warp(&empty[ring.stage]);
        if (i % 2 == 0 && i + 1 < own.n) continue;
#pragma unroll
        for (int j = 0; j < WEIGHTS / 2; j++) sums[j] += c[j];
    }
    if (p.n_shares == 1 || sent->add(p.n_shares, own.rank, sums))
        store_sums<WEIGHTS>(p, first_x, first_w, sums);
}

#define MATMUL_SPLIT(name, WEIGHTS, IS_BF16)                                                      \
    QRN_DEVICE_FUNCTION(qrn_matmul_split_##name, QRN_SPLIT_THREADS, 1, qrn_matmul_split_params)   \
    {                                                                                             \
        product<WEIGHTS, IS_BF16>(p);                                                             \
    }

MATMUL_SPLIT(64, 64, false)
MATMUL_SPLIT(128, 128, false)
MATMUL_SPLIT(64_bf16, 64, true)
MATMUL_SPLIT(128_bf16, 128, true)
