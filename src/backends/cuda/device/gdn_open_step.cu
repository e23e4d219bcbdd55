/* SPDX-License-Identifier: MIT
 * gdn_open_chunk for few tokens: bound by reading S0, 4 * d_k * d_v bytes a head, and the open rows.  A
 * block has a slice of a head's columns.  Its first threads have a column each, two more warps an open
 * row each: all do the same, a dot of a column of memory (neighbours side by side) with k and with q,
 * 32 loads on their way at a time, while the slice of u comes to shared memory.  Then a column's
 * thread adds the open rows.  Sums ascend, in one thread, whatever the slices are. */
#include "backends/cuda/device/gdn_open_chunk.cuh"

enum { PANEL = QRN_GDN_STEP_PANEL, AHEAD = 32, EDGE = 32 };

template <int W> struct step_shared {
    gdn_segment segment;
    float u[GDN_CHUNK][W];
    float2 kq[PANEL];          /* of the token: k, q */
    float kd[GDN_CHUNK][EDGE]; /* at the edge: decayed keys */
    float2 coef[GDN_CHUNK];    /* of open rows, for u and for out */
    double G[GDN_CHUNK];
};

struct two_sums {
    float k, q;
};

/* Adds n elements of a column with k and q. */
static __device__ __forceinline__ void add_dots(two_sums &sum, const float *column, int64_t stride,
                                                const float2 *kq, int n)
{
    int i = 0;
    for (; i + AHEAD <= n; i += AHEAD) {
        float x[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++, column += stride) x[j] = *column;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const float2 y = kq[i + j];
            sum.k = fmaf(x[j], y.x, sum.k);
            sum.q = fmaf(x[j], y.y, sum.q);
        }
    }
    for (; i < n; i++, column += stride) {
        const float x = *column;
        sum.k = fmaf(x, kq[i].x, sum.k);
        sum.q = fmaf(x, kq[i].y, sum.q);
    }
}

