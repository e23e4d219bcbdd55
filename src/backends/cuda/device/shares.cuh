/* SPDX-License-Identifier: MIT
 * Equal shares of a product's panels for blocks that are all there at once, and sums that one hands over to
 * the next.
 *
 * Panels are counted group by group, and no share is shorter than a group.  So a share is the end of a
 * group, whole groups, and the beginning of one.  A block begins with that last one and hands its sums
 * over; it ends with the first one, long after the block before has begun: the order of sums is that of
 * k, and nobody waits. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_SHARES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_SHARES_CUH

#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/matmul_stream_cuda.h"

/* From panel begin of group first to panel end of group last, which it does not reach. */
struct qrn_share {
    int first, begin, last, end;
};

/* Of a block: `each` panels, the first n_longer blocks one more. */
static __device__ __forceinline__ qrn_share qrn_share_of(int block, int each, int n_longer, int n_panels)
{
    const int from = block * each + min(block, n_longer), to = from + each + (block < n_longer);
    qrn_share s;
    s.first = from / n_panels;
    s.begin = from - s.first * n_panels;
    s.last = to / n_panels;
    s.end = to - s.last * n_panels;
    return s;
}

/* Goes through a share in the order in which it is done. */
struct qrn_share_walk {
    int group, panel, end; /* end 0: no more */
    int next_whole, n_whole;
    bool is_first; /* in the share's first group, of which it has the end: the last piece */

    __device__ __forceinline__ void start(const qrn_share &s, int n_panels)
    {
        next_whole = s.first + (s.begin > 0);
        n_whole = s.last - next_whole;
        is_first = false;
        group = s.last, panel = 0, end = s.end;
        if (end == 0) next_piece(s, n_panels);
    }
    __device__ __forceinline__ void next_piece(const qrn_share &s, int n_panels)
    {
        end = n_panels;
        if (n_whole > 0) {
            n_whole--;
            group = next_whole++;
            panel = 0;
        } else {
            if (is_first || s.begin == 0) end = 0;
            is_first = true;
            group = s.first, panel = s.begin;
        }
    }
    __device__ __forceinline__ void next(const qrn_share &s, int n_panels, int n = 1)
    {
        while (end && n >= end - panel) {
            n -= end - panel;
            next_piece(s, n_panels);
        }
        panel += n;
    }
};

/* What the block before has summed of a group with N rows of x, from row `first` on: one warp, a lane has a row of
 * weights.  A sum and whether it is there are one word, so that neither side has to wait for other memory. */
template <int N>
static __device__ __forceinline__ void qrn_take_over(qrn_stream_handover *from, int first, int n_rows, float (&acc)[N])
{
#pragma unroll
    for (int r = 0; r < N; r++) {
        if (first + r >= n_rows) break;
        uint64_t *word = &from->sum[first + r][qrn_lane()], x;
        do x = qrn_load_relaxed(word);
        while (x == 0);
        *word = 0;
        acc[r] = __uint_as_float((uint32_t)x);
    }
    __syncwarp();
}

template <int N>
static __device__ __forceinline__ void qrn_hand_over(qrn_stream_handover *to, int first, int n_rows,
                                                     const float (&acc)[N])
{
#pragma unroll
    for (int r = 0; r < N; r++)
        if (first + r < n_rows)
            qrn_store_relaxed(&to->sum[first + r][qrn_lane()], (uint64_t)1 << 32 | __float_as_uint(acc[r]));
}

#endif
