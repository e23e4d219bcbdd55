/* SPDX-License-Identifier: MIT
 * ssm_conv and ssm_conv_history: bound by memory.  A thread walks a tile of tokens with a vector of
 * channels, 16 bytes of a row; the last taps stay in registers, so a row is read once (those before a
 * tile once more, from L2), and four rows are on their way at a time.  The first tile of a sequence
 * alone reads its state and writes the new one, after it has read the old. */
#include "backends/cuda/device/ragged.cuh"
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/ssm_conv_cuda.h"

enum { AHEAD = 4 }; /* rows on their way */

/* 16 bytes of a row as they come: what is on its way takes no more registers than that. */
struct words {
    uint32_t w[4];
};

template <class F>
static __device__ __forceinline__ words load_words(const typename F::T *row, int64_t c, int64_t n)
{
    words r = {{0, 0, 0, 0}};
    if (c + F::V <= n && qrn_is_aligned(row + c, 16)) {
        const uint4 v = *(const uint4 *)(row + c);
        r.w[0] = v.x, r.w[1] = v.y, r.w[2] = v.z, r.w[3] = v.w;
        return r;
    }
#pragma unroll
    for (int j = 0; j < F::V; j++)
        if (c + j < n) F::set(r, j, row[c + j]);
    return r;
}

template <class F>
static __device__ __forceinline__ void store_words(typename F::T *row, int64_t c, int64_t n,
                                                   const words &r)
{
    if (c + F::V <= n && qrn_is_aligned(row + c, 16)) {
        *(uint4 *)(row + c) = make_uint4(r.w[0], r.w[1], r.w[2], r.w[3]);
        return;
    }
#pragma unroll
    for (int j = 0; j < F::V; j++)
        if (c + j < n) row[c + j] = F::at(r, j);
}

/* Rows of floats or of bf16, V channels a thread. */
struct of_f32 {
    typedef float T;
    enum { V = 4 };
    static __device__ __forceinline__ T at(const words &r, int j)
    {
        return __uint_as_float(r.w[j]);
    }
    static __device__ __forceinline__ void set(words &r, int j, T x)
    {
        r.w[j] = __float_as_uint(x);
    }
    static __device__ __forceinline__ float get(T x) { return x; }
    static __device__ __forceinline__ T put(float x) { return x; }
};

struct of_bf16 {
    typedef uint16_t T;
    enum { V = 8 };
    static __device__ __forceinline__ T at(const words &r, int j)
    {
        return (T)(r.w[j / 2] >> (j % 2 * 16));
    }
    static __device__ __forceinline__ void set(words &r, int j, T x)
    {
        r.w[j / 2] =
            j % 2 ? (r.w[j / 2] & 0xffffu) | (uint32_t)x << 16 : (r.w[j / 2] & 0xffff0000u) | x;
    }
    static __device__ __forceinline__ float get(T x) { return qrn_float_of_bf16(x); }
    static __device__ __forceinline__ T put(float x) { return qrn_bf16_of_float(x); }
};

static __device__ __forceinline__ float weight_at(const qrn_ssm_conv_params &p, int64_t c, int k)
{
    if (c >= p.n_channels) return 0.0f;
    const int64_t at = c * p.weight_stride + k;
    return p.weight_bf16 ? qrn_float_of_bf16(((const uint16_t *)p.weight)[at])
                         : ((const float *)p.weight)[at];
}

/* The tile of this block. */
static __device__ __forceinline__ qrn_tile tile_of_block(const qrn_ssm_conv_params &p)
{
    if (!p.tiles_per_seq) return qrn_find_tile(p.sequences, blockIdx.x, QRN_CONV_TILE, 1);
    const int64_t s = blockIdx.x / p.tiles_per_seq;
    const int64_t first = (blockIdx.x - s * p.tiles_per_seq) * QRN_CONV_TILE,
                  n = p.sequences.n_tokens;
    const qrn_tile t = {s, 0, n, first, qrn_clamp(n - first, 0, QRN_CONV_TILE), 0, true};
    return t;
}

