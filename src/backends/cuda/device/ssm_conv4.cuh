/* SPDX-License-Identifier: MIT
 * Convolutions of four taps and aligned rows: a thread walks a tile of tokens with a vector of channels,
 * 16 bytes of a row; the last rows stay in registers, so a row is read once (those before a tile once
 * more, from L2), and four to eight rows are on their way at a time. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV4_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV4_CUH

#include "backends/cuda/device/ssm_conv.cuh"

enum { CONV_AHEAD = 4, CONV_TAPS = 4 };

/* Asks for the next CONV_AHEAD rows, of which n exist. */
template <class F>
static __device__ __forceinline__ void conv_ask(const typename F::T *x, int64_t stride, int n,
                                                words (&rows)[CONV_AHEAD])
{
#pragma unroll
    for (int a = 0; a < CONV_AHEAD; a++) {
        if (n < CONV_AHEAD && a >= n) break;
        const uint4 v = *(const uint4 *)(x + a * stride);
        rows[a] = words{{v.x, v.y, v.z, v.w}};
    }
}

/* What is done with vectors of rows, which all lanes of a warp come to together, and where one goes: its place in out; row: of
 * the tile. */
struct to_out {
    enum { TOGETHER = false }; /* rows that are on their way together are put side by side, for which it takes registers */
    template <class F>
    __device__ __forceinline__ void store(const float (&y)[F::V], typename F::T *out, int row) const
    {
        const words r = F::put_all(y);
        (void)row;
        *(uint4 *)out = make_uint4(r.w[0], r.w[1], r.w[2], r.w[3]);
    }
};
struct as_it_is : to_out {
    template <int R, int V> __device__ __forceinline__ void operator()(float (&)[R][V]) const {}
};

template <class F> struct filter {
    enum { V = F::V };
    float w[V][CONV_TAPS];
    words before[CONV_TAPS - 1];

    __device__ __forceinline__ void load_weights(const qrn_ssm_conv_params &p, int64_t c)
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (p.weight_bf16) {
                const uint2 v = *(const uint2 *)((const uint16_t *)p.weight + (c + j) * CONV_TAPS);
                w[j][0] = __uint_as_float(v.x << 16), w[j][1] = __uint_as_float(v.x & 0xffff0000u);
                w[j][2] = __uint_as_float(v.y << 16), w[j][3] = __uint_as_float(v.y & 0xffff0000u);
            } else {
                const float4 v = *(const float4 *)((const float *)p.weight + (c + j) * CONV_TAPS);
                w[j][0] = v.x, w[j][1] = v.y, w[j][2] = v.z, w[j][3] = v.w;
            }
        }
    }

    /* Row a of x, and those before it, summed. */
    __device__ __forceinline__ void sum(const words (&x)[CONV_AHEAD], int a, float (&y)[V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
#pragma unroll
            for (int k = 0; k < CONV_TAPS; k++) {
                const int at = a + k - (CONV_TAPS - 1);
                const float e = F::get(F::at(at < 0 ? before[at + CONV_TAPS - 1] : x[at < 0 ? 0 : at], j));
                y[j] = k == 0 ? w[j][0] * e : fmaf(w[j][k], e, y[j]);
            }
            y[j] = F::silu(y[j]);
        }
    }
    /* Rows a .. a + R - 1 of x to out, through after, side by side; row: of the first row of x. */
    template <int R, class After>
    __device__ __forceinline__ void put(const words (&x)[CONV_AHEAD], int a, typename F::T *out, int64_t stride, int row,
                                        const After &after) const
    {
        float y[R][V];
#pragma unroll
        for (int r = 0; r < R; r++) sum(x, a + r, y[r]);
        after(y);
#pragma unroll
        for (int r = 0; r < R; r++) after.template store<F>(y[r], out + (a + r) * stride, row + a + r);
    }
    /* The first n rows of x. */
    template <class After>
    __device__ __forceinline__ void apply(const words (&x)[CONV_AHEAD], typename F::T *out,
                                          int64_t stride, int n, int row, const After &after)
    {
        if (After::TOGETHER && n >= CONV_AHEAD) {
            put<CONV_AHEAD>(x, 0, out, stride, row, after);
        } else {
#pragma unroll
            for (int a = 0; a < CONV_AHEAD; a++) {
                if (a >= n) break;
                put<1>(x, a, out, stride, row, after);
            }
        }
#pragma unroll
        for (int k = 0; k < CONV_TAPS - 1; k++) before[k] = x[CONV_AHEAD - (CONV_TAPS - 1) + k];
    }
};

