/* SPDX-License-Identifier: MIT
 * A joint: all that is between two products of an attention layer, of single tokens of few sequences
 * (attention_token.cuh).
 *
 * Where not all sequences have one token, the first block of each key head does one step after the other. */
#include "backends/cuda/device/attention_alone.cuh"
#include "backends/cuda/device/attention_token.cuh"

/* A tile whose keys are all this block's. */
template <int D> struct attention_whole : attention_alone<D, HEADS, false> {
    static __device__ __forceinline__ void sync() { attention_token<D>::sync(); }
    __device__ __forceinline__ void share(int *begin, int *end) const
    {
        const qrn_attention_tile &t = this->s.tile;
        *begin = (int)(t.begin / BLOCK);
        *end = t.end > t.begin ? (int)((t.end - 1) / BLOCK) + 1 : *begin;
    }
};

/* All steps of a key head, where not all sequences have one token. */
template <int D> struct attention_steps {
    attention_token<D> rows;
    attention_whole<D> whole;
    const int64_t n_tokens;

    __device__ __forceinline__ attention_steps(const qrn_attention_token_params &p,
                                               token_shared<D> &s)
        : rows(p, s), whole{{p.attention, s.attention}}, n_tokens(p.attention.n_tokens)
    {
    }

    __device__ __forceinline__ void make_rows()
    {
        token_shared<D> &s = rows.s;
        for (int64_t token = 0; token < n_tokens; token++) {
            __syncthreads();
            rows.find_angles(token, (int)threadIdx.x, QRN_ATTENTION_TOKEN_THREADS);
            if (threadIdx.x == 0)
                s.page = qrn_paged_page_of(rows.p.rows.append.paged, token, &s.slot);
            __syncthreads();
            if (qrn_warp() >= WARPS) rows.make_rows(token, rows.group + 2, true, false);
            __syncthreads();
            if (qrn_warp() >= WARPS) rows.append_key();
        }
    }

    __device__ __forceinline__ void find_tile(int64_t nth)
    {
        const qrn_attention_params &p = rows.p.attention;
        const qrn_attention_tile t =
            qrn_attention_tile_of_seq(p, qrn_attention_seq_by_warp(p, nth, HEADS), nth, HEADS);
        if (qrn_lane() < HEADS)
            whole.s.row[qrn_lane()] =
                qrn_attention_row_of(p, t, rows.kv_head, qrn_lane() < t.n_rows ? qrn_lane() : 0);
        if (qrn_lane() == 0) whole.s.tile = t;
    }

    __device__ __forceinline__ void attend()
    {
        for (int64_t nth = 0; nth < rows.p.attention.n_tiles; nth++) {
            __syncthreads();
            if (qrn_warp() == 0) find_tile(nth);
            __syncthreads();
            if (whole.s.tile.n_rows > 0 && qrn_warp() < WARPS)
                decode<D, HEADS, attention_whole<D>>(rows.p.attention, whole.s, whole).walk();
        }
        __syncthreads();
    }

    __device__ __forceinline__ void multiply()
    {
        const int n = attention_token<D>::N;
        for (int64_t token = 0; token < n_tokens; token++) {
            __syncthreads();
            if (qrn_warp() >= WARPS) rows.make_gates(token);
            __syncthreads();
            for (int i = qrn_warp(); i < n * rows.group; i += ALL_WARPS) {
                const int r = i / n, d = i % n * QRN_PIECE + 4 * qrn_lane();
                float x[4];
                qrn_load4(rows.out_at(token, r), d, D, x);
                rows.multiply(token, r, d, x);
            }
        }
    }
};

template <int D>
static __device__ __noinline__ void attention_one_by_one(const qrn_attention_token_params &p,
                                                         token_shared<D> &s)
{
    attention_steps<D> steps(p, s);
    qrn_grid_waits();
    steps.make_rows();
    steps.attend();
    steps.multiply();
}

template <int D>
static __device__ __forceinline__ void attention_of_token(const qrn_attention_token_params &p,
                                                          void *memory)
{
    token_shared<D> &s = *(token_shared<D> *)memory;
    attention_token<D> steps(p, s);
    if (!p.rows.early) qrn_grid_waits();
    if (steps.find_work()) {
        if (qrn_warp() < WARPS)
            decode<D, HEADS, attention_token<D>>(p.attention, s.attention, steps).walk();
        else
            steps.help();
        if (steps.is_last()) steps.finish();
    } else if (!s.one_each && blockIdx.x == 0 && blockIdx.z == 0) {
        attention_one_by_one<D>(p, s);
    }
}

#define ATTENTION_TOKEN(D)                                                                 \
    QRN_DEVICE_FUNCTION_EARLY(qrn_attention_token_##D, 384, 1, qrn_attention_token_params) \
    {                                                                                      \
        QRN_DYNAMIC_SHARED(uint4, memory);                                                 \
        attention_of_token<D>(p, memory);                                                  \
    }

ATTENTION_TOKEN(64)
ATTENTION_TOKEN(128)
ATTENTION_TOKEN(256)
