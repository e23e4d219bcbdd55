/* SPDX-License-Identifier: MIT
 * gdn_open_chunk for many tokens on Hopper: bound by FMA in float32.  A block walks the chunks of a sequence with 32
 * columns of a head's state, which stay in shared memory; a multiprocessor has one block.  Four warps go from state to state, in
 * three parts between which all threads meet: S0 k and S0 q of 64 rows; u; the new state.  Four more have the rest
 * beside them: decays of the products of keys that qrn_gdn_open_products made, and of keys; out; what is copied of the
 * next chunk.
 *
 * Clocks of a chunk that a scheduler needs for two warps' instructions: 6400, of which 4096 are FMA of S0 k and S0 q;
 * 3000, where 16 fours of rows of u wait for each other; 4000, of which 2048 are FMA of the new state and 576 of out.
 * Of each 32 FMA with the state 12 floats come from shared memory.
 *
 * Each sum ascends as a step of one token has it, so the bits are the same. */
#include "backends/cuda/device/gdn_open_exact_walker.cuh"

enum { N_PIECES = 17 * GDN_CHUNK / 2 /* of four products, of a chunk's rows up to the diagonal */ };

/* As tile_place, where lanes have pairs of rows. */
static __device__ __forceinline__ int place_in_kq(int row, int s)
{
    return s ^ 4 * (row >> 1 & 7);
}

/* The threads beside them, 128 .. 255. */
struct tile_helper : tiler {
    using tiler::tiler;
    int thread = threadIdx.x - HALF, warp = qrn_warp() - HALF / 32, lane = qrn_lane();
    float gate[2], beta[2];

    __device__ void begin_rows(const gdn_segment &g, int wave)
    {
        tile_load(z.k[wave & 1], z.q, p, g, kh, warp, HALF / 32);
        qrn_copies_commit();
    }

    /* f(row, s) for the pieces s .. s + 3 of this thread; rows r and 63 - r have 17 together. */
    template <class F> __device__ void each_piece(const gdn_segment &g, const F &f) const
    {
        for (int i = thread; i < N_PIECES; i += HALF) {
            const int r = i / 17, at = i % 17, n = r / 4 + 1, row = at < n ? r : GDN_CHUNK - 1 - r;
            if (row >= g.open && row < g.open + g.n) f(row, 4 * (at < n ? at : at - n));
        }
    }

    /* Products times exp(G_row - G_s), those for u with their sign; what is behind the diagonal is not used. */
    __device__ void decay_products(const gdn_segment &g, const double *G, int wave) const
    {
        const qrn_gdn_products *from = products + wave * p.x.heads.n_k;
        each_piece(g, [&](int row, int s) {
            qrn_copy16_async(z.kk + row * GDN_CHUNK + tile_place(row, s), &from->kk[row][s], 16);
            qrn_copy16_async(z.kq + row * GDN_CHUNK + place_in_kq(row, s), &from->kq[row][s], 16);
        });
        qrn_copies_commit();
        qrn_copies_wait<0>();
        each_piece(g, [&](int row, int s) {
            float *kk = z.kk + row * GDN_CHUNK + tile_place(row, s),
                  *kq = z.kq + row * GDN_CHUNK + place_in_kq(row, s), x[4], y[4];
            tile_read4(x, kk);
            tile_read4(y, kq);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float w = gdn_decay(G[row], G[s + j]);
                x[j] = -(w * x[j]);
                y[j] = w * y[j];
            }
            tile_write4(kk, x);
            tile_write4(kq, y);
        });
    }

    __device__ void decay_keys(float *k, const tile_gates &gates) const
    {
        if (lane >= tile_pieces(d_k)) return;
#pragma unroll 4
        for (int r = warp; r < GDN_CHUNK; r += HALF / 32) {
            float *at = k + r * TILE_KEY + tile_place(r, 4 * lane), x[4];
            tile_read4(x, at);
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = gates.to_edge[r] * x[j];
            tile_write4(at, x);
        }
    }

    /* A warp has an octet of rows and the one as far from the end, whose sums have 72 u, whichever warp it is; a thread
     * has two rows and four columns. */
    __device__ void out(const gdn_segment &g) const
    {
        const int c4 = lane % 8 * 4;
#pragma unroll 1
        for (int octet = warp, part = 0; part < 2; part++, octet = GDN_CHUNK / 8 - 1 - warp) {
            const int r2 = 8 * octet + lane / 8 * 2;
            float x[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) tile_read4(x[i], z.b + (r2 + i) * W + tile_place(r2, c4));
#pragma unroll 2
            for (int s4 = 0; s4 + 4 <= r2; s4 += 4) add_four<false>(x, r2, c4, s4);
            add_four<true>(x, r2, c4, r2 & ~3);
            float *to = p.x.out + (g.token + r2 - g.open) * p.x.out_token + h * p.x.out_head + first;
#pragma unroll
            for (int i = 0; i < 2; i++, to += p.x.out_token) {
#pragma unroll
                for (int j = 0; j < 4; j++) x[i][j] = p.scale * x[i][j];
                if (r2 + i >= g.open && r2 + i < g.open + g.n) qrn_store4(to, c4, p.x.d_v - first, x[i]);
            }
        }
    }

    /* Four u; at the diagonal those up to the row. */
    template <bool diagonal> __device__ void add_four(float (&x)[2][4], int r2, int c4, int s4) const
    {
        float u[4][4];
#pragma unroll
        for (int n = 0; n < 4; n++) tile_read4(u[n], z.u + (s4 + n) * W + tile_place(s4, c4));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float c[4];
            tile_read4(c, z.kq + (r2 + i) * GDN_CHUNK + place_in_kq(r2, s4));
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (!diagonal || s4 + n <= r2 + i) x[i][j] = fmaf(c[n], u[n][j], x[i][j]);
        }
    }

    /* Loads of gates, one warp, rows lane and lane + 32. */
    __device__ void ask_for_gates(const gdn_segment &g)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = lane + 32 * i;
            const int64_t token = g.token + row - g.open;
            const bool mine = row >= g.open && row < g.open + g.n;
            beta[i] = mine ? *gdn_at(p.x.beta, token, h) : 0.0f;
            gate[i] = mine ? *gdn_at(p.x.g, token, h) : 0.0f;
        }
    }

    /* What was asked for; G of rows that are not there is that of the last one. */
    __device__ void gates(const gdn_segment &g, tile_gates &to) const
    {
        const int open = g.open;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = lane + 32 * i;
            to.G[row] = row < open ? g.G[h * GDN_CHUNK + row] : (double)gate[i];
        }
        __syncwarp();
        if (lane == 0) {
            double sum = open ? to.G[open - 1] : 0.0;
#pragma unroll 8
            for (int row = open; row < GDN_CHUNK; row++) to.G[row] = sum += to.G[row];
        }
        __syncwarp();
        const double last = to.G[GDN_CHUNK - 1];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = lane + 32 * i;
            const double G = to.G[row];
            to.decay[row] = qrn_exp((float)G);
            to.beta[row] = beta[i];
            to.to_edge[row] = gdn_decay(last, G);
        }
    }
};

