/* SPDX-License-Identifier: MIT
 * gdn_open_chunk for many tokens, where gdn_open_exact_sm90a.cu does not run: bound by FMA in float32.  A
 * block walks the chunks of a sequence with 32 columns of a head's state, which stay in shared memory.  For a chunk's 64 rows at once: S0 k, S0 q,
 * k k and k q, each thread 48 sums; then rows in registers, a column a lane and 8 rows a warp, from
 * which the u of 8 rows after 8 are taken away as they become known (right-looking); then the new
 * state.  Each sum ascends as a step of one token has it, so the bits are the same.  Turned queries
 * give way to the products of keys: 97 KiB, two blocks a multiprocessor. */
#include "backends/cuda/device/gdn_open_chunk.cuh"

enum {
    W = QRN_GDN_TILE_COLUMNS,
    THREADS = QRN_GDN_TILE_THREADS,
    STRIDE = QRN_GDN_TILE_STRIDE,
    ROWS = 8 /* of a warp */
};

/* Rows of a chunk are its tokens 0 .. 63; those before the segment have u, the others are made. */
struct tiler {
    const qrn_gdn_open_chunk_params &p;
    int h, kh, first, d_k; /* first: column */
    float *k, *q;          /* [d_k][STRIDE], a column is a row of the chunk */
    float *kk, *kq;        /* [row][s], in place of q */
    float *S, *u;          /* [d_k][W], [64][W] */
    double *G;
    float *decay, *beta, *to_edge; /* exp(G_r), beta, exp(G_C - G_r) */

    __device__ tiler(const qrn_gdn_open_chunk_params &params, float *shared, int64_t item)
        : p(params)
    {
        h = (int)(item / p.n_slices);
        kh = (int)gdn_key_head(p.x.heads, h);
        first = (int)(item - h * p.n_slices) * W;
        d_k = (int)p.x.d_k;
        G = (double *)shared;
        decay = shared + 2 * GDN_CHUNK;
        beta = decay + GDN_CHUNK;
        to_edge = beta + GDN_CHUNK;
        u = to_edge + GDN_CHUNK;
        S = u + GDN_CHUNK * W;
        k = S + d_k * W;
        q = k + d_k * STRIDE;
        kk = q;
        kq = q + GDN_CHUNK * GDN_CHUNK;
    }

    __device__ void load_state(const float *state)
    {
        const float *from = state + h * p.x.d_k * p.x.d_v + first;
#pragma unroll 4
        for (int i = threadIdx.x; i < d_k * W; i += THREADS)
            S[i] = first + i % W < p.x.d_v ? from[i / W * p.x.d_v + i % W] : 0.0f;
    }

    __device__ void store_state(float *state) const
    {
        float *to = state + h * p.x.d_k * p.x.d_v + first;
#pragma unroll 4
        for (int i = threadIdx.x; i < d_k * W; i += THREADS)
            if (first + i % W < p.x.d_v) to[i / W * p.x.d_v + i % W] = S[i];
    }

    /* Keys and queries turned, u of open rows, gates; what there is none of is 0. */
    __device__ void load_rows(const gdn_segment &g)
    {
        const float *open = g.k + (int64_t)kh * GDN_CHUNK * d_k;
#pragma unroll 2
        for (int r = qrn_warp(); r < GDN_CHUNK; r += THREADS / 32) {
            const bool there = r < g.open + g.n, is_open = r < g.open;
            const float *from_k = is_open ? open + r * d_k : gdn_at(p.x.k, g.token + r - g.open, kh),
                        *from_q = gdn_at(p.x.q, g.token + r - g.open, kh);
#pragma unroll 4
            for (int e = qrn_lane(); e < d_k; e += 32) {
                k[e * STRIDE + r] = there ? from_k[e] : 0.0f;
                q[e * STRIDE + r] = there && !is_open ? from_q[e] : 0.0f;
            }
        }
        const float *rows = g.u + (int64_t)h * GDN_CHUNK * p.x.d_v + first;
#pragma unroll 4
        for (int i = threadIdx.x; i < GDN_CHUNK * W; i += THREADS) {
            const int r = i / W, j = i % W;
            u[i] = r < g.open && first + j < p.x.d_v ? rows[r * p.x.d_v + j] : 0.0f;
        }
        if (threadIdx.x == 0) sum_gates(g);
        __syncthreads();
        const int r = threadIdx.x;
        if (r < GDN_CHUNK) {
            const bool there = r < g.open + g.n;
            decay[r] = there ? qrn_exp((float)G[r]) : 0.0f;
            beta[r] = there && r >= g.open ? *gdn_at(p.x.beta, g.token + r - g.open, h) : 0.0f;
            to_edge[r] = g.next ? gdn_decay(G[GDN_CHUNK - 1], G[r]) : 0.0f;
        }
    }

