/* SPDX-License-Identifier: MIT
 * Products of float32 weights with many rows of float32 x on Hopper's tensor cores.
 *
 * A float is the sum of three bf16, each what is left of it by the ones before, rounded: 24 bits.  So a product of two is
 * nine products of bf16, of which the six largest are made; what is left out is 2^-24 of it.  Tensor cores make those six in less
 * time than multiply-adds take for one.  They cut off what does not fit in a sum where others round it; so sums begin anew
 * with each 128 k, and are added up by rounding.
 *
 * Eight warps load rows of x and of weights, split them and write three tiles of each to shared memory, four warps multiply. */
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

template <int WEIGHTS> struct shape {
    enum {
        ROWS = QRN_SPLIT_X + WEIGHTS,
        EACH = ROWS * 8 / QRN_SPLIT_SPLITTERS, /* pieces of a stage that a thread has: of rows 32 apart */
        OF_X = QRN_SPLIT_X * 8 / QRN_SPLIT_SPLITTERS, /* the first of them are of x */
        PART_BYTES = ROWS * QRN_LINE,                 /* rows of x, then those of weights */
        STAGE_BYTES = QRN_SPLIT_PARTS * PART_BYTES
    };
};

/* Where a thread's pieces of the next stage are; past the last row: that again. */
template <int WEIGHTS> struct places {
    const char *from[shape<WEIGHTS>::EACH];

    __device__ __forceinline__ places(const qrn_matmul_split_params &p, int first_x, int first_w, int thread)
    {
#pragma unroll
        for (int i = 0; i < shape<WEIGHTS>::EACH; i++) {
            const int row = thread / 8 + 32 * i;
            const bool is_x = i < shape<WEIGHTS>::OF_X;
            from[i] = (const char *)(uintptr_t)(is_x ? p.x + min(first_x + row, p.n_rows - 1) * p.x_row_bytes
                                                     : p.w + min(first_w + row - QRN_SPLIT_X, p.n - 1) * p.w_row_bytes) +
                      thread % 8 * (8 * (int)sizeof(float));
        }
    }
    __device__ __forceinline__ void load(piece (&to)[shape<WEIGHTS>::EACH])
    {
#pragma unroll
        for (int i = 0; i < shape<WEIGHTS>::EACH; i++) {
            to[i].low = *(const float4 *)from[i];
            to[i].high = *(const float4 *)(from[i] + 16);
            from[i] += QRN_SPLIT_K * (int)sizeof(float);
        }
    }
};

template <int WEIGHTS>
static __device__ __forceinline__ void store(const piece (&from)[shape<WEIGHTS>::EACH], int thread, char *stage)
{
#pragma unroll
    for (int i = 0; i < shape<WEIGHTS>::EACH; i++) {
        uint32_t parts[4][QRN_SPLIT_PARTS];
        split(from[i].low.x, from[i].low.y, parts[0]);
        split(from[i].low.z, from[i].low.w, parts[1]);
        split(from[i].high.x, from[i].high.y, parts[2]);
        split(from[i].high.z, from[i].high.w, parts[3]);
        char *to = stage + qrn_in_atom(thread / 8 + 32 * i, thread % 8 * 16);
#pragma unroll
        for (int part = 0; part < QRN_SPLIT_PARTS; part++)
            *(uint4 *)(to + part * shape<WEIGHTS>::PART_BYTES) =
                make_uint4(parts[0][part], parts[1][part], parts[2][part], parts[3][part]);
    }
}

/* c = the six products of a stage's k, or, if `adds`, c += .. */
template <int WEIGHTS>
static __device__ __forceinline__ void multiply(const char *stage, int adds, float (&c)[WEIGHTS / 2])
{
    enum { PART = shape<WEIGHTS>::PART_BYTES, W = QRN_SPLIT_X * QRN_LINE };
    const uint64_t tile = qrn_tile_by_k(stage);
    qrn_wgmma_fence();
#pragma unroll
    for (int k = 0; k < QRN_SPLIT_K / 16; k++)
#pragma unroll
        for (int i = 0; i < QRN_SPLIT_PARTS; i++)
#pragma unroll
            for (int j = 0; i + j < QRN_SPLIT_PARTS; j++)
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

template <int WEIGHTS> static __device__ __forceinline__ void product(const qrn_matmul_split_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[QRN_SPLIT_STAGES], empty[QRN_SPLIT_STAGES];
    char *stages = (char *)qrn_align_shared(memory, QRN_ATOM);
    const int i_x = (int)blockIdx.x / p.n_weight_tiles, first_x = i_x * QRN_SPLIT_X,
              first_w = ((int)blockIdx.x - i_x * p.n_weight_tiles) * WEIGHTS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < QRN_SPLIT_STAGES; i++) {
            qrn_barrier_init(&full[i], QRN_SPLIT_SPLITTERS / 32 * QRN_WARP_ARRIVALS);
            qrn_barrier_init(&empty[i], QRN_SPLIT_MULTIPLIERS / 32 * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
    qrn_ring<QRN_SPLIT_STAGES> ring;
    if (threadIdx.x >= QRN_SPLIT_MULTIPLIERS) {
        const int thread = (int)threadIdx.x - QRN_SPLIT_MULTIPLIERS;
        places<WEIGHTS> ahead(p, first_x, first_w, thread);
        piece now[shape<WEIGHTS>::EACH];
        ahead.load(now);
#pragma unroll 1
        for (int i = 0; i < p.n_steps; i++, ring.next()) {
            piece next[shape<WEIGHTS>::EACH];
            if (i + 1 < p.n_steps) ahead.load(next);
            qrn_barrier_wait(&empty[ring.stage], ring.parity ^ 1);
            store<WEIGHTS>(now, thread, stages + ring.stage * shape<WEIGHTS>::STAGE_BYTES);
            qrn_fence_async();
            qrn_barrier_arrive_warp(&full[ring.stage]);
#pragma unroll
            for (int k = 0; k < shape<WEIGHTS>::EACH; k++) now[k] = next[k];
        }
        return;
    }
    float sums[WEIGHTS / 2], c[WEIGHTS / 2];
#pragma unroll
    for (int j = 0; j < WEIGHTS / 2; j++) sums[j] = c[j] = 0.0f;
    qrn_wgmma_hold(c);
#pragma unroll 1
    for (int i = 0; i < p.n_steps; i++, ring.next()) {
        qrn_barrier_wait(&full[ring.stage], ring.parity);
        multiply<WEIGHTS>(stages + ring.stage * shape<WEIGHTS>::STAGE_BYTES, i % 2, c);
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(c);
        qrn_barrier_arrive_warp(&empty[ring.stage]);
        if (i % 2 == 0 && i + 1 < p.n_steps) continue;
#pragma unroll
        for (int j = 0; j < WEIGHTS / 2; j++) sums[j] += c[j];
    }
    store_sums<WEIGHTS>(p, first_x, first_w, sums);
}

QRN_DEVICE_FUNCTION(qrn_matmul_split_64, QRN_SPLIT_THREADS, 1, qrn_matmul_split_params)
{
    product<64>(p);
}

QRN_DEVICE_FUNCTION(qrn_matmul_split_128, QRN_SPLIT_THREADS, 1, qrn_matmul_split_params)
{
    product<128>(p);
}
