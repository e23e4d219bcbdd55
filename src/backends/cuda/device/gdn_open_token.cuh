/* SPDX-License-Identifier: MIT
 * gdn_open_chunk of one token a sequence, d 128: what the tables say of a head, and dots of a column
 * or a row with the token's k and q. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_TOKEN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_TOKEN_CUH

#include "backends/cuda/device/gdn_open_step.cuh"

enum { TOKEN_D = 128 };

enum gdn_token_kind { NOTHING, ONE_TOKEN, OTHER };

/* Loads that need not wait for each other; heads and sequences are counted in 32 bits, whose divisions
 * take a fifth of the time. */
struct gdn_token_head {
    int64_t begin;
    int n, h, kh, position;
    uint64_t state, next_state, own_rows; /* of chunks */
    float gate, beta;
    bool keeps_key; /* of value heads that share one, the first */

    __device__ void find(const qrn_gdn_open_chunk_params &p, int s, int head)
    {
        const uint64_t *states = p.state + s * p.state_stride, *r = p.rows + s * p.rows_stride;
        const unsigned n_k = (unsigned)p.x.heads.n_k, each = (unsigned)p.x.heads.each;
        int64_t end;
        h = head;
        position = p.position[s];
        const uint64_t even_state = states[1], odd_state = states[2], even_rows = r[0],
                       odd_rows = r[1];
        qrn_sequence(p.x.sequences, s, &begin, &end);
        n = (int)(end - begin);
        const bool is_odd = position / GDN_CHUNK & 1;
        state = states[0] + p.state_offset;
        next_state = (is_odd ? even_state : odd_state) + p.state_offset;
        own_rows = (is_odd ? odd_rows : even_rows) + p.rows_offset;
        kh = (int)(p.x.heads.tiled ? (unsigned)head % n_k : (unsigned)head / each);
        keeps_key = p.x.heads.tiled ? (unsigned)head < n_k : (unsigned)kh * each == (unsigned)head;
    }
    __device__ int open() const { return position % GDN_CHUNK; }
    __device__ bool ends() const { return open() == GDN_CHUNK - 1; }
    __device__ int kind() const
    {
        if (n == 0) return NOTHING;
        if (position < 0 || n != 1) return OTHER;
        return (state | own_rows | (ends() ? next_state : 0)) % 16 ? OTHER : ONE_TOKEN;
    }
    __device__ void find_gates(const qrn_gdn_open_chunk_params &p)
    {
        if (n == 0) return;
        gate = *gdn_at(p.x.g, begin, h);
        beta = *gdn_at(p.x.beta, begin, h);
    }

    __device__ const float *S() const { return (const float *)(uintptr_t)state + square(h); }
    /* NULL: the chunk stays open. */
    __device__ float *next() const
    {
        return ends() ? (float *)(uintptr_t)next_state + square(h) : nullptr;
    }
    __device__ double *G() const { return (double *)(uintptr_t)own_rows + h * GDN_CHUNK; }
    __device__ float *k(const qrn_gdn_open_chunk_params &p) const
    {
        const uintptr_t G = (uintptr_t)own_rows;
        return (float *)(G + p.x.heads.n_v * GDN_CHUNK * sizeof(double)) + rows(kh);
    }
    __device__ float *u(const qrn_gdn_open_chunk_params &p) const
    {
        return k(p) + rows((int)p.x.heads.n_k - kh + h);
    }
    static __device__ int64_t square(int head) { return (int64_t)head * (TOKEN_D * TOKEN_D); }
    static __device__ int64_t rows(int head) { return (int64_t)head * (TOKEN_D * GDN_CHUNK); }
};