/* Where the sequence of a tile keeps what it remembers, and its rows. */
template <class F> struct place {
    const typename F::T *x; /* of its first token */
    typename F::T *out;
    float *ring; /* NULL: it has states */
    int64_t c, position;
    bool unknown; /* a position out of range */
    __device__ place(const qrn_ssm_conv_params &p, const qrn_tile &t)
    {
        typedef typename F::T T;
        x = (const T *)p.x + t.s * p.x_stride[0] + t.begin * p.x_stride[1];
        out = (T *)p.out + t.s * p.out_stride[0] + t.begin * p.out_stride[1];
        c = ((int64_t)blockIdx.y * QRN_CONV_THREADS + threadIdx.x) * F::V;
        ring = nullptr;
        position = 0;
        unknown = false;
        if (!p.history || t.n <= 0) return;
        ring = (float *)(uintptr_t)(p.history[t.s * p.history_stride] + (uint64_t)p.history_offset);
        position = p.position[t.s];
        unknown = position < 0;
    }
    /* Slots of the ring: of a row that is new, and of one before the first. */
    __device__ float *slot(const qrn_ssm_conv_params &p, int64_t row) const
    {
        return ring + (position + row) % p.n_history * p.n_channels;
    }
    /* The row `back` before the first one of the sequence. */
    __device__ words before(const qrn_ssm_conv_params &p, const qrn_tile &t, int64_t back) const
    {
        typedef typename F::T T;
        words v = {{0, 0, 0, 0}};
        if (unknown || (p.history && back > position)) return v;
        if (p.history) return load_words<F>((const T *)slot(p, -back), c, p.n_channels);
        const T *state = (const T *)p.state_in + t.s * p.in_stride[0] + (p.n_taps - 1 - back);
#pragma unroll
        for (int j = 0; j < F::V; j++)
            if (c + j < p.n_channels) F::set(v, j, state[(c + j) * p.in_stride[1]]);
        return v;
    }
    __device__ words row_at(const qrn_ssm_conv_params &p, const qrn_tile &t, int64_t row) const
    {
        return row >= 0 ? load_words<F>(x + row * p.x_stride[1], c, p.n_channels)
                        : before(p, t, -row);
    }
    /* Whether a new row lies where one of those before the first lay: the first tile stores it. */
    __device__ bool is_late(const qrn_ssm_conv_params &p, int64_t row) const
    {
        return p.n_history - row % p.n_history < p.n_taps;
    }
    /* Stores a new row in the ring, if none that comes after takes its place. */
    __device__ void keep(const qrn_ssm_conv_params &p, const qrn_tile &t, int64_t row,
                         const words &v) const
    {
        if (!ring || unknown || t.end - t.begin - row > p.n_history || is_late(p, row)) return;
        store_words<F>((typename F::T *)slot(p, row), c, p.n_channels, v);
    }
    /* What the first tile stores when it has read all of the old. */
    __device__ void finish(const qrn_ssm_conv_params &p, const qrn_tile &t) const
    {
        typedef typename F::T T;
        const int64_t n = t.end - t.begin;
        if (p.history) {
            const int64_t first = n > p.n_history ? n - p.n_history : 0;
            for (int64_t row = first; row < n && ring && !unknown; row++) {
                if (is_late(p, row))
                    store_words<F>((T *)slot(p, row), c, p.n_channels, row_at(p, t, row));
            }
            return;
        }
        T *state = (T *)p.state_out + t.s * p.next_stride[0];
        for (int64_t k = 0; k < p.n_taps - 1; k++) { /* in place: what is read lies further on */
            const words v = row_at(p, t, n - (p.n_taps - 1) + k);
#pragma unroll
            for (int j = 0; j < F::V; j++)
                if (c + j < p.n_channels) state[(c + j) * p.next_stride[1] + k] = F::at(v, j);
        }
    }
};

/* taps is that number, or 0: any. */
template <class F, int taps> struct filter {
    enum { V = F::V, K = taps };
    float w[K][V], last[K - 1][V];
    __device__ void begin(const qrn_ssm_conv_params &p, const qrn_tile &t, const place<F> &at)
    {
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int j = 0; j < V; j++) w[k][j] = weight_at(p, at.c + j, k);
#pragma unroll
        for (int k = 0; k < K - 1; k++) {
            const words v = at.row_at(p, t, t.first + k - (K - 1));
#pragma unroll
            for (int j = 0; j < V; j++) last[k][j] = F::get(F::at(v, j));
        }
    }
    __device__ void row(const qrn_ssm_conv_params &, const qrn_tile &, const place<F> &, int64_t,
                        const words &now, float (&sum)[V])
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float x = F::get(F::at(now, j));
            sum[j] = w[0][j] * last[0][j];
#pragma unroll
            for (int k = 1; k < K - 1; k++) sum[j] = fmaf(w[k][j], last[k][j], sum[j]);
            sum[j] = fmaf(w[K - 1][j], x, sum[j]);
#pragma unroll
            for (int k = 0; k < K - 2; k++) last[k][j] = last[k + 1][j];
            last[K - 2][j] = x;
        }
    }
};

template <class F> struct filter<F, 0> {
    enum { V = F::V };
    __device__ void begin(const qrn_ssm_conv_params &, const qrn_tile &, const place<F> &) {}
    __device__ void row(const qrn_ssm_conv_params &p, const qrn_tile &t, const place<F> &at,
                        int64_t row, const words &now, float (&sum)[V])
    {
        const int K = (int)p.n_taps;
        for (int k = 0; k < K; k++) {
            const words v = k < K - 1 ? at.row_at(p, t, row + k - (K - 1)) : now;
#pragma unroll
            for (int j = 0; j < V; j++) {
                const float e = F::get(F::at(v, j)), w = weight_at(p, at.c + j, k);
                sum[j] = k == 0 ? w * e : fmaf(w, e, sum[j]);
            }
        }
    }
};

template <class F, int taps>
static __device__ __forceinline__ void convolve(const qrn_ssm_conv_params &p)
{
    const qrn_tile t = tile_of_block(p);
    if (!t.exists) return;
    const place<F> at(p, t);
    if (at.c >= p.n_channels) return;
    filter<F, taps> f;
    f.begin(p, t, at);
    for (int64_t i = 0; i < t.n; i += AHEAD) {
        words x[AHEAD], y = {{0, 0, 0, 0}};
        float sum[F::V];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a < t.n)
                x[a] = load_words<F>(at.x + (t.first + i + a) * p.x_stride[1], at.c, p.n_channels);
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int64_t row = t.first + i + a;
            if (i + a >= t.n) break;
            f.row(p, t, at, row, x[a], sum);
#pragma unroll
            for (int j = 0; j < F::V; j++)
                F::set(y, j, F::put(at.unknown ? __uint_as_float(0x7fc00000u) : qrn_silu(sum[j])));
            store_words<F>(at.out + row * p.out_stride[1], at.c, p.n_channels, y);
            if (p.history) at.keep(p, t, row, x[a]);
        }
    }
    if (t.first == 0) at.finish(p, t);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv_f32, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_f32, 0>(p);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv4_f32, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_f32, 4>(p);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv_bf16, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_bf16, 0>(p);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv4_bf16, 128, 3, qrn_ssm_conv_params)
{
    convolve<of_bf16, 4>(p);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv_history, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_f32, 0>(p);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv4_history, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_f32, 4>(p);
}
