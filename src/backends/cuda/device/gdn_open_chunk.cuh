/* SPDX-License-Identifier: MIT
 * gdn_open_chunk: where its rows and states are.  A segment is a run of tokens of one sequence inside
 * one chunk. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_CHUNK_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_CHUNK_CUH

#include "backends/cuda/device/gdn.cuh"
#include "backends/cuda/gdn_open_chunk_cuda.h"

/* A sequence of the call. */
struct gdn_sequence {
    int64_t s, begin, n, position;
    bool unknown; /* its position is out of range */
    __device__ void find(const qrn_gdn_open_chunk_params &p, int64_t which)
    {
        int64_t end;
        s = which;
        position = p.position[s];
        unknown = position < 0;
        qrn_sequence(p.x.sequences, s, &begin, &end);
        n = end - begin;
    }
    __device__ int64_t first_chunk() const { return position / GDN_CHUNK; }
    /* Chunks that it comes to. */
    __device__ int n_segments() const
    {
        return n == 0 ? 0 : (int)((position + n - 1) / GDN_CHUNK - first_chunk() + 1);
    }
};

struct gdn_segment {
    int64_t token; /* first, in the call */
    int n, open;   /* tokens, and those before them in the chunk */
    const float *state;
    float *next; /* NULL: the chunk stays open */
    double *G;   /* open rows */
    float *k, *u;
    __device__ void find(const qrn_gdn_open_chunk_params &p, const gdn_sequence &q, int wave)
    {
        const int64_t c = q.first_chunk() + wave, edge = (c + 1) * GDN_CHUNK,
                      end = q.position + q.n, from = wave ? c * GDN_CHUNK : q.position;
        const uint64_t *states = p.state + q.s * p.state_stride;
        token = q.begin + from - q.position;
        n = (int)((end < edge ? end : edge) - from);
        open = (int)(from % GDN_CHUNK);
        state = (const float *)(uintptr_t)(states[wave ? 1 + (c & 1) : 0] + p.state_offset);
        next = nullptr;
        if (end >= edge) next = (float *)(uintptr_t)(states[1 + ((c + 1) & 1)] + p.state_offset);
        G = (double *)(uintptr_t)(p.rows[q.s * p.rows_stride + (c & 1)] + p.rows_offset);
        k = (float *)(G + p.x.heads.n_v * GDN_CHUNK);
        u = k + p.x.heads.n_k * p.x.d_k * GDN_CHUNK;
    }
};

/* What is made of a call's chunks before they are walked has numbers: those of a sequence are from here on. */
static __device__ __forceinline__ int64_t gdn_first_number(const gdn_sequence &q)
{
    return q.begin / GDN_CHUNK + 2 * q.s;
}

/* The chunk of a number, if there is one. */
static __device__ bool gdn_find_chunk(const qrn_gdn_open_chunk_params &p, int64_t number,
                                      gdn_sequence *q, int *wave)
{
    const qrn_ragged &r = p.x.sequences;
    unsigned low = 0, high = (unsigned)r.n_seqs; /* the last sequence whose first number is not above */
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2,
                       begin = (unsigned)qrn_clamp(r.seq_begin[middle], 0, r.n_tokens);
        if (begin / GDN_CHUNK + 2 * middle <= (unsigned)number)
            low = middle;
        else
            high = middle;
    }
    if (r.n_seqs == 0) return false;
    q->find(p, low);
    *wave = (int)(number - gdn_first_number(*q));
    return !q->unknown && *wave >= 0 && *wave < q->n_segments();
}

/* exp(G_t - G_s). */
static __device__ __forceinline__ float gdn_decay(double t, double s)
{
    return qrn_exp((float)(t - s));
}

/* A sequence that cannot be worked out: its rows of out, columns first .. of one head. */
static __device__ __forceinline__ void gdn_fill_nan(const qrn_gdn_open_chunk_params &p,
                                                    const gdn_sequence &q, int64_t h, int64_t first,
                                                    int width)
{
    for (int64_t i = threadIdx.x; i < q.n * width; i += blockDim.x) {
        const int64_t t = q.begin + i / width, j = first + i % width;
        if (j < p.x.d_v) p.x.out[t * p.x.out_token + h * p.x.out_head + j] = gdn_nan();
    }
}

#endif
