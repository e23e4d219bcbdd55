/* SPDX-License-Identifier: MIT
 * What a block of gdn_open_exact has in shared memory, and its threads that go from state to state: S0 k and S0 q, u,
 * the new state. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_EXACT_WALKER_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_EXACT_WALKER_CUH

#include "backends/cuda/device/gdn_open_exact.cuh"

enum {
    W = QRN_GDN_TILE_COLUMNS,
    HALF = QRN_GDN_TILE_THREADS / 2 /* threads that walk, and those beside them */
};

struct tile_gates {
    double G[GDN_CHUNK];
    float decay[GDN_CHUNK], beta[GDN_CHUNK], to_edge[GDN_CHUNK]; /* exp(G_r), beta, exp(G_C - G_r) */
};

/* All of a block's.  Pieces of rows, but those of S and kq, are at their tile_place. */
struct tile_shared {
    float k[2][GDN_CHUNK * TILE_KEY]; /* of a chunk and the next one */
    float q[GDN_CHUNK * TILE_KEY];
    float kk[GDN_CHUNK * GDN_CHUNK], kq[GDN_CHUNK * GDN_CHUNK]; /* decayed, kk with the sign that it has for u */
    float S[TILE_KEY * W];
    float u[GDN_CHUNK * W]; /* S0 k until they are known */
    float b[GDN_CHUNK * W]; /* decayed S0 q */
    tile_gates gates[2];
    gdn_segment segment[2];
    gdn_sequence sequence;
};
static_assert(sizeof(tile_shared) <= QRN_GDN_EXACT_BYTES, "");

/* A head's columns first .. first + 31. */
struct tiler {
    const qrn_gdn_open_chunk_params &p;
    tile_shared &z;
    const qrn_gdn_products *products; /* of the key head's first chunk */
    int h, kh, first, d_k;

    __device__ tiler(const qrn_gdn_exact_params &params, tile_shared &shared, int64_t item) : p(params.c), z(shared)
    {
        h = (int)(item / p.n_slices);
        kh = (int)gdn_key_head(p.x.heads, h);
        first = (int)(item - h * p.n_slices) * W;
        d_k = (int)p.x.d_k;
        products = params.products + gdn_first_number(z.sequence) * p.x.heads.n_k + kh;
    }
};

/* The threads that walk, 0 .. 127. */
struct tile_walker : tiler {
    using tiler::tiler;
    int warp = qrn_warp(), lane = qrn_lane();
    float v[8][2]; /* of what solve has: values; of open rows u */

    __device__ void load_state(const float *state)
    {
        const float *from = state + h * p.x.d_k * p.x.d_v + first;
#pragma unroll 4
        for (int i = threadIdx.x; i < d_k * W; i += HALF)
            z.S[i] = first + i % W < p.x.d_v ? from[i / W * p.x.d_v + i % W] : 0.0f;
    }

    /* Of solve a thread has rows 8 after 8 and two columns of the warp's 8. */
    __device__ int octet() const { return lane / 4; }
    __device__ int column() const { return 8 * warp + 2 * (lane % 4); }
    __device__ float *at_u(int row) const
    {
        return z.u + row * W + tile_place(row, column() & ~3) + (column() & 2);
    }

    __device__ void load_values(const gdn_segment &g)
    {
        const int r8 = 8 * octet(), end = g.open + g.n, left = (int)p.x.d_v - first - column();
        const float *from = gdn_at(p.x.v, g.token + r8 - g.open, h) + first + column();
#pragma unroll
        for (int i = 0; i < 8; i++, from += p.x.v.token)
#pragma unroll
            for (int j = 0; j < 2; j++) v[i][j] = r8 + i >= g.open && r8 + i < end && j < left ? from[j] : 0.0f;
        if (r8 >= g.open) return;
        from = g.u + (h * GDN_CHUNK + r8) * p.x.d_v + first + column();
#pragma unroll
        for (int i = 0; i < 8; i++, from += p.x.d_v)
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (r8 + i < g.open && j < left) v[i][j] = from[j];
    }

    /* x[i][j] += n elements of row r8 + i, from e on, times those of column c4 + j. */
    __device__ void add_four(float (&x)[8][4], const float *rows, int r8, int c4, int e, int n) const
    {
        float s[4][4];
#pragma unroll
        for (int m = 0; m < 4; m++) tile_read4(s[m], z.S + (e + m) * W + c4);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float r[4];
            tile_read4(r, rows + (r8 + i) * TILE_KEY + tile_place(r8 + (i & 4), e));
#pragma unroll
            for (int m = 0; m < 4; m++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (m < n) x[i][j] = fmaf(s[m][j], r[m], x[i][j]);
        }
    }

