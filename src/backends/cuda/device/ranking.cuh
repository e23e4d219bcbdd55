/* SPDX-License-Identifier: MIT
 * Ranks: larger first, then the lower index, NaN last, as a number of 64 bits that is larger the
 * earlier the rank.  Selection finds the last of the first k by counting, 11 bits at a time: a few
 * passes over the row whatever k is, and sums of integers, which no order changes. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_RANKING_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_RANKING_CUH

#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/device/warp.cuh"

typedef unsigned long long qrn_rank;

/* The place of a value among all, as bits: equal zeros, NaN 0. */
static __device__ __forceinline__ uint32_t qrn_order_of(float x)
{
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0;
    if (magnitude == 0) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The value that has this place, which is not 0. */
static __device__ __forceinline__ float qrn_value_at(uint32_t order)
{
    return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

static __device__ __forceinline__ qrn_rank qrn_rank_of(float x, int64_t i)
{
    return (qrn_rank)qrn_order_of(x) << 32 | (uint32_t) ~(uint32_t)i;
}

static __device__ __forceinline__ int64_t qrn_index_of(qrn_rank rank)
{
    return (uint32_t) ~(uint32_t)rank;
}

static __device__ __forceinline__ qrn_rank qrn_warp_first(qrn_rank x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const qrn_rank other = __shfl_xor_sync(QRN_ALL_OF_WARP, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* Over the block; shared holds one for each warp.  All threads have the result. */
static __device__ __forceinline__ qrn_rank qrn_block_first(qrn_rank x, qrn_rank *shared)
{
    const int n = (int)blockDim.x / 32;
    x = qrn_warp_first(x);
    __syncthreads();
    if (qrn_lane() == 0) shared[qrn_warp()] = x;
    __syncthreads();
    x = shared[0];
    for (int i = 1; i < n; i++) x = shared[i] > x ? shared[i] : x;
    return x;
}

enum { QRN_BIN_BITS = 11, QRN_BINS = 1 << QRN_BIN_BITS };

struct qrn_bins {
    unsigned long long mass[QRN_BINS];
    unsigned long long before; /* what is left of the goal within the bin that was found */
    int bin;
};

/* The first bin, from the highest, up to which the masses reach goal, which is 1 or more and at
 * most all of them; and goal less what is above it.  One warp looks, all threads know. */
static __device__ __forceinline__ void qrn_find_bin(qrn_bins *b, unsigned long long goal)
{
    __syncthreads();
    if (qrn_warp() == 0) {
        const int lane = qrn_lane(), each = QRN_BINS / 32, top = QRN_BINS - 1 - lane * each;
        unsigned long long sum = 0;
        for (int i = 0; i < each; i++) sum += b->mass[top - i];
        unsigned long long above = sum; /* up to and with this lane's */
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned long long other = __shfl_up_sync(QRN_ALL_OF_WARP, above, step);
            if (lane >= step) above += other;
        }
        const unsigned reached = __ballot_sync(QRN_ALL_OF_WARP, above >= goal);
        if (lane == (reached ? __ffs((int)reached) - 1 : 31)) {
            unsigned long long left = goal - (above - sum);
            int i = 0;
            for (; i < each - 1 && b->mass[top - i] < left; i++) left -= b->mass[top - i];
            b->bin = top - i;
            b->before = left;
        }
    }
    __syncthreads();
}

/* The rank at which the masses of x[0 .. n - 1], taken in the order of rank, reach goal.  mass(i)
 * is that of element i, the same for all of equal value; 0 leaves it out.  All threads come
 * here. */
template <typename Mass>
static __device__ qrn_rank qrn_select(const float *x, int64_t n, unsigned long long goal,
                                      qrn_bins *b, Mass mass)
{
    qrn_rank found = 0;
    for (int shift = 64, bits; shift > 0;) {
        bits = shift < QRN_BIN_BITS ? shift : QRN_BIN_BITS;
        shift -= bits;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < QRN_BINS; i += (int)blockDim.x) b->mass[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const qrn_rank rank = qrn_rank_of(x[i], i);
            if (shift + bits < 64 && (rank ^ found) >> (shift + bits)) continue;
            const unsigned long long m = mass(i);
            if (m) atomicAdd(&b->mass[rank >> shift & ((1u << bits) - 1)], m);
        }
        qrn_find_bin(b, goal);
        found |= (qrn_rank)b->bin << shift;
        goal = b->before;
    }
    return found;
}

#endif