/* One head's columns first .. first + W - 1 through a segment. */
template <int W> struct stepper {
    enum { THREADS = W + GDN_CHUNK };
    const qrn_gdn_open_chunk_params &p;
    step_shared<W> &z;
    const gdn_segment &g;
    int h, kh, first;
    int column, row; /* of this thread; -1: it has the other */
    bool inside;     /* of d_v */

    __device__ stepper(const qrn_gdn_open_chunk_params &params, step_shared<W> &shared,
                       int64_t item)
        : p(params), z(shared), g(shared.segment)
    {
        h = (int)(item / p.n_slices);
        kh = (int)gdn_key_head(p.x.heads, h);
        first = (int)(item - h * p.n_slices) * W;
        column = (int)threadIdx.x < W ? (int)threadIdx.x : -1;
        row = (int)threadIdx.x < W ? -1 : (int)threadIdx.x - W;
        inside = column >= 0 && first + column < p.x.d_v;
    }

    __device__ float *u_rows() const { return g.u + (int64_t)h * GDN_CHUNK * p.x.d_v + first; }

    /* Begins to copy what open rows there are. */
    __device__ void begin()
    {
        const float *u = u_rows();
        for (int i = threadIdx.x; i < g.open * (W / 4); i += THREADS) {
            const int s = i / (W / 4), c = i % (W / 4) * 4;
            gdn_copy4(&z.u[s][c], u + s * p.x.d_v + c, p.x.d_v - first - c);
        }
        qrn_copies_commit();
        if (row >= 0 && row < g.open) z.G[row] = g.G[h * GDN_CHUNK + row];
    }

    /* G of all tokens of the segment; it is there after a __syncthreads. */
    __device__ void decays()
    {
        if (row != 0) return;
        double sum = g.open ? g.G[h * GDN_CHUNK + g.open - 1] : 0.0;
        for (int i = 0; i < g.n; i++) {
            sum += (double)*gdn_at(p.x.g, g.token + i, h);
            z.G[g.open + i] = sum;
        }
    }

    __device__ two_sums dots(int i) const
    {
        const float *k = gdn_at(p.x.k, g.token + i, kh), *q = gdn_at(p.x.q, g.token + i, kh);
        const float *at = nullptr; /* the column of memory that this thread walks */
        int64_t stride = 1;
        if (inside) {
            at = g.state + h * p.x.d_k * p.x.d_v + first + column;
            stride = p.x.d_v;
        } else if (row >= 0 && row < g.open) {
            at = g.k + kh * p.x.d_k * GDN_CHUNK + row;
            stride = GDN_CHUNK;
        } else if (row >= g.open && row <= g.open + i) {
            at = gdn_at(p.x.k, g.token + row - g.open, kh);
        }
        two_sums sum = {0.0f, 0.0f};
        for (int64_t panel = 0; panel < p.x.d_k; panel += PANEL) {
            const int n = p.x.d_k - panel < PANEL ? (int)(p.x.d_k - panel) : PANEL;
            __syncthreads();
            for (int e = threadIdx.x; e < n; e += THREADS)
                z.kq[e] = make_float2(k[panel + e], q[panel + e]);
            __syncthreads();
            if (at) add_dots(sum, at + panel * stride, stride, z.kq, n);
        }
        return sum;
    }

    __device__ void token(int i)
    {
        const int now = g.open + i;
        const two_sums sum = dots(i);
        if (row >= 0 && row <= now) {
            const float w = gdn_decay(z.G[now], z.G[row]);
            z.coef[row] = make_float2(-(w * sum.k), w * sum.q);
        }
        qrn_copies_wait<0>();
        __syncthreads();
        if (!inside) return;
        const float decay = qrn_exp((float)z.G[now]);
        float a = fmaf(-decay, sum.k, gdn_at(p.x.v, g.token + i, h)[first + column]),
              b = decay * sum.q;
#pragma unroll 4
        for (int s = 0; s < now; s++) {
            const float2 c = z.coef[s];
            const float u = z.u[s][column];
            a = fmaf(c.x, u, a);
            b = fmaf(c.y, u, b);
        }
        const float u = *gdn_at(p.x.beta, g.token + i, h) * a;
        z.u[now][column] = u;
        u_rows()[now * p.x.d_v + column] = u;
        p.x.out[(g.token + i) * p.x.out_token + h * p.x.out_head + first + column] =
            p.scale * fmaf(z.coef[now].y, u, b);
    }

    /* Element e, of row s of the chunk's keys. */
    __device__ float key(int s, int64_t e) const
    {
        return s < g.open ? g.k[(kh * p.x.d_k + e) * GDN_CHUNK + s]
                          : gdn_at(p.x.k, g.token + s - g.open, kh)[e];
    }

    /* The new state, EDGE rows at a time, of which a thread takes 8 by each reading of u. */
    __device__ void edge()
    {
        const double last = z.G[GDN_CHUNK - 1];
        const float decay = qrn_exp((float)last);
        const int64_t at = h * p.x.d_k * p.x.d_v + first + column;
        for (int64_t e0 = 0; e0 < p.x.d_k; e0 += EDGE) {
            __syncthreads();
            for (int i = threadIdx.x; i < GDN_CHUNK * EDGE; i += THREADS) {
                const int s = i % GDN_CHUNK, e = i / GDN_CHUNK;
                z.kd[s][e] = e0 + e < p.x.d_k ? gdn_decay(last, z.G[s]) * key(s, e0 + e) : 0.0f;
            }
            __syncthreads();
            for (int e = 0; inside && e < EDGE && e0 + e < p.x.d_k; e += 8) {
                const int n = p.x.d_k - e0 - e < 8 ? (int)(p.x.d_k - e0 - e) : 8;
                const float *from = g.state + at + (e0 + e) * p.x.d_v;
                float *to = g.next + at + (e0 + e) * p.x.d_v, x[8];
#pragma unroll
                for (int j = 0; j < 8; j++, from += p.x.d_v) x[j] = j < n ? decay * *from : 0.0f;
                for (int s = 0; s < GDN_CHUNK; s++) {
                    const float u = z.u[s][column];
#pragma unroll
                    for (int j = 0; j < 8; j++) x[j] = fmaf(z.kd[s][e + j], u, x[j]);
                }
#pragma unroll
                for (int j = 0; j < 8; j++, to += p.x.d_v)
                    if (j < n) *to = x[j];
            }
        }
    }

    __device__ void segment()
    {
        begin();
        decays();
        for (int i = 0; i < g.n; i++) token(i);
        __syncthreads();
        if (g.next) edge();
        __syncthreads();
    }

    /* Keys and G join the open rows, where this item is the one to do it. */
    __device__ void keep()
    {
        if (first) return;
        if (row >= 0 && row < g.n) g.G[h * GDN_CHUNK + g.open + row] = z.G[g.open + row];
        const bool first_of_key =
            p.x.heads.tiled ? h < p.x.heads.n_k : h % (p.x.heads.n_v / p.x.heads.n_k) == 0;
        if (!first_of_key) return;
        for (int i = 0; i < g.n; i++)
            for (int64_t e = threadIdx.x; e < p.x.d_k; e += THREADS)
                g.k[(kh * p.x.d_k + e) * GDN_CHUNK + g.open + i] =
                    gdn_at(p.x.k, g.token + i, kh)[e];
    }
};

