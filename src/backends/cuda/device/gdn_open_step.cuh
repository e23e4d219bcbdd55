/* SPDX-License-Identifier: MIT
 * gdn_open_chunk for few tokens, any sizes: a block has a slice of a head's columns.  Its first threads
 * have a column each, 64 more an open row each: all do the same, a dot of a column or row of memory
 * with k and with q, while the slice of u comes to shared memory.  Then a column's thread adds the open
 * rows.  Sums ascend, in one thread, whatever the slices are. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_STEP_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_STEP_CUH

#include "backends/cuda/device/gdn_open_chunk.cuh"

enum {
    PANEL = QRN_GDN_STEP_PANEL,
    AHEAD = 32, /* loads of a thread on their way at a time */
    EDGE = 32,
    MODEL_D = 128 /* d_k for which one token's loads are all on their way at once */
};

template <int W> struct step_shared {
    enum { KEYS = W == 32 ? (int)MODEL_D : (int)EDGE }; /* only_token has whole keys */
    gdn_segment segment;
    __align__(16) float u[GDN_CHUNK][W];
    float2 kq[PANEL];       /* of the token: k, q */
    __align__(16) float keys[GDN_CHUNK][KEYS]; /* of only_token, turned by gdn_turned; at the edge decayed */
    float2 coef[GDN_CHUNK]; /* of open rows, for u and for out */
    double G[GDN_CHUNK];
};

struct two_sums {
    float k, q;
};

/* Where floats 4 c .. of row r are: what eight neighbouring rows have at c is in eight places of 16 bytes, so that
 * a warp whose lanes have a row each meets no bank twice. */
static __device__ __forceinline__ int gdn_turned(int r, int c)
{
    return 4 * (c ^ (r & 7));
}

/* Adds n elements of a column or row with k and q. */
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

/* One head's columns first .. first + W - 1 through a segment, by THREADS threads: W + 64 or more, of which those from W
 * on have rows, or W = 64, which have both. */
