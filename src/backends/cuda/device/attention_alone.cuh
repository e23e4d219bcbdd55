/* SPDX-License-Identifier: MIT
 * Attention for few rows where a launch does nothing else. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_ALONE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_ALONE_CUH

#include "backends/cuda/device/attention_decode_shared.cuh"

/* What a launch does with a tile beside attention: nothing.  shares: blocks of threads share its keys, and merge_runs
 * is launched behind. */
template <int D, int R, bool of_shares> struct attention_alone {
    static const bool MERGES = !of_shares, /* runs are merged here */
        BEGINS_ANYWAY = false;             /* without keys too */
    const qrn_attention_params &p;
    decode_shared<D, R> &s;

    static __device__ __forceinline__ void sync() { __syncthreads(); }
    /* Blocks of keys that are this block's. */
    __device__ __forceinline__ void share(int *begin, int *end) const
    {
        int64_t first, last;
        qrn_attention_share(s.tile, &first, &last);
        *begin = (int)first;
        *end = (int)last;
    }
    /* Before the launch's turn, when it is known where the first keys are. */
    __device__ __forceinline__ void ask(const source &first) const
    {
        if (of_shares) ask_lines<D>(first);
    }
    /* After it, when the first keys are asked for: puts queries where they belong.  Rows that there are not stay what
     * they were, which is nobody's. */
    __device__ __forceinline__ void begin() const
    {
#pragma unroll 1
        for (int r = qrn_warp(); r < s.tile.n_rows; r += WARPS) {
            const float *from = qrn_attention_q(p, s.tile, s.row[r]);
            norm_part<1, (D + 127) / 128> x;
#pragma unroll
            for (int n = 0; n < (D + 127) / 128; n++)
                qrn_load4(from, x.begin() + n * x.STRIDE, D, x.v[n]);
            put_query<D, R>(s, r, x);
        }
    }
    /* What this thread has copied of a block's keys, or values, is there. */
    __device__ __forceinline__ void have_keys(uint16_t *, int) const {}
    __device__ __forceinline__ void have_values(uint16_t *, int) const {}
    /* Where a run's sums of row r go; NULL: nowhere. */
    __device__ __forceinline__ float *partial(int r, int run) const
    {
        const qrn_attention_row &row = s.row[r];
        if (r >= s.tile.n_rows || run < qrn_attention_first_run(row) ||
            !qrn_attention_reaches(row, run))
            return nullptr;
        return qrn_attention_partial(p, s.tile, row, run);
    }
    /* Dimensions d and d + 1 of row r. */
    __device__ __forceinline__ void store(int r, int d, float2 y) const
    {
        float *to = qrn_attention_out(p, s.tile, s.row[r]) + d;
        if (qrn_is_aligned(to, 8))
            *(float2 *)to = y;
        else
            to[0] = y.x, to[1] = y.y;
    }
};

#endif