/* States: read by the first tile, which also writes the new ones. */
template <class F> struct states {
    const qrn_ssm_conv_params &p;
    const qrn_tile &t;
    int64_t c;
    __device__ __forceinline__ bool unknown() const { return false; }
    __device__ __forceinline__ words before(int back) const
    {
        return place<F>(p, t, c).before(p, t, back);
    }
    __device__ __forceinline__ void keep(const words (&)[CONV_AHEAD], int) const {}
    __device__ __forceinline__ void finish() const
    {
        if (t.first == 0) place<F>(p, t, c).finish(p, t);
    }
};

/* Rings of rows.  Where a row that is new takes the place of one that the first tile reads, the
 * first tile stores it: `late` ones. */
template <class F> struct rings {
    const qrn_ssm_conv_params &p;
    const qrn_tile &t;
    int64_t c;
    float *ring;
    int32_t position;
    uint32_t size, first; /* slots; that of the first token */
    __device__ __forceinline__ rings(const qrn_ssm_conv_params &params, const qrn_tile &tile,
                                     int64_t channel, uint64_t address, int32_t stands)
        : p(params), t(tile), c(channel)
    {
        ring = (float *)(uintptr_t)(address + (uint64_t)p.history_offset);
        position = stands;
        size = (uint32_t)p.n_history;
        first = stands < 0 ? 0 : (uint32_t)stands % size;
    }
    __device__ __forceinline__ bool unknown() const { return position < 0; }
    /* NULL: none.  back 0: the first token's, which is new. */
    __device__ __forceinline__ float *row_before(int back) const
    {
        if (position < back) return nullptr;
        const uint32_t slot = first < (uint32_t)back ? first + size - back : first - back;
        return ring + slot * p.n_channels;
    }
    __device__ __forceinline__ words before(int back) const
    {
        const float *row = row_before(back);
        return row ? load_words<F>(row, c, p.n_channels) : words{{0, 0, 0, 0}};
    }
    __device__ __forceinline__ void store(uint32_t row, const words &v) const
    {
        store_words<F>(ring + (first + row) % size * p.n_channels, c, p.n_channels, v);
    }
    /* Rows i .. i + CONV_AHEAD - 1 of the tile. */
    __device__ __forceinline__ void keep(const words (&x)[CONV_AHEAD], int i) const
    {
        const int64_t from = t.end - t.begin - size, row = t.first + i;
        if (position < 0 || row + CONV_AHEAD <= from) return;
#pragma unroll
        for (int a = 0; a < CONV_AHEAD; a++) {
            if (i + a >= t.n || row + a < from) continue;
            const uint32_t r = (uint32_t)(row + a);
            if (t.first == 0 || r % size + CONV_TAPS <= size) store(r, x[a]);
        }
    }
    /* The late ones of later tiles. */
    __device__ __forceinline__ void finish() const
    {
        const int64_t n = t.end - t.begin;
        if (t.first != 0 || n <= t.n || position < 0) return;
        const typename F::T *x = (const typename F::T *)p.x + t.begin * p.x_stride[1];
#pragma unroll
        for (int back = 1; back < CONV_TAPS; back++) {
            const int64_t row = n - 1 - ((uint32_t)(n - 1) + back) % size;
            if (row >= t.n)
                store((uint32_t)row, load_words<F>(x + row * p.x_stride[1], c, p.n_channels));
        }
    }
};