/* Adds n elements of a column, element i by x(i), with k and q. */
template <int ahead, class Element>
static __device__ __forceinline__ void gdn_add_column(two_sums &sum, const float *k, const float *q,
                                                      const Element &x, int n)
{
    static_assert(ahead % 4 == 0, "");
#pragma unroll ahead / 4
    for (int i = 0; i < n; i += 4) {
        const float4 k4 = *(const float4 *)(k + i), q4 = *(const float4 *)(q + i);
        const float x0 = x(i), x1 = x(i + 1), x2 = x(i + 2), x3 = x(i + 3);
        sum.k = fmaf(x0, k4.x, sum.k);
        sum.q = fmaf(x0, q4.x, sum.q);
        sum.k = fmaf(x1, k4.y, sum.k);
        sum.q = fmaf(x1, q4.y, sum.q);
        sum.k = fmaf(x2, k4.z, sum.k);
        sum.q = fmaf(x2, q4.z, sum.q);
        sum.k = fmaf(x3, k4.w, sum.k);
        sum.q = fmaf(x3, q4.w, sum.q);
    }
}

static __device__ __forceinline__ void gdn_add_four(two_sums &sum, const float4 &k, const float4 &q, const float4 &x)
{
    sum.k = fmaf(x.x, k.x, sum.k);
    sum.q = fmaf(x.x, q.x, sum.q);
    sum.k = fmaf(x.y, k.y, sum.k);
    sum.q = fmaf(x.y, q.y, sum.q);
    sum.k = fmaf(x.z, k.z, sum.k);
    sum.q = fmaf(x.z, q.z, sum.q);
    sum.k = fmaf(x.w, k.w, sum.k);
    sum.q = fmaf(x.w, q.w, sum.q);
}

/* The same of a whole key in shared memory, row r of those that gdn_turned has put there; 0 for one that lies as it is. */
template <int ahead>
static __device__ __forceinline__ void gdn_add_key(two_sums &sum, const float *k, const float *q,
                                                   const float *row, int r)
{
    static_assert(ahead % 4 == 0, "");
#pragma unroll ahead / 4
    for (int c = 0; c < TOKEN_D / 4; c++)
        gdn_add_four(sum, *(const float4 *)(k + 4 * c), *(const float4 *)(q + 4 * c),
                     *(const float4 *)(row + gdn_turned(r, c)));
}

/* The same of N keys side by side, whose runs of 32 floats are run[] apart. */
template <int N>
static __device__ __forceinline__ void gdn_add_keys(two_sums (&sum)[N], const float *k, const float *q,
                                                    const float *const (&row)[N], const int (&r)[N], const int (&run)[N])
{
    const float *from[N][4]; /* of 16 floats: each four */
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int c = 0; c < 4; c++) from[j][c] = row[j] + gdn_turned(r[j], c);
#pragma unroll 1
    for (int i = 0; i < TOKEN_D / 16; i++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float4 k4 = *(const float4 *)(k + 16 * i + 4 * c), q4 = *(const float4 *)(q + 16 * i + 4 * c);
#pragma unroll
            for (int j = 0; j < N; j++) gdn_add_four(sum[j], k4, q4, *(const float4 *)from[j][c]);
        }
        /* The other half of a run is 16 floats away, on the side that the row is turned to; then the next run. */
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int half = r[j] & 4 ? -16 : 16, step = i % 2 ? run[j] - half : half;
#pragma unroll
            for (int c = 0; c < 4; c++) from[j][c] += step;
        }
    }
}

/* Adds n rows of u, row i by u(i), to v's side a and out's side b; n_there: rows that may be read. */
template <int n_there, class Element>
static __device__ __forceinline__ void gdn_add_rows(float &a, float &b, const float2 *coef,
                                                    const Element &u, int n)
{
    enum { AT_ONCE = 16 };
    static_assert(n_there % AT_ONCE == 0, "");
    for (int s = 0; s < n; s += AT_ONCE) {
        float2 c[AT_ONCE];
        float x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            c[i] = coef[s + i];
            x[i] = u(s + i);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (s + i >= n) continue;
            a = fmaf(c[i].x, x[i], a);
            b = fmaf(c[i].y, x[i], b);
        }
    }
}

#endif