template <int W, int THREADS> struct stepper {
    const qrn_gdn_open_chunk_params &p;
    step_shared<W> &z;
    const gdn_segment &g;
    int h, kh, first;
    int column, row; /* of this thread; below 0: none; rows from 64 on have nothing */
    bool inside;     /* of d_v */

    __device__ stepper(const qrn_gdn_open_chunk_params &params, step_shared<W> &shared,
                       int64_t item)
        : p(params), z(shared), g(shared.segment)
    {
        h = (int)(item / p.n_slices);
        kh = (int)gdn_key_head(p.x.heads, h);
        first = (int)(item - h * p.n_slices) * W;
        column = (int)threadIdx.x < W ? (int)threadIdx.x : -1;
        row = (int)threadIdx.x - (THREADS > W ? W : 0);
        inside = column >= 0 && first + column < p.x.d_v;
    }

    __device__ float *k_rows() const { return g.k + kh * GDN_CHUNK * p.x.d_k; }
    __device__ float *u_rows() const { return g.u + (int64_t)h * GDN_CHUNK * p.x.d_v + first; }

    /* Begins to copy what rows of u there are. */
    __device__ void begin()
    {
        const float *u = u_rows();
        for (int i = threadIdx.x; i < g.open * (W / 4); i += THREADS) {
            const int s = i / (W / 4), c = i % (W / 4) * 4;
            gdn_copy4(&z.u[s][c], u + s * p.x.d_v + c, p.x.d_v - first - c);
        }
        qrn_copies_commit();
    }

    /* G of the open rows and of all tokens of the segment; it is there after a __syncthreads. */
    __device__ void decays()
    {
        if (row >= 0 && row < g.open) z.G[row] = g.G[h * GDN_CHUNK + row];
        if (row != 0) return;
        double sum = g.open ? g.G[h * GDN_CHUNK + g.open - 1] : 0.0;
        for (int i = 0; i < g.n; i++) {
            sum += (double)*gdn_at(p.x.g, g.token + i, h);
            z.G[g.open + i] = sum;
        }
    }

    /* The row of memory that this thread walks for token i of the segment; NULL: it has none. */
    __device__ const float *walked_row(int i) const
    {
        if (row >= 0 && row < g.open) return k_rows() + row * p.x.d_k;
        if (row >= g.open && row <= g.open + i) return gdn_at(p.x.k, g.token + row - g.open, kh);
        return nullptr;
    }
    /* The column, of a thread that has one inside. */
    __device__ const float *walked_column() const
    {
        return g.state + h * p.x.d_k * p.x.d_v + first + column;
    }

    /* Elements first_e .. of the token's k and q come to z.kq. */
    __device__ void load_kq(int i, int64_t first_e, int n)
    {
        const float *k = gdn_at(p.x.k, g.token + i, kh) + first_e,
                    *q = gdn_at(p.x.q, g.token + i, kh) + first_e;
        for (int e = threadIdx.x; e < n; e += THREADS) z.kq[e] = make_float2(k[e], q[e]);
    }

    /* Products of this thread's column and row with token i's k and q. */
    struct sums {
        two_sums of_column, of_row;
    };
    __device__ sums dots(int i)
    {
        const float *at_row = walked_row(i), *at_column = walked_column();
        sums sum = {};
        for (int64_t panel = 0; panel < p.x.d_k; panel += PANEL) {
            const int n = p.x.d_k - panel < PANEL ? (int)(p.x.d_k - panel) : PANEL;
            __syncthreads();
            load_kq(i, panel, n);
            __syncthreads();
            if (inside) add_dots(sum.of_column, at_column + panel * p.x.d_v, p.x.d_v, z.kq, n);
            if (at_row) add_dots(sum.of_row, at_row + panel, 1, z.kq, n);
        }
        return sum;
    }

    /* From products to u and out; G is that of the token, G_row that of this thread's row. */
    __device__ void finish(int i, const sums &sum, double G, double G_row, float v, float beta)
    {
        const int now = g.open + i;
        if (row >= 0 && row <= now) {
            const float w = gdn_decay(G, G_row);
            z.coef[row] = make_float2(-(w * sum.of_row.k), w * sum.of_row.q);
        }
        qrn_copies_wait<0>();
        __syncthreads();
        if (!inside) return;
        const float decay = qrn_exp((float)G);
        float a = fmaf(-decay, sum.of_column.k, v), b = decay * sum.of_column.q;
#pragma unroll 4
        for (int s = 0; s < now; s++) {
            const float2 c = z.coef[s];
            const float u = z.u[s][column];
            a = fmaf(c.x, u, a);
            b = fmaf(c.y, u, b);
        }
        const float u = beta * a;
        z.u[now][column] = u;
        u_rows()[now * p.x.d_v + column] = u;
        p.x.out[(g.token + i) * p.x.out_token + h * p.x.out_head + first + column] =
            p.scale * fmaf(z.coef[now].y, u, b);
    }

    __device__ float value(int i) const
    {
        return inside ? gdn_at(p.x.v, g.token + i, h)[first + column] : 0.0f;
    }

    __device__ void token(int i)
    {
        const sums sum = dots(i);
        const int now = g.open + i;
        finish(i, sum, z.G[now], z.G[row >= 0 && row < GDN_CHUNK ? row : now], value(i),
               *gdn_at(p.x.beta, g.token + i, h));
    }

    /* Begins to copy the open keys, a row a warp. */
    __device__ void begin_keys()
    {
        const float *k = k_rows() + 4 * qrn_lane();
        for (int s = qrn_warp(); s < g.open; s += THREADS / 32)
            gdn_copy4(&z.keys[s][gdn_turned(s, qrn_lane())], k + s * MODEL_D, 4);
    }

    /* This thread's row of the keys that are there; the token's own row is its key. */
    __device__ two_sums row_dots() const
    {
        two_sums sum = {0.0f, 0.0f};
#pragma unroll 4
        for (int c = 0; c < MODEL_D / 4; c++) {
            const float2 *y = z.kq + 4 * c;
            float4 x = make_float4(y[0].x, y[1].x, y[2].x, y[3].x);
            if (row < g.open) x = *(const float4 *)&z.keys[row][gdn_turned(row, c)];
            const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum.k = fmaf(xs[j], y[j].x, sum.k);
                sum.q = fmaf(xs[j], y[j].y, sum.q);
            }
        }
        return sum;
    }

    /* A segment of one token and d_k 128: all that it reads is on its way before anything is waited
     * for. */
    __device__ void only_token()
    {
        float x[MODEL_D];
        if (inside) {
            const float *at = walked_column();
#pragma unroll
            for (int e = 0; e < MODEL_D; e++) x[e] = at[e * p.x.d_v];
        }
        const double last = g.open ? g.G[h * GDN_CHUNK + g.open - 1] : 0.0;
        const double open_G = row >= 0 && row < g.open ? g.G[h * GDN_CHUNK + row] : 0.0;
        const float gate = *gdn_at(p.x.g, g.token, h), beta = *gdn_at(p.x.beta, g.token, h),
                    v = value(0);
        begin_keys();
        begin();
        load_kq(0, 0, MODEL_D);
        const double G = last + (double)gate, G_row = row < g.open ? open_G : G;
        if (row >= 0 && row <= g.open) z.G[row] = G_row;
        qrn_copies_wait<0>();
        __syncthreads();
        sums sum = {};
        if (row >= 0 && row <= g.open) sum.of_row = row_dots();
        if (inside) {
#pragma unroll
            for (int e = 0; e < MODEL_D; e++) {
                const float2 y = z.kq[e];
                sum.of_column.k = fmaf(x[e], y.x, sum.of_column.k);
                sum.of_column.q = fmaf(x[e], y.y, sum.of_column.q);
            }
        }
        finish(0, sum, G, G_row, v, beta);
    }

    /* Asks for what it will read of S0 and the open rows; of keys this slice's share, those of heads
     * that have the same left to the first. */
    __device__ void ask() const
    {
        const float *S = g.state + h * p.x.d_k * p.x.d_v + first, *u = u_rows(), *k = k_rows();
        const int d_k = (int)p.x.d_k, n_slices = (int)p.n_slices;
        for (int e = threadIdx.x; e < d_k; e += THREADS)
            for (int j = 0; j < W; j += 32) qrn_prefetch(S + e * p.x.d_v + j);
        const int n = is_first_of_key() ? g.open * d_k : 0;
        for (int i = 32 * (threadIdx.x * n_slices + first / W); i < n; i += 32 * THREADS * n_slices)
            qrn_prefetch(k + i);
        for (int s = threadIdx.x; s < g.open; s += THREADS)
            for (int j = 0; j < W; j += 32) qrn_prefetch(u + s * p.x.d_v + j);
        if (row >= 0 && row < g.open && row % 16 == 0) qrn_prefetch(g.G + h * GDN_CHUNK + row);
    }

    /* Element e, of row s of the chunk's keys. */
    __device__ float key(int s, int64_t e) const
    {
        return s < g.open ? k_rows()[s * p.x.d_k + e]
                          : gdn_at(p.x.k, g.token + s - g.open, kh)[e];
    }

    /* The new state, EDGE rows at a time, of which a thread takes 8 by each reading of u; threads
     * that have no column otherwise help. */
    __device__ void edge()
    {
        const double last = z.G[GDN_CHUNK - 1];
        const float decay = qrn_exp((float)last);
        const int c = (int)threadIdx.x % W, part = (int)threadIdx.x / W, n_parts = THREADS / W;
        const bool works = part < n_parts && first + c < p.x.d_v;
        const int64_t at = h * p.x.d_k * p.x.d_v + first + c;
        for (int64_t e0 = 0; e0 < p.x.d_k; e0 += EDGE) {
            __syncthreads();
            for (int i = threadIdx.x; i < GDN_CHUNK * EDGE; i += THREADS) {
                const int s = i / EDGE, e = i % EDGE;
                z.keys[s][e] = e0 + e < p.x.d_k ? gdn_decay(last, z.G[s]) * key(s, e0 + e) : 0.0f;
            }
            __syncthreads();
            for (int e = 8 * part; works && e < EDGE && e0 + e < p.x.d_k; e += 8 * n_parts) {
                const int n = p.x.d_k - e0 - e < 8 ? (int)(p.x.d_k - e0 - e) : 8;
                const float *from = g.state + at + (e0 + e) * p.x.d_v;
                float *to = g.next + at + (e0 + e) * p.x.d_v, x[8];
#pragma unroll
                for (int j = 0; j < 8; j++, from += p.x.d_v) x[j] = j < n ? decay * *from : 0.0f;
                for (int s = 0; s < GDN_CHUNK; s++) {
                    const float u = z.u[s][c];
#pragma unroll
                    for (int j = 0; j < 8; j++) x[j] = fmaf(z.keys[s][e + j], u, x[j]);
                }
#pragma unroll
                for (int j = 0; j < 8; j++, to += p.x.d_v)
                    if (j < n) *to = x[j];
            }
        }
    }

    __device__ bool is_first_of_key() const
    {
        return p.x.heads.tiled ? h < p.x.heads.n_k : h % (p.x.heads.n_v / p.x.heads.n_k) == 0;
    }

    __device__ void segment()
    {
        if (W == 32 && g.n == 1 && p.x.d_k == MODEL_D) { /* wider slices have fewer registers */
            only_token();
        } else {
            begin();
            decays();
            for (int i = 0; i < g.n; i++) token(i);
        }
        __syncthreads();
        if (g.next) edge();
        __syncthreads();
    }

    /* Keys and G join the open rows, where this item is the one to do it. */
    __device__ void keep()
    {
        if (first) return;
        if (row >= 0 && row < g.n) g.G[h * GDN_CHUNK + g.open + row] = z.G[g.open + row];
        if (!is_first_of_key()) return;
        for (int i = 0; i < g.n; i++)
            for (int64_t e = threadIdx.x; e < p.x.d_k; e += THREADS)
                k_rows()[(g.open + i) * p.x.d_k + e] = gdn_at(p.x.k, g.token + i, kh)[e];
    }
};

