/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token of few sequences, d 128: bound by what comes one after the other:
 * what is read arrives, 128 FMA of a column, decays, up to 63 FMA of the open rows.
 *
 * A block has 32 columns of a head, so that each multiprocessor has one of them, and room for one of
 * the next launch's.  Everything comes to shared memory at once, where it is settled before the
 * launch's turn.  A warp has the columns, one or two the open rows and the token's own key, one stores k and G.  Loops are
 * short: a launch that runs each instruction once waits for its code.  On the edge all is there already: S0, keys and u.
 *
 * Who does what, and where the token's k, q, v and gates come from, is left to Inputs:
 *     layout           of what is fetched in shared memory (few_layout)
 *     COLUMN_WARP      has the columns
 *     ROWS_WARP, ROWS  the first of the warps that have open rows, and how many a lane has
 *     begin(block)     asks for what it reads
 *     token(block)     k and q are in shared memory afterwards, for the warps above
 *     meet(block)      all threads, when products with k and q are done: what follows is there afterwards
 *     v(block), gate(block), beta(block)   of a lane's column
 *     out(block, o)    what becomes of a column of the result
 *     end(block)       once columns are on their way */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_FEW_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_FEW_CUH

#include "backends/cuda/device/gdn_open_token.cuh"
#include "backends/cuda/device/pipeline.cuh"

enum { D = TOKEN_D, W = 32, THREADS = 128, SLICES = D / W, FALLBACK = 64 };

struct __align__(16) few_shared
{
    float S[D * W], keys[GDN_CHUNK * D], u[GDN_CHUNK * W]; /* as a few_layout says */
    float k[D], q[D];
    float2 coef[GDN_CHUNK];
    float to_edge[GDN_CHUNK]; /* exp(G_C - G_s) */
    float v[W], gate, beta;   /* for Inputs */
};
static_assert(sizeof(few_shared) <= QRN_GDN_FEW_BYTES, "");
static_assert(sizeof(step_shared<FALLBACK>) <= QRN_GDN_FEW_BYTES, "");

/* Where elements are: rows of S0 and u are W floats, a key is whole and turned by gdn_turned; or all as boxes of a map lie,
 * 32 floats of a row in 128 bytes, which are turned so, a key in four of them. */
template <bool boxes> struct few_layout {
    enum { BOXES = boxes, KEY_RUN = boxes ? GDN_CHUNK * W : W, KEY_ROW = boxes ? W : D }; /* from 32 floats of a key, or from a key, to the next */

    static __device__ __forceinline__ int at(int r, int c) { return r * W + (boxes ? c ^ (4 * (r & 7)) : c); }
    /* Four floats of a key; element k of one that was turned back. */
    static __device__ __forceinline__ int key_at(int r, int c) { return r * KEY_ROW + c / 8 * KEY_RUN + gdn_turned(r, c % 8); }
    static __device__ __forceinline__ int plain_key_at(int r, int k) { return r * KEY_ROW + k / W * KEY_RUN + k % W; }
};

/* At the edge: what an open row adds to N rows of the state, of four columns. */
template <int N> struct few_factors {
    float4 u;
    float k[N];

    template <class layout> __device__ __forceinline__ void take(const few_shared &z, int s, int row, int column)
    {
        u = *(const float4 *)(z.u + layout::at(s, column));
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 x = *(const float4 *)(z.keys + layout::plain_key_at(s, row + i));
            k[i] = x.x, k[i + 1] = x.y, k[i + 2] = x.z, k[i + 3] = x.w;
        }
    }
    __device__ __forceinline__ void add_to(float4 (&made)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            made[i].x = fmaf(k[i], u.x, made[i].x), made[i].y = fmaf(k[i], u.y, made[i].y);
            made[i].z = fmaf(k[i], u.z, made[i].z), made[i].w = fmaf(k[i], u.w, made[i].w);
        }
    }
};

struct few_block {
    const qrn_gdn_open_chunk_params &p;
    few_shared &z;
    gdn_token_head l;
    const int slice, tid, warp, lane;
    double last, open_G[2]; /* G of the latest open row, and of this thread's */

    __device__ few_block(const qrn_gdn_open_chunk_params &params, few_shared &shared)
        : p(params), z(shared), slice((int)blockIdx.x % SLICES), tid((int)threadIdx.x),
          warp(qrn_warp()), lane(qrn_lane())
    {
        l.find(p, (int)blockIdx.y, (int)blockIdx.x / SLICES);
    }

    __device__ const float *u_rows() const { return l.u(p) + slice * W; }

    /* Open row j of this lane; below 0: it has none. */
    template <class Inputs> __device__ int row(int j) const
    {
        const int first = (warp - Inputs::ROWS_WARP) * Inputs::ROWS * 32;
        return first >= 0 && first < GDN_CHUNK ? first + 32 * j + lane : -1;
    }

