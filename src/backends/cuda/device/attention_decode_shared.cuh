/* SPDX-License-Identifier: MIT
 * What attention for few rows (attention_decode.cuh) has in shared memory, and how queries come there. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_DECODE_SHARED_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_DECODE_SHARED_CUH

#include "backends/cuda/device/attention_mma.cuh"
#include "backends/cuda/device/norm_part.cuh"

enum { WARPS = 4, DECODE_THREADS = 32 * WARPS, WARP_KEYS = BLOCK / WARPS, STAGES = 3 };

template <int D, int R> struct decode_shared {
    uint16_t tiles[STAGES]
                  [BLOCK * D]; /* keys of the first block, its values, keys of the next ... */
    uint16_t p[2][16 * BLOCK];
    uint16_t q[16 * (R == 8 ? D : 1)]; /* queries, 8 rows below what halves leave of them */
    uint4 low[R == 16 ? D / 16 : 1]
             [32]; /* the latter of 16 rows, a lane's piece of each fragment */
    float inverse[R], most[R][WARPS], sums[R][8];
    int64_t bad;
    qrn_attention_tile tile;
    qrn_attention_row row[R]; /* those past the tile's are as its first */
};

/* L2 is asked for keys and values of a page; by all that attend. */
template <int D> static __device__ __forceinline__ void ask_lines(const source &page)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; page.k && i < D; i += DECODE_THREADS) {
        qrn_prefetch(page.k + i * BLOCK);
        qrn_prefetch(page.v + i * BLOCK);
    }
}

/* Row r of queries, a warp's, scaled by a power of two to below 32, as halves and what those leave.  Those of 16 rows
 * come where the third tile will be. */
template <int D, int R, int N>
static __device__ __forceinline__ void put_query(decode_shared<D, R> &s, int r,
                                                 const norm_part<1, N> &x)
{
    uint16_t *const high = R == 8 ? s.q : s.tiles[2], *const low = high + R * D;
    float most = 0.0f;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) most = fmaxf(most, fabsf(x.v[n][j]));
    const float factor = query_factor(most, &s.inverse[r]);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int i = x.begin() + n * x.STRIDE;
        uint2 upper, rest;
        split(x.v[n][0] * factor, x.v[n][1] * factor, &upper.x, &rest.x);
        split(x.v[n][2] * factor, x.v[n][3] * factor, &upper.y, &rest.y);
        if (i >= D) continue;
        *(uint2 *)(place<D>(high, r, i / 8) + i % 8) = upper;
        *(uint2 *)(place<D>(low, r, i / 8) + i % 8) = rest;
    }
}

static_assert(sizeof(decode_shared<256, 16>) <= QRN_ATTENTION_DECODE_BYTES(256), "");
static_assert(sizeof(decode_shared<64, 16>) <= QRN_ATTENTION_DECODE_BYTES(64), "");
static_assert(sizeof(decode_shared<256, 8>) <= QRN_ATTENTION_DECODE_BYTES(256), "");
static_assert(sizeof(decode_shared<64, 8>) <= QRN_ATTENTION_DECODE_BYTES(64), "");

#endif