template <class F, class Memory, class After>
static __device__ __forceinline__ void convolve(const qrn_ssm_conv_params &p, const qrn_tile &t,
                                                int64_t c, filter<F> &f, const Memory &memory,
                                                const After &after)
{
    typedef typename F::T T;
    const int64_t from = p.x_stride[1], to = p.out_stride[1];
    const T *x = (const T *)p.x + t.s * p.x_stride[0] + (t.begin + t.first) * from + c;
    T *out = (T *)p.out + t.s * p.out_stride[0] + (t.begin + t.first) * to + c;
    const int n = (int)t.n;
    words even[CONV_AHEAD] = {}, odd[CONV_AHEAD] = {};
    conv_ask<F>(x, from, n, even);
#pragma unroll
    for (int k = 0; k < CONV_TAPS - 1; k++) {
        const int back = CONV_TAPS - 1 - k;
        if (t.first == 0) {
            f.before[k] = memory.before(back);
        } else {
            const uint4 v = *(const uint4 *)(x - back * from);
            f.before[k] = words{{v.x, v.y, v.z, v.w}};
        }
    }
    if (memory.unknown()) {
#pragma unroll
        for (int j = 0; j < F::V; j++) f.w[j][0] = __uint_as_float(0x7fc00000u);
    }
    for (int i = 0; i < n; i += 2 * CONV_AHEAD) {
        conv_ask<F>(x + CONV_AHEAD * from, from, n - i - CONV_AHEAD, odd);
        f.apply(even, out, to, n - i, i, after);
        memory.keep(even, i);
        if (i + CONV_AHEAD >= n) break;
        conv_ask<F>(x + 2 * CONV_AHEAD * from, from, n - i - 2 * CONV_AHEAD, even);
        f.apply(odd, out + CONV_AHEAD * to, to, n - i - CONV_AHEAD, i + CONV_AHEAD, after);
        memory.keep(odd, i + CONV_AHEAD);
        x += 2 * CONV_AHEAD * from;
        out += 2 * CONV_AHEAD * to;
    }
    memory.finish();
}

/* The channels of this thread; their weights are asked for. */
template <class F> static __device__ __forceinline__ int64_t begin(const qrn_ssm_conv_params &p)
{
    const unsigned block = blockIdx.x % (unsigned)p.n_channel_blocks;
    const int64_t c = ((int64_t)block * QRN_CONV_THREADS + threadIdx.x) * F::V;
    if (c < p.n_channels)
        qrn_prefetch((const char *)p.weight + c * CONV_TAPS * (p.weight_bf16 ? 2 : 4));
    qrn_grid_waits();
    return c;
}

/* after(c, t): of channels c on, tile t. */
template <class After>
static __device__ __forceinline__ void with_rings(const qrn_ssm_conv_params &p, const After &after)
{
    typedef of_f32 F;
    const int64_t c = begin<F>(p);
    filter<F> f;
    if (c < p.n_channels) f.load_weights(p, c);
    /* What the first 32 sequences have is asked for together with where they begin. */
    const int lane = qrn_lane();
    uint64_t address = 0;
    int32_t position = 0;
    if (lane < p.sequences.n_seqs) {
        address = p.history[lane * p.history_stride];
        position = p.position[lane];
    }
    const qrn_tile t = tile_number(p, blockIdx.x / (unsigned)p.n_channel_blocks);
    address = __shfl_sync(QRN_ALL_OF_WARP, address, (int)t.s & 31);
    position = __shfl_sync(QRN_ALL_OF_WARP, position, (int)t.s & 31);
    if (!t.exists || t.n == 0 || c >= p.n_channels) return;
    if (t.s >= 32) {
        address = p.history[t.s * p.history_stride];
        position = p.position[t.s];
    }
    convolve<F>(p, t, c, f, rings<F>(p, t, c, address, position), after(c, t));
}

#endif