/* A chunk, of which all is there but decayed products, and gates and rows of the next one, if there is one. */
static __device__ __forceinline__ void tile_chunk(tile_walker &walker, tile_helper &helper, bool walks, int wave,
                                                  int n_segments)
{
    tile_shared &z = walker.z;
    const int now = wave & 1, next = now ^ 1;
    const gdn_segment &g = z.segment[now];
    const tile_gates &gates = z.gates[now];
    const bool stays = wave >= n_segments - 2, goes_on = wave + 1 < n_segments; /* what is older is written over */
    if (walks) {
        walker.load_values(g);
        walker.with_state(z.k[now], gates);
    } else {
        if (goes_on && threadIdx.x == HALF) z.segment[next].find(walker.p, z.sequence, wave + 1);
        helper.decay_products(g, gates.G, wave);
    }
    __syncthreads();
    if (walks) {
        walker.solve(g, gates, stays);
    } else {
        if (goes_on) helper.begin_rows(z.segment[next], wave + 1);
        if (goes_on && helper.warp == 0) helper.ask_for_gates(z.segment[next]);
        if (g.next) helper.decay_keys(z.k[now], gates);
    }
    __syncthreads();
    if (walks) {
        if (g.next) walker.edge(z.k[now], gates, stays ? g.next : nullptr);
    } else {
        helper.out(g);
        if (goes_on && helper.warp == 0) helper.gates(z.segment[next], z.gates[next]);
        qrn_copies_wait<0>();
    }
    __syncthreads();
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_exact, 256, 1, qrn_gdn_exact_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    tile_shared &z = *(tile_shared *)memory;
    const int64_t n_items = p.c.x.heads.n_v * p.c.n_slices, s = blockIdx.x / n_items;
    if (threadIdx.x == 0) {
        z.sequence.find(p.c, s);
        if (!z.sequence.unknown && z.sequence.n_segments()) z.segment[0].find(p.c, z.sequence, 0);
    }
    __syncthreads();
    tile_walker walker(p, z, blockIdx.x - s * n_items);
    tile_helper helper(p, z, blockIdx.x - s * n_items);
    if (z.sequence.unknown) {
        gdn_fill_nan(p.c, z.sequence, walker.h, walker.first, W);
        return;
    }
    const int n_segments = z.sequence.n_segments();
    if (n_segments == 0) return;
    const bool walks = threadIdx.x < HALF;
    if (walks) {
        walker.load_state(z.segment[0].state);
    } else {
        helper.begin_rows(z.segment[0], 0);
        if (helper.warp == 0) {
            helper.ask_for_gates(z.segment[0]);
            helper.gates(z.segment[0], z.gates[0]);
        }
        qrn_copies_wait<0>();
    }
    __syncthreads();
    for (int wave = 0; wave < n_segments; wave++) tile_chunk(walker, helper, walks, wave, n_segments);
}