    /* Asks for the state and what is open.  Keys: slices of the head that keeps them have a share each. */
    __device__ void ask() const
    {
        const int open = l.open();
        qrn_prefetch(l.S() + tid * D + slice * W);
        if (tid < open) qrn_prefetch(u_rows() + tid * D);
        if (tid >= 64 && tid - 64 < open && l.keeps_key)
            qrn_prefetch(l.k(p) + (tid - 64) * D + slice * W);
        if (warp == 3 && lane * 16 < open) qrn_prefetch(l.G() + lane * 16);
    }

    /* Whether all that is read of the state and of open rows is where a map begins; all threads say the same. */
    __device__ int kind() const
    {
        const int kind = l.kind();
        return kind == ONE_TOKEN && (l.state | l.own_rows) % QRN_MAP_STEP ? (int)OTHER : kind;
    }

    template <class Inputs> __device__ void load_G()
    {
        const int open = l.open();
        last = open ? l.G()[open - 1] : 0.0;
#pragma unroll
        for (int j = 0; j < Inputs::ROWS; j++) {
            const int r = row<Inputs>(j);
            open_G[j] = r >= 0 && r < open ? l.G()[r] : 0.0;
        }
    }

    /* All of the state and of open rows, whole boxes, by one thread: what of open rows is not there yet is of no matter. */
    __device__ void fetch_boxes(const qrn_tensor_map &lines, qrn_barrier &fetched)
    {
        const int open = l.open();
        qrn_barrier_arrive_expecting(&fetched, (int)(sizeof z.S + (open ? sizeof z.keys + sizeof z.u : 0)));
#pragma unroll
        for (int i = 0; i < D; i += GDN_CHUNK)
            qrn_tensor_copy_at(z.S + i * W, &lines, 2 * W * slice, i, l.S(), &fetched);
        if (!open) return;
#pragma unroll
        for (int i = 0; i < D / W; i++) qrn_tensor_copy_at(z.keys + i * GDN_CHUNK * W, &lines, 2 * W * i, 0, l.k(p), &fetched);
        qrn_tensor_copy_at(z.u, &lines, 2 * W * slice, 0, l.u(p), &fetched);
    }

    /* The same by copies of all threads, each of which waits for its own later: they come sooner, but take longer to ask for. */
    __device__ void fetch()
    {
        typedef few_layout<false> layout;
        const int c = tid % 8 * 4, row = tid / 8, open = l.open();
        const float *S = l.S() + slice * W + row * D + c, *u = u_rows() + row * D + c, *keys = l.k(p) + warp * D + lane * 4;
        float *const to_S = z.S + layout::at(row, c), *const to_u = z.u + layout::at(row, c);
        qrn_hold(S), qrn_hold(u), qrn_hold(keys);
#pragma unroll
        for (int i = 0; i < D; i += THREADS / 8) qrn_copy16_async(to_S + i * W, S + i * D, 16);
#pragma unroll
        for (int i = 0; i < GDN_CHUNK; i += THREADS / 32)
            if (i + warp < open) qrn_copy16_async(z.keys + layout::key_at(i + warp, lane), keys + i * D, 16);
#pragma unroll
        for (int i = 0; i < GDN_CHUNK; i += THREADS / 8)
            if (i + row < open) qrn_copy16_async(to_u + i * W, u + i * D, 16);
    }

    template <class Inputs> __device__ two_sums column_dots() const
    {
        two_sums sum = {0.0f, 0.0f};
        gdn_add_column<16>(sum, z.k, z.q, [&](int i) { return z.S[Inputs::layout::at(i, lane)]; }, D);
        return sum;
    }