/* Where keys and G are kept at once, blocks must not write what others still read: rows of the segment
 * itself nobody reads, but those of a second segment may lie in the same memory as those before the
 * first.  A sequence that comes to one is left to its first block, segment by segment. */
template <int W, int THREADS> struct step_block {
    const qrn_gdn_open_chunk_params &p;
    step_shared<W> &z;
    gdn_sequence q;
    int64_t mine; /* this block's item of the sequence: a slice of a head's columns */
    int n_segments;

    /* Looks at the tables; the first segment is known to all after a __syncthreads. */
    __device__ step_block(const qrn_gdn_open_chunk_params &params, step_shared<W> &shared,
                          int64_t block)
        : p(params), z(shared)
    {
        const int64_t n_items = p.x.heads.n_v * p.n_slices, s = block / n_items;
        mine = block - s * n_items;
        q.find(p, s);
        n_segments = q.unknown ? 0 : q.n_segments();
        if (threadIdx.x == 0 && n_segments) z.segment.find(p, q, 0);
    }

    __device__ void work()
    {
        const int64_t n_items = p.x.heads.n_v * p.n_slices;
        if (q.unknown) gdn_fill_nan(p, q, mine / p.n_slices, mine % p.n_slices * W, W);
        const bool alone = p.keeps_later || n_segments <= 1;
        if (!alone && mine) return;
        for (int wave = 0; wave < n_segments; wave++) {
            __syncthreads();
            if (threadIdx.x == 0 && wave) z.segment.find(p, q, wave);
            __syncthreads();
            for (int64_t item = mine; item < (alone ? mine + 1 : n_items); item++) {
                stepper<W, THREADS> x(p, z, item);
                x.segment();
                if (alone && !p.keeps_later) x.keep();
            }
            for (int64_t item = 0; !alone && item < n_items; item++) {
                stepper<W, THREADS> x(p, z, item);
                x.decays();
                __syncthreads();
                x.keep();
                __syncthreads();
            }
        }
    }
};

#endif
