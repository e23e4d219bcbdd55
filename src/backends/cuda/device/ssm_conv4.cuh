/* SPDX-License-Identifier: MIT
 * Convolutions of four taps and aligned rows: a thread has a vector of channels of some tokens one after the
 * other, all of whose rows are on their way at once, with the three before them, which come from L2. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV4_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV4_CUH

#include "backends/cuda/device/ssm_conv.cuh"

enum { CONV_TAPS = 4 };

/* Asks for rows, of which n exist. */
template <class F>
static __device__ __forceinline__ void conv_ask(const typename F::T *x, int64_t stride, int n,
                                                typename F::words (&rows)[F::ROWS])
{
#pragma unroll
    for (int a = 0; a < F::ROWS; a++) {
        if (n < F::ROWS && a >= n) break;
        rows[a] = vector_at(x + a * stride);
    }
}

/* What is done with vectors of rows, which all lanes of a warp come to together, and where one goes: its place in out; row: of
 * the tile. */
struct to_out {
    enum { TOGETHER = 1 }; /* rows that are put side by side, for which it takes registers; a part of F::ROWS */
    template <class F>
    __device__ __forceinline__ void store(const float (&y)[F::V], typename F::T *out, int row) const
    {
        (void)row;
        store_vector(out, F::put_all(y));
    }
};
struct as_it_is : to_out {
    template <int R, int V> __device__ __forceinline__ void operator()(float (&)[R][V]) const {}
};

template <class F> struct filter {
    typedef typename F::words words;
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
    template <int N> __device__ __forceinline__ void sum(const words (&x)[N], int a, float (&y)[V]) const
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
    /* Rows a .. a + R - 1 of x to out, through after, side by side. */
    template <int R, int N, class After>
    __device__ __forceinline__ void put(const words (&x)[N], int a, typename F::T *out, int64_t stride,
                                        const After &after) const
    {
        float y[R][V];
#pragma unroll
        for (int r = 0; r < R; r++) sum(x, a + r, y[r]);
        after(y);
#pragma unroll
        for (int r = 0; r < R; r++) after.template store<F>(y[r], out + (a + r) * stride, a + r);
    }
    /* The first n rows of x. */
    template <class After>
    __device__ __forceinline__ void apply(const words (&x)[F::ROWS], typename F::T *out, int64_t stride, int n,
                                          const After &after) const
    {
        enum { R = After::TOGETHER };
#pragma unroll
        for (int a = 0; a < F::ROWS; a++) {
            if (a >= n) break;
            if (R > 1 && n >= a / R * R + R) {
                if (a % R == 0) put<R>(x, a, out, stride, after);
            } else {
                put<1>(x, a, out, stride, after);
            }
        }
    }
};

/* States: read by the first tile, which also writes the new ones (finish). */
template <class F> struct states {
    typedef typename F::T T;
    typedef typename F::words words;
    const qrn_ssm_conv_params &p;
    const qrn_tile &t;
    int64_t c;
    __device__ __forceinline__ bool unknown() const { return false; }
    __device__ __forceinline__ words before(int back) const
    {
        const T *state = (const T *)p.state_in + t.s * p.in_stride[0] + c * p.in_stride[1] + (CONV_TAPS - 1 - back);
        words v = {};
#pragma unroll
        for (int j = 0; j < F::V; j++) F::set(v, j, state[j * p.in_stride[1]]);
        return v;
    }
    __device__ __forceinline__ void keep(const words (&)[F::ROWS]) const {}
    /* In place, too: what is read lies further on than what is written. */
    __device__ __forceinline__ void finish() const
    {
        const int n_before = CONV_TAPS - 1;
        const int64_t row = t.end - t.begin - n_before;
        const T *x = (const T *)p.x + t.s * p.x_stride[0] + (t.begin + row) * p.x_stride[1] + c;
        T *state = (T *)p.state_out + t.s * p.next_stride[0] + c * p.next_stride[1];
#pragma unroll 1
        for (int k = 0; k < n_before; k++) {
            const words v = row + k >= 0 ? vector_at(x + k * p.x_stride[1]) : before((int)-(row + k));
#pragma unroll
            for (int j = 0; j < F::V; j++) state[j * p.next_stride[1] + k] = F::at(v, j);
        }
    }
};

/* Rings of rows.  Where a row that is new takes the place of one that the first tile reads, the
 * first tile stores it: `late` ones. */
template <class F> struct rings {
    typedef typename F::words words;
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
        return row ? load_words<F>(row, c, p.n_channels) : words{};
    }
    __device__ __forceinline__ void store(uint32_t row, const words &v) const
    {
        store_words<F>(ring + (first + row) % size * p.n_channels, c, p.n_channels, v);
    }
    /* Rows of the tile. */
    __device__ __forceinline__ void keep(const words (&x)[F::ROWS]) const
    {
        const int64_t from = t.end - t.begin - size;
        if (position < 0 || t.first + t.n <= from) return;
#pragma unroll
        for (int a = 0; a < F::ROWS; a++) {
            if (a >= t.n || t.first + a < from) continue;
            const uint32_t r = (uint32_t)(t.first + a);
            if (t.first == 0 || r % size + CONV_TAPS <= size) store(r, x[a]);
        }
    }
    /* The late ones of later tiles. */
    __device__ __forceinline__ void finish() const
    {
        const int64_t n = t.end - t.begin;
        if (n <= t.n || position < 0) return;
        const typename F::T *x = (const typename F::T *)p.x + t.begin * p.x_stride[1];
#pragma unroll
        for (int back = 1; back < CONV_TAPS; back++) {
            const int64_t row = n - 1 - ((uint32_t)(n - 1) + back) % size;
            if (row >= t.n)
                store((uint32_t)row, load_words<F>(x + row * p.x_stride[1], c, p.n_channels));
        }
    }
};

/* A tile of at most F::ROWS tokens. */
template <class F, class Memory, class After>
static __device__ __forceinline__ void convolve(const qrn_ssm_conv_params &p, const qrn_tile &t, int64_t c,
                                                const Memory &memory, const After &after)
{
    typedef typename F::T T;
    const int64_t from = p.x_stride[1], to = p.out_stride[1];
    const T *x = (const T *)p.x + t.s * p.x_stride[0] + (t.begin + t.first) * from + c;
    T *out = (T *)p.out + t.s * p.out_stride[0] + (t.begin + t.first) * to + c;
    const int n = (int)t.n;
    filter<F> f;
    typename F::words rows[F::ROWS];
    if (t.first == 0) {
#pragma unroll
        for (int k = 0; k < CONV_TAPS - 1; k++) f.before[k] = memory.before(CONV_TAPS - 1 - k);
        memory.finish();
    } else {
#pragma unroll
        for (int k = 0; k < CONV_TAPS - 1; k++) f.before[k] = vector_at(x - (CONV_TAPS - 1 - k) * from);
    }
    conv_ask<F>(x, from, n, rows);
    f.load_weights(p, c);
    if (memory.unknown()) {
#pragma unroll
        for (int j = 0; j < F::V; j++) f.w[j][0] = __uint_as_float(0x7fc00000u);
    }
    memory.keep(rows);
    f.apply(rows, out, to, n, after);
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
    convolve<F>(p, t, c, rings<F>(p, t, c, address, position), after(c, t));
}

#endif