    /* Open rows first + lane, 32 apart; that of the token is its key. */
    template <class Inputs, int N> __device__ void rows_dots(int first, two_sums *sum) const
    {
        const int open = l.open();
        const float *key[N];
        int r[N], run[N];
        two_sums made[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int at = first + 32 * j + lane;
            const bool is_open = at < open;
            key[j] = is_open ? z.keys + at * Inputs::layout::KEY_ROW : z.k;
            r[j] = is_open ? at : 0, run[j] = is_open ? (int)Inputs::layout::KEY_RUN : (int)W;
            made[j] = {0.0f, 0.0f};
        }
        if constexpr ((bool)Inputs::layout::BOXES) gdn_add_keys<N>(made, z.k, z.q, key, r, run);
        else gdn_add_key<16>(made[0], z.k, z.q, key[0], r[0]);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] = made[j];
    }

    /* Keys and G join the open rows. */
    __device__ void keep(double G) const
    {
        if (slice) return;
        if (lane == 0) l.G()[l.open()] = G;
        if (!l.keeps_key) return;
        *(float4 *)(l.k(p) + l.open() * D + 4 * lane) = *(const float4 *)&z.k[4 * lane];
    }

    /* After it was fetched. */
    template <class Inputs> __device__ void token(Inputs &in)
    {
        enum { N = Inputs::ROWS };
        const int open = l.open(), first = row<Inputs>(0) - lane; /* of this warp's rows */
        two_sums sum[N];
        in.begin(*this);
        in.token(*this);
        if (warp == Inputs::COLUMN_WARP) sum[0] = column_dots<Inputs>();
        if (first >= 0 && first + 32 * (N - 1) <= open) rows_dots<Inputs, N>(first, sum);
        else if (first >= 0 && first <= open) rows_dots<Inputs, 1>(first, sum);
        in.meet(*this);
        const double G = last + (double)in.gate(*this);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int r = row<Inputs>(j);
            if (r < 0 || r > open) continue;
            const float w = gdn_decay(G, r < open ? open_G[j] : G);
            z.coef[r] = make_float2(-(w * sum[j].k), w * sum[j].q);
            z.to_edge[r] = w;
        }
        __syncthreads();
        if (warp == Inputs::COLUMN_WARP) in.out(*this, column<Inputs>(sum[0], G, in.v(*this), in.beta(*this)));
        if (warp == 3) keep(G);
        in.end(*this);
        if (l.next()) edge<Inputs>(G);
    }

    /* u of a column, and what comes out. */
    template <class Inputs> __device__ float column(two_sums sum, double G, float v, float beta)
    {
        const int open = l.open();
        const float decay = qrn_exp((float)G);
        float a = fmaf(-decay, sum.k, v), b = decay * sum.q;
        gdn_add_rows<GDN_CHUNK>(a, b, z.coef, [&](int s) { return z.u[Inputs::layout::at(s, lane)]; }, open);
        const float u = beta * a;
        z.u[Inputs::layout::at(open, lane)] = u;
        (l.u(p) + slice * W)[open * D + lane] = u;
        return p.scale * fmaf(z.coef[open].y, u, b);
    }

    __device__ void store_out(float o) const
    {
        p.x.out[l.begin * p.x.out_token + l.h * p.x.out_head + slice * W + lane] = o;
    }

    /* The new state: a thread has four columns of ROWS rows, so that each float of shared memory is a factor of four or
     * eight; keys are decayed in their place, and turned back. */
    template <class Inputs> __device__ void edge(double G)
    {
        typedef typename Inputs::layout layout;
        enum { ACROSS = W / 4, ROWS = D / (THREADS / ACROSS), AHEAD = 2 };
        const float decay = qrn_exp((float)G);
        const int column = tid % ACROSS * 4, first = tid / ACROSS * ROWS;
        float4 x[ROWS];
        decay_keys<layout>();
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float4 S = *(const float4 *)(z.S + layout::at(first + i, column));
            x[i] = make_float4(decay * S.x, decay * S.y, decay * S.z, decay * S.w);
        }
        __syncthreads();
        few_factors<ROWS> at[AHEAD];
        at[0].template take<layout>(z, 0, first, column);
#pragma unroll 4
        for (int s = 0; s < GDN_CHUNK; s++) {
            if (s + 1 < GDN_CHUNK) at[(s + 1) % AHEAD].template take<layout>(z, s + 1, first, column);
            at[s % AHEAD].add_to(x);
        }
        float *to = l.next() + first * D + slice * W + column;
#pragma unroll
        for (int i = 0; i < ROWS; i++) *(float4 *)(to + i * D) = x[i];
    }
    /* A warp has each fourth key, EACH of them at once. */
    template <class layout> __device__ void decay_keys()
    {
        enum { WARPS = THREADS / 32, EACH = 8 };
#pragma unroll
        for (int first = 0; first < GDN_CHUNK; first += WARPS * EACH) {
            float4 k[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int s = first + j * WARPS + warp;
                const float *from = s == GDN_CHUNK - 1 ? z.k + 4 * lane : z.keys + layout::key_at(s, lane);
                k[j] = *(const float4 *)from;
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int s = first + j * WARPS + warp;
                const float w = z.to_edge[s];
                float *to = z.keys + layout::plain_key_at(s, 4 * lane);
                *(float4 *)to = make_float4(w * k[j].x, w * k[j].y, w * k[j].z, w * k[j].w);
            }
        }
    }
};

/* What no block of a token takes: a slice of FALLBACK columns of a head. */
static __device__ __noinline__ void few_other(const qrn_gdn_open_chunk_params &p, char *shared,
                                                 int s, int h, int slice)
{
    const int64_t item = ((int64_t)s * p.x.heads.n_v + h) * (D / FALLBACK) + slice;
    step_block<FALLBACK, THREADS>(p, *(step_shared<FALLBACK> *)shared, item).work();
}

#endif
