/* SPDX-License-Identifier: MIT
 * Ragged batches: which tokens a block takes.  The host does not read seq_begin, so it launches as many
 * tiles as there can be and each finds its own; what seq_begin says is kept inside the tokens. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_RAGGED_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_RAGGED_CUH

#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/ragged_cuda.h"

/* Tokens begin .. end - 1 of sequence s, of which a tile takes n from begin + first on. */
struct qrn_tile {
    int64_t s, begin, end, first, n, index; /* index: of the tile, among all that have tokens */
    bool exists;
};

static __device__ __forceinline__ int64_t qrn_clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Where sequence s of r begins and ends. */
static __device__ __forceinline__ void qrn_sequence(const qrn_ragged &r, int64_t s, int64_t *begin,
                                                    int64_t *end)
{
    *begin = r.seq_begin ? qrn_clamp(r.seq_begin[s], 0, r.n_tokens) : 0;
    *end = r.seq_begin ? qrn_clamp(r.seq_begin[s + 1], *begin, r.n_tokens) : r.n_tokens;
}

/* Tile number i of tiles of `tile` tokens, each of one sequence; sequences of none have least tiles.
 * All lanes of a warp come here with the same i and get the same. */
static __device__ __forceinline__ qrn_tile qrn_find_tile(const qrn_ragged &r, int64_t i, int tile,
                                                         int least)
{
    qrn_tile t = {0, 0, 0, 0, 0, i, false};
    const int lane = qrn_lane();
    for (int64_t s0 = 0; s0 < r.n_seqs; s0 += 32) {
        const int64_t s = s0 + lane;
        int64_t begin = 0, end = 0;
        if (s < r.n_seqs) qrn_sequence(r, s, &begin, &end);
        int n = (int)(((unsigned)(end - begin) + (unsigned)tile - 1) / (unsigned)tile);
        if (s < r.n_seqs && n < least) n = least;
        int sum = n;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int before = __shfl_up_sync(QRN_ALL_OF_WARP, sum, step);
            if (lane >= step) sum += before;
        }
        const unsigned above = __ballot_sync(QRN_ALL_OF_WARP, sum > i);
        if (above) {
            const int at = __ffs((int)above) - 1;
            const int64_t first = (i - __shfl_sync(QRN_ALL_OF_WARP, sum - n, at)) * tile;
            t.s = s0 + at;
            qrn_sequence(r, t.s, &t.begin, &t.end);
            t.first = first;
            t.n = t.end - t.begin - first < tile ? t.end - t.begin - first : tile;
            t.exists = true;
            return t;
        }
        i -= __shfl_sync(QRN_ALL_OF_WARP, sum, 31);
    }
    return t;
}

#endif
