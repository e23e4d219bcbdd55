/* SPDX-License-Identifier: MIT
 * Convolutions of four taps and aligned rows of sequences of mostly one token, which keep rings of rows: a thread has four
 * channels of a few sequences, whose rows are on their way at once.
 *
 * Bound by latency: where rows are is found, and L2 is asked for those of before, ahead of the launch's turn. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV_TOKEN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV_TOKEN_CUH

#include "backends/cuda/device/ssm_conv4.cuh"

/* A thread's channels of a sequence. */
struct conv_token {
    typedef of_f32 F;
    typedef F::words words;
    int32_t begin, n; /* its tokens */
    int32_t position; /* of the first; < 0: not known */
    uint32_t slot;    /* of its row in the ring */
    float *ring;
    words before[CONV_TAPS - 1], row;

    __device__ __forceinline__ void find(const qrn_ssm_conv_params &p, int64_t s, int c)
    {
        begin = n = position = 0, slot = 0, ring = nullptr;
        if (s >= p.sequences.n_seqs) return;
        int64_t first, end;
        qrn_sequence(p.sequences, s, &first, &end);
        begin = (int32_t)first, n = (int32_t)(end - first);
        ring = (float *)(uintptr_t)(p.history[s * p.history_stride] + (uint64_t)p.history_offset) + c;
        position = p.position[s];
        slot = position < 0 ? 0 : (uint32_t)position % (uint32_t)p.n_history;
    }
    /* Of the token `back` before the first; NULL: none. */
    __device__ __forceinline__ const float *row_before(const qrn_ssm_conv_params &p, uint32_t back) const
    {
        if (n <= 0 || position < (int32_t)back) return nullptr;
        return ring + (slot < back ? slot + (uint32_t)p.n_history - back : slot - back) * p.n_channels;
    }
    __device__ __forceinline__ void ask(const qrn_ssm_conv_params &p) const
    {
#pragma unroll
        for (uint32_t back = 1; back < CONV_TAPS; back++) {
            const float *from = row_before(p, back);
            if (from) qrn_prefetch(from);
        }
    }
    __device__ __forceinline__ words x(const qrn_ssm_conv_params &p, int c, int32_t i) const
    {
        return load_words<F>((const float *)p.x + (begin + i) * p.x_stride[1] + c, 0, F::V);
    }
    __device__ __forceinline__ void load(const qrn_ssm_conv_params &p, int c)
    {
        if (n > 0) row = x(p, c, 0);
#pragma unroll
        for (uint32_t k = 0; k < CONV_TAPS - 1; k++) {
            const float *from = row_before(p, CONV_TAPS - 1 - k);
            before[k] = from ? load_words<F>(from, 0, F::V) : words{};
        }
    }
    /* Token i, whose row is there, through after. */
    template <class After>
    __device__ __forceinline__ void finish(const qrn_ssm_conv_params &p, int c, int32_t i, const filter<F> &f,
                                           const After &after) const
    {
        float y[1][F::V];
#pragma unroll
        for (int j = 0; j < F::V; j++) {
            y[0][j] = (position < 0 ? __uint_as_float(0x7fc00000u) : f.w[j][0]) * F::at(before[0], j);
            y[0][j] = fmaf(f.w[j][1], F::at(before[1], j), y[0][j]);
            y[0][j] = fmaf(f.w[j][2], F::at(before[2], j), y[0][j]);
            y[0][j] = F::silu(fmaf(f.w[j][3], F::at(row, j), y[0][j]));
        }
        after(y);
        store_words<F>((float *)p.out + (begin + i) * p.out_stride[1] + c, 0, F::V, F::put_all(y[0]));
        if (position >= 0 && i >= n - (int32_t)p.n_history)
            store_words<F>(ring + (slot + (uint32_t)i) % (uint32_t)p.n_history * p.n_channels, 0, F::V, row);
    }
};

/* All tokens of a sequence, if it has more than one. */
template <class After>
static __device__ __forceinline__ void walk_if_many(const qrn_ssm_conv_params &p, int64_t s, int c, const After &after)
{
    conv_token t;
    filter<of_f32> f;
    t.find(p, s, c);
    if (t.n <= 1) return;
    f.load_weights(p, c);
    t.load(p, c);
#pragma unroll 1
    for (int32_t i = 0; i < t.n; i++) {
        t.finish(p, c, i, f, after);
        if (i + 1 == t.n) break;
        t.before[0] = t.before[1], t.before[1] = t.before[2], t.before[2] = t.row;
        t.row = t.x(p, c, i + 1);
    }
}

/* Of TOGETHER sequences of this block; after(c): of channels c on. */
template <int TOGETHER, class After>
static __device__ __forceinline__ void with_tokens(const qrn_ssm_conv_params &p, bool numbers_stay, const After &after)
{
    const unsigned group = blockIdx.x / (unsigned)p.n_channel_blocks, block = blockIdx.x % (unsigned)p.n_channel_blocks;
    const int c = (int)((block * QRN_CONV_THREADS + threadIdx.x) * of_f32::V);
    const int64_t first = (int64_t)group * TOGETHER;
    conv_token tokens[TOGETHER];
    filter<of_f32> f;
    if (c < p.n_channels) qrn_prefetch((const char *)p.weight + c * CONV_TAPS * (p.weight_bf16 ? 2 : 4));
    if (!numbers_stay) qrn_grid_waits();
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
        tokens[i].find(p, first + i, c);
        if (c < p.n_channels) tokens[i].ask(p);
    }
    qrn_grid_waits();
    if (c >= p.n_channels) return;
    f.load_weights(p, c);
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        if (tokens[i].n == 1) tokens[i].load(p, c);
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        if (tokens[i].n == 1) tokens[i].finish(p, c, 0, f, after(c));
#pragma unroll 1
    for (int64_t s = first; s < min(first + TOGETHER, p.sequences.n_seqs); s++) walk_if_many(p, s, c, after(c));
}

#endif