    __device__ void sum_gates(const gdn_segment &g)
    {
        double sum = 0.0;
        for (int r = 0; r < g.open; r++) G[r] = sum = g.G[h * GDN_CHUNK + r];
        for (int i = 0; i < g.n; i++) G[g.open + i] = sum += (double)*gdn_at(p.x.g, g.token + i, h);
        for (int r = g.open + g.n; r < GDN_CHUNK; r++) G[r] = sum;
    }

    /* S0 k and S0 q of all rows, products of keys; half of the threads have those with k, half with q.
     * Leaves the former in a and b, row 8 * warp + i, column lane; the latter decayed in kk and kq. */
    __device__ void products(const gdn_segment &g, float (&a)[ROWS], float (&b)[ROWS])
    {
        const int half = threadIdx.x / (THREADS / 2), n = threadIdx.x % (THREADS / 2);
        const int r4 = n / 8 * 4, c4 = n % 8 * 4;   /* of S0 k: 4 rows, 4 columns */
        const int r8 = n / 16 * 8, s4 = n % 16 * 4; /* of k k: 8 rows, 4 open rows */
        const float *mine = half ? q : k;
        float x[4][4], y[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) y[i][j] = x[i % 4][j] = 0.0f;
#pragma unroll 1
        for (int e = 0; e < d_k; e++) {
            const float4 r = *(const float4 *)(mine + e * STRIDE + r4);
            const float4 c = *(const float4 *)(S + e * W + c4);
            const float rs[4] = {r.x, r.y, r.z, r.w}, cs[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) x[i][j] = fmaf(cs[j], rs[i], x[i][j]);
        }
#pragma unroll 1
        for (int e = 0; e < d_k; e++) {
            const float4 t0 = *(const float4 *)(mine + e * STRIDE + r8);
            const float4 t1 = *(const float4 *)(mine + e * STRIDE + r8 + 4);
            const float4 s = *(const float4 *)(k + e * STRIDE + s4);
            const float ts[8] = {t0.x, t0.y, t0.z, t0.w, t1.x, t1.y, t1.z, t1.w};
            const float ss[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) y[i][j] = fmaf(ss[j], ts[i], y[i][j]);
        }
        __syncthreads(); /* queries are done with */
        float *sums = q; /* [2][64][W] for a moment */
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(float4 *)(sums + (half * GDN_CHUNK + r4 + i) * W + c4) =
                make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int row = qrn_warp() * ROWS + i;
            a[i] = sums[row * W + qrn_lane()];
            b[i] = sums[(GDN_CHUNK + row) * W + qrn_lane()];
        }
        __syncthreads();
        float *to = half ? kq : kk;
#pragma unroll
        for (int i = 0; i < 8; i++)
            *(float4 *)(to + (r8 + i) * GDN_CHUNK + s4) =
                make_float4(y[i][0], y[i][1], y[i][2], y[i][3]);
        __syncthreads();
        decay_products(g);
        __syncthreads();
    }

    /* By exp(G_row - G_s), those for u with their sign; rows that have u need none. */
    __device__ void decay_products(const gdn_segment &g)
    {
        for (int i = g.open * GDN_CHUNK + threadIdx.x; i < GDN_CHUNK * GDN_CHUNK; i += THREADS) {
            const int row = i / GDN_CHUNK, s = i % GDN_CHUNK;
            if (s > row) continue;
            const float w = gdn_decay(G[row], G[s]);
            kk[i] = -(w * kk[i]);
            kq[i] = w * kq[i];
        }
    }

    /* u and out, rows 8 after 8. */
    __device__ void solve(const gdn_segment &g, float (&a)[ROWS], float (&b)[ROWS])
    {
        const int warp = qrn_warp(), lane = qrn_lane(), end = g.open + g.n;
        const bool inside = first + lane < p.x.d_v;
        const float *v = gdn_at(p.x.v, g.token + warp * ROWS - g.open, h) + first + lane;
#pragma unroll
        for (int i = 0; i < ROWS; i++, v += p.x.v.token) {
            const int row = warp * ROWS + i;
            const bool made = inside && row >= g.open && row < end;
            a[i] = fmaf(-decay[row], a[i], made ? *v : 0.0f);
            b[i] = decay[row] * b[i];
        }
        for (int done = 0; done * ROWS < end; done++) {
            if (warp == done) own_rows(g, a, b, inside);
            __syncthreads();
            if (warp > done) others(done * ROWS, a, b);
        }
    }

    __device__ void own_rows(const gdn_segment &g, float (&a)[ROWS], float (&b)[ROWS], bool inside)
    {
        const int first_row = qrn_warp() * ROWS, lane = qrn_lane();
        float *to_u = g.u + ((int64_t)h * GDN_CHUNK + first_row) * p.x.d_v + first + lane;
        float *out = p.x.out + (g.token + first_row - g.open) * p.x.out_token + h * p.x.out_head +
                     first + lane;
#pragma unroll
        for (int i = 0; i < ROWS; i++, to_u += p.x.d_v, out += p.x.out_token) {
            const int row = first_row + i;
            float x = u[row * W + lane];
            if (row >= g.open) {
                x = beta[row] * a[i];
                u[row * W + lane] = x;
                if (inside && row < g.open + g.n) {
                    *to_u = x;
                    *out = p.scale * fmaf(kq[row * GDN_CHUNK + row], x, b[i]);
                }
            }
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                if (j <= i) continue;
                a[j] = fmaf(kk[(first_row + j) * GDN_CHUNK + row], x, a[j]);
                b[j] = fmaf(kq[(first_row + j) * GDN_CHUNK + row], x, b[j]);
            }
        }
    }

    /* Takes rows s0 .. s0 + 7 away from this warp's. */
    __device__ void others(int s0, float (&a)[ROWS], float (&b)[ROWS])
    {
        const int first_row = qrn_warp() * ROWS, lane = qrn_lane();
#pragma unroll 1
        for (int s = 0; s < ROWS; s += 4) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = u[(s0 + s + i) * W + lane];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int at = (first_row + i) * GDN_CHUNK + s0 + s;
                const float4 c = *(const float4 *)(kk + at), d = *(const float4 *)(kq + at);
                a[i] = fmaf(c.x, x[0], a[i]);
                a[i] = fmaf(c.y, x[1], a[i]);
                a[i] = fmaf(c.z, x[2], a[i]);
                a[i] = fmaf(c.w, x[3], a[i]);
                b[i] = fmaf(d.x, x[0], b[i]);
                b[i] = fmaf(d.y, x[1], b[i]);
                b[i] = fmaf(d.z, x[2], b[i]);
                b[i] = fmaf(d.w, x[3], b[i]);
            }
        }
    }

    /* S = exp(G_C) S + sum over s of (exp(G_C - G_s) k_s) u_s: keys are decayed in their place. */
    __device__ void edge()
    {
        const int c4 = threadIdx.x % 8 * 4, e0 = threadIdx.x / 8;
        for (int i = threadIdx.x; i < d_k * GDN_CHUNK; i += THREADS) {
            const int e = i / GDN_CHUNK, s = i % GDN_CHUNK;
            k[e * STRIDE + s] = to_edge[s] * k[e * STRIDE + s];
        }
        __syncthreads();
        const float last = decay[GDN_CHUNK - 1];
        float x[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[i][j] = e0 + 32 * i < d_k ? last * S[(e0 + 32 * i) * W + c4 + j] : 0.0f;
#pragma unroll 1
        for (int s = 0; s < GDN_CHUNK; s += 4) {
            float us[4][4];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float4 v = *(const float4 *)(u + (s + n) * W + c4);
                us[n][0] = v.x, us[n][1] = v.y, us[n][2] = v.z, us[n][3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (e0 + 32 * i >= d_k) continue;
                const float4 v = *(const float4 *)(k + (e0 + 32 * i) * STRIDE + s);
                const float ks[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int j = 0; j < 4; j++) x[i][j] = fmaf(ks[n], us[n][j], x[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (e0 + 32 * i < d_k)
                *(float4 *)(S + (e0 + 32 * i) * W + c4) =
                    make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
        __syncthreads();
    }
};

QRN_DEVICE_FUNCTION(qrn_gdn_open_tile, 256, 2, qrn_gdn_open_chunk_params)
{
    QRN_DYNAMIC_SHARED(float, shared);
    __shared__ gdn_sequence sequence;
    __shared__ gdn_segment g;
    const int64_t n_items = p.x.heads.n_v * p.n_slices, s = blockIdx.x / n_items;
    tiler x(p, shared, blockIdx.x - s * n_items);
    if (threadIdx.x == 0) sequence.find(p, s);
    __syncthreads();
    if (sequence.unknown) {
        gdn_fill_nan(p, sequence, x.h, x.first, W);
        return;
    }
    const int n_segments = sequence.n_segments();
    for (int wave = 0; wave < n_segments; wave++) {
        float a[ROWS], b[ROWS];
        __syncthreads(); /* the last segment is done with */
        if (threadIdx.x == 0) g.find(p, sequence, wave);
        __syncthreads();
        if (wave == 0) x.load_state(g.state);
        x.load_rows(g);
        __syncthreads();
        x.products(g, a, b);
        x.solve(g, a, b);
        __syncthreads();
        if (!g.next) return;
        x.edge();                                          /* all threads meet in it */
        if (wave >= n_segments - 2) x.store_state(g.next); /* older ones are written over */
    }
}
