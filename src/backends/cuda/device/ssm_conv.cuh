/* SPDX-License-Identifier: MIT
 * What the kernels of ssm_conv and ssm_conv_history share: vectors of four channels of a row; the
 * tile of tokens of a block; where a sequence keeps what it remembers; silu. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_SSM_CONV_CUH

#include "backends/cuda/device/ragged.cuh"
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/ssm_conv_cuda.h"

/* A vector as it comes: what is on its way takes no more registers than that. */
template <int N> struct words_of {
    uint32_t w[N];
};

static __device__ __forceinline__ words_of<4> vector_at(const float *x)
{
    const uint4 v = *(const uint4 *)x;
    return words_of<4>{{v.x, v.y, v.z, v.w}};
}
static __device__ __forceinline__ words_of<2> vector_at(const uint16_t *x)
{
    const uint2 v = *(const uint2 *)x;
    return words_of<2>{{v.x, v.y}};
}

/* One store; the compiler makes some of a plain one behind a branch.  In memory, not in shared memory. */
static __device__ __forceinline__ void store_vector(float *out, const words_of<4> &r)
{
#ifdef QRN_EMULATED
    emulated_want_global(out);
    *(uint4 *)out = make_uint4(r.w[0], r.w[1], r.w[2], r.w[3]);
#else
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(out), "r"(r.w[0]), "r"(r.w[1]), "r"(r.w[2]), "r"(r.w[3])
                 : "memory");
#endif
}
static __device__ __forceinline__ void store_vector(uint16_t *out, const words_of<2> &r)
{
#ifdef QRN_EMULATED
    emulated_want_global(out);
    *(uint2 *)out = make_uint2(r.w[0], r.w[1]);
#else
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(out), "r"(r.w[0]), "r"(r.w[1]) : "memory");
#endif
}

/* What is not aligned, and the end of a row, comes element by element. */
template <class F>
static __device__ __forceinline__ typename F::words load_words(const typename F::T *row, int64_t c, int64_t n)
{
    typename F::words r = {};
    if (c + F::V <= n && qrn_is_aligned(row + c, sizeof r)) return vector_at(row + c);
#pragma unroll
    for (int j = 0; j < F::V; j++)
        if (c + j < n) F::set(r, j, row[c + j]);
    return r;
}

template <class F>
static __device__ __forceinline__ void store_words(typename F::T *row, int64_t c, int64_t n, const typename F::words &r)
{
    if (c + F::V <= n && qrn_is_aligned(row + c, sizeof r)) {
        store_vector(row + c, r);
        return;
    }
#pragma unroll
    for (int j = 0; j < F::V; j++)
        if (c + j < n) row[c + j] = F::at(r, j);
}

/* Rows of floats or of bf16, V channels a thread; ROWS: of the kernels for four taps.  silu is made of few instructions, for there are
 * no more than 28 of them for each bf16 that memory brings and takes: floats take one step of
 * Newton's more, which leaves an error of about a unit of the last place. */
struct of_f32 {
    typedef float T;
    typedef words_of<4> words;
    enum { V = QRN_CONV_VECTOR, ROWS = QRN_CONV_ROWS_F32 };
    static __device__ __forceinline__ T at(const words &r, int j)
    {
        return __uint_as_float(r.w[j]);
    }
    static __device__ __forceinline__ void set(words &r, int j, T x)
    {
        r.w[j] = __float_as_uint(x);
    }
    static __device__ __forceinline__ float get(T x) { return x; }
    static __device__ __forceinline__ float silu(float x)
    {
        const float d = 1.0f + qrn_exp2(fminf(x * -1.44269504f, 126.0f)), y = qrn_near_inverse(d);
        return x * fmaf(fmaf(-d, y, 1.0f), y, y);
    }
    static __device__ __forceinline__ words put_all(const float (&x)[V])
    {
        return words{{__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                      __float_as_uint(x[3])}};
    }
};

struct of_bf16 {
    typedef uint16_t T;
    typedef words_of<2> words;
    enum { V = QRN_CONV_VECTOR, ROWS = QRN_CONV_ROWS_BF16 };
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
    static __device__ __forceinline__ float silu(float x)
    {
        return x * qrn_near_inverse(1.0f + qrn_exp2(x * -1.44269504f));
    }
    static __device__ __forceinline__ words put_all(const float (&x)[V])
    {
        words r;
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
#ifdef QRN_EMULATED
            r.w[i] = qrn_bf16_of_float(x[2 * i]) | (uint32_t)qrn_bf16_of_float(x[2 * i + 1]) << 16;
#else
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r.w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
#endif
        }
        return r;
    }
};

static __device__ __forceinline__ float weight_at(const qrn_ssm_conv_params &p, int64_t c, int k)
{
    if (c >= p.n_channels) return 0.0f;
    const int64_t at = c * p.weight_stride + k;
    return p.weight_bf16 ? qrn_float_of_bf16(((const uint16_t *)p.weight)[at])
                         : ((const float *)p.weight)[at];
}

/* The tile of a block, of which there are less than 2^31; all lanes of its warps come here. */
static __device__ __forceinline__ qrn_tile tile_number(const qrn_ssm_conv_params &p, int64_t index)
{
    if (!p.tiles_per_seq) return qrn_find_tile(p.sequences, index, p.tile, 1);
    const unsigned each = (unsigned)p.tiles_per_seq, s = (unsigned)index / each;
    const int64_t first = (int64_t)((unsigned)index - s * each) * p.tile, n = p.sequences.n_tokens;
    const qrn_tile t = {s, 0, n, first, qrn_clamp(n - first, 0, p.tile), 0, true};
    return t;
}

/* Where the sequence of a tile keeps what it remembers, and its rows. */
template <class F> struct place {
    typedef typename F::words words;
    const typename F::T *x; /* of its first token */
    typename F::T *out;
    float *ring; /* NULL: it has states */
    int64_t c, position;
    bool unknown; /* a position out of range */
    __device__ place(const qrn_ssm_conv_params &p, const qrn_tile &t, int64_t channel)
    {
        typedef typename F::T T;
        x = (const T *)p.x + t.s * p.x_stride[0] + t.begin * p.x_stride[1];
        out = (T *)p.out + t.s * p.out_stride[0] + t.begin * p.out_stride[1];
        c = channel;
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
        words v = {};
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

#endif