    /* S0 k by two warps, S0 q by two. */
    __device__ void with_state(const float *k, const tile_gates &gates) const
    {
        const bool is_k = warp < 2;
        const int r8 = warp % 2 * 32 + lane / 8 * 8, c4 = lane % 8 * 4;
        const float *rows = is_k ? k : z.q;
        float x[8][4] = {};
#pragma unroll 4
        for (int e = 0; e + 4 <= d_k; e += 4) add_four(x, rows, r8, c4, e, 4);
        if (d_k % 4) add_four(x, rows, r8, c4, d_k & ~3, d_k % 4);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = r8 + i;
            if (!is_k)
#pragma unroll
                for (int j = 0; j < 4; j++) x[i][j] = gates.decay[row] * x[i][j];
            tile_write4((is_k ? z.u : z.b) + row * W + tile_place(row, c4), x[i]);
        }
    }

    /* Right-looking, in each warp for its columns alone: u of four rows, which lanes of their octet work out, go to all
     * lanes and are taken away from what these have.  What lanes have of rows before comes to nothing, so do rows
     * behind the end.  Each four products of a row come while those before are worked with. */
    __device__ void solve(const gdn_segment &g, const tile_gates &gates, bool stays) const
    {
        float a[8][2], beta[8], even[8][4], odd[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = 8 * octet() + i;
            const float2 x = *(const float2 *)at_u(row);
            beta[i] = gates.beta[row];
            a[i][0] = fmaf(-gates.decay[row], x.x, v[i][0]);
            a[i][1] = fmaf(-gates.decay[row], x.y, v[i][1]);
        }
        const int open = g.open, end = open + g.n;
        float *to = stays ? g.u + h * GDN_CHUNK * p.x.d_v + first + column() : nullptr;
        __syncwarp(); /* S0 k is read */
        read_products(even, 0);
        for (int s = 0; s < end; s += 8) {
            read_products(odd, s + 4);
            four_rows<0>(s, a, even, beta, open, end, to);
            read_products(even, (s + 8) % GDN_CHUNK);
            four_rows<4>(s + 4, a, odd, beta, open, end, to);
        }
    }

    __device__ void read_products(float (&c)[8][4], int s) const
    {
        const int r8 = 8 * octet();
#pragma unroll
        for (int i = 0; i < 8; i++) tile_read4(c[i], z.kk + (r8 + i) * GDN_CHUNK + tile_place(r8 + (i & 4), s));
    }

    /* Rows s .. s + 3, which are rows I .. of their octet; to: columns of u that stay, if they do. */
    template <int I>
    __device__ void four_rows(int s, float (&a)[8][2], const float (&c)[8][4], const float (&beta)[8], int open,
                              int end, float *to) const
    {
        float mine[4][2], u[4][2];
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float x = a[I + n][j];
#pragma unroll
                for (int m = 0; m < n; m++) x = fmaf(c[I + n][m], mine[m][j], x);
                mine[n][j] = s + n < open ? v[I + n][j] : beta[I + n] * x;
            }
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) u[n][j] = __shfl_sync(QRN_ALL_OF_WARP, mine[n][j], s / 8 * 4 + lane % 4);
        if (octet() == s / 8) store_u(s, mine, open, end, to);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) a[i][j] = fmaf(c[i][n], u[n][j], a[i][j]);
    }

    __device__ void store_u(int s, const float (&u)[4][2], int open, int end, float *to) const
    {
        float *shared = at_u(s);
#pragma unroll
        for (int n = 0; n < 4; n++) *(float2 *)(shared + n * W) = make_float2(u[n][0], u[n][1]);
        if (!to) return;
        const int left = (int)p.x.d_v - first - column();
        to += s * p.x.d_v;
#pragma unroll
        for (int n = 0; n < 4; n++, to += p.x.d_v)
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (s + n >= open && s + n < end && j < left) to[j] = u[n][j];
    }

    /* S = exp(G_C) S + sum over s of (exp(G_C - G_s) k_s) u_s; keys are decayed by now. */
    __device__ void edge(const float *k, const tile_gates &gates, float *next) const
    {
        const int e8 = threadIdx.x / 8 * 8, c4 = lane % 8 * 4;
        if (e8 >= d_k) return;
        const float last = gates.decay[GDN_CHUNK - 1];
        float x[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            tile_read4(x[i], z.S + (e8 + i) * W + c4);
#pragma unroll
            for (int j = 0; j < 4; j++) x[i][j] = last * x[i][j];
        }
#pragma unroll 4
        for (int s4 = 0; s4 < GDN_CHUNK; s4 += 4)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int s = s4 + n;
                float ks[2][4], us[4];
                tile_read4(ks[0], k + s * TILE_KEY + tile_place(s4, e8));
                tile_read4(ks[1], k + s * TILE_KEY + tile_place(s4, e8 + 4));
                tile_read4(us, z.u + s * W + tile_place(s4, c4));
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) x[i][j] = fmaf(ks[i / 4][i % 4], us[j], x[i][j]);
            }
        float *to = next ? next + (h * p.x.d_k + e8) * p.x.d_v + first : nullptr;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (e8 + i >= d_k) break;
            tile_write4(z.S + (e8 + i) * W + c4, x[i]);
            if (next) qrn_store4(to + i * p.x.d_v, c4, p.x.d_v - first, x[i]);
        }
    }
};

#endif