/* Where keys and G are kept at once, blocks must not write what others still read: rows of the segment
 * itself nobody reads, but those of a second segment may lie in the same memory as those before the
 * first.  A sequence that comes to one is left to its first block, segment by segment. */
template <int W> static __device__ __forceinline__ void step(const qrn_gdn_open_chunk_params &p)
{
    __shared__ __align__(16) step_shared<W> z;
    const int64_t n_items = p.x.heads.n_v * p.n_slices, s = blockIdx.x / n_items,
                  mine = blockIdx.x - s * n_items;
    gdn_sequence q;
    q.find(p, s);
    if (q.unknown) {
        gdn_fill_nan(p, q, mine / p.n_slices, mine % p.n_slices * W, W);
        return;
    }
    const int n_segments = q.n_segments();
    const bool alone = p.keeps_later || n_segments <= 1;
    if (!alone && mine) return;
    for (int wave = 0; wave < n_segments; wave++) {
        __syncthreads();
        if (threadIdx.x == 0) z.segment.find(p, q, wave);
        __syncthreads();
        for (int64_t item = mine; item < (alone ? mine + 1 : n_items); item++) {
            stepper<W> x(p, z, item);
            x.segment();
            if (alone && !p.keeps_later) x.keep();
        }
        for (int64_t item = 0; !alone && item < n_items; item++) {
            stepper<W> x(p, z, item);
            x.decays();
            __syncthreads();
            x.keep();
            __syncthreads();
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_step_32, 96, 5, qrn_gdn_open_chunk_params)
{
    step<32>(p);
}

/* Blocks at once: with three, ptxas keeps registers of sm_100 in memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define WIDE_AT_ONCE 2
#else
#define WIDE_AT_ONCE 3
#endif

QRN_DEVICE_FUNCTION(qrn_gdn_open_step_128, 192, WIDE_AT_ONCE, qrn_gdn_open_chunk_params)
{
    step<128>(p);
}

/* A block has a key head of a sequence, whose last two chunks of the call stay; the older one first, as
 * both may be one memory. */
QRN_DEVICE_FUNCTION(qrn_gdn_open_keep, 256, 4, qrn_gdn_open_chunk_params)
{
    const int64_t s = blockIdx.x / p.x.heads.n_k, kh = blockIdx.x - s * p.x.heads.n_k;
    gdn_sequence q;
    q.find(p, s);
    const int n_segments = q.unknown ? 0 : q.n_segments();
    const int64_t ratio = p.x.heads.n_v / p.x.heads.n_k;
    for (int wave = n_segments > 2 ? n_segments - 2 : 0; wave < n_segments; wave++) {
        gdn_segment g;
        g.find(p, q, wave);
        for (int64_t r = threadIdx.x; r < ratio; r += blockDim.x) {
            const int64_t h = p.x.heads.tiled ? kh + r * p.x.heads.n_k : kh * ratio + r;
            double sum = g.open ? g.G[h * GDN_CHUNK + g.open - 1] : 0.0;
            for (int i = 0; i < g.n; i++)
                g.G[h * GDN_CHUNK + g.open + i] = sum += (double)*gdn_at(p.x.g, g.token + i, h);
        }
        const int64_t n = p.x.d_k * GDN_CHUNK;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int t = (int)(i % GDN_CHUNK) - g.open;
            if (t >= 0 && t < g.n) g.k[kh * n + i] = gdn_at(p.x.k, g.token + t, kh)[i / GDN_CHUNK];
        }
        __syncthreads();
    }
}
