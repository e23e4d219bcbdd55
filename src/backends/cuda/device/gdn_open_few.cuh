/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token of few sequences, d 128: bound by what comes one after the other:
 * what is read arrives, 128 FMA of a column, decays, up to 63 FMA of the open rows.
 *
 * A block has 32 columns of a head, so that each multiprocessor has one of them, and room for one of
 * the next launch's.  Everything comes to shared memory at once, where it is settled before the
 * launch's turn.  A warp has the columns, two the open rows and the token's own key, one stores k and G.  Loops are
 * short: a launch that runs each instruction once waits for its code.  On the edge all is there already: S0, keys and u.
 *
 * Where the token's k, q, v and gates come from is left to Inputs:
 *     begin(block)   asks for them
 *     token(block)   k and q are in shared memory by the next __syncthreads, if not copied; returns the
 *                    column's v
 *     gate(block), beta(block)   after that __syncthreads
 *     out(block, o)  what becomes of a column of the result
 *     end(block)     once columns are on their way */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_FEW_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_FEW_CUH

#include "backends/cuda/device/gdn_open_token.cuh"
#include "backends/cuda/device/pipeline.cuh"

enum { D = TOKEN_D, W = 32, THREADS = 128, SLICES = D / W, FALLBACK = 64 };

struct __align__(16) few_shared
{
    float S[D][W], keys[GDN_CHUNK][D], u[GDN_CHUNK][W]; /* keys: turned by gdn_turned */
    float k[D], q[D];
    float2 coef[GDN_CHUNK];
    float to_edge[GDN_CHUNK]; /* exp(G_C - G_s) */
    float v[W], gate, beta;   /* for Inputs */
};
static_assert(sizeof(few_shared) <= QRN_GDN_FEW_BYTES, "");
static_assert(sizeof(step_shared<FALLBACK>) <= QRN_GDN_FEW_BYTES, "");

struct few_block {
    const qrn_gdn_open_chunk_params &p;
    few_shared &z;
    gdn_token_head l;
    const int slice, tid, warp, lane, row; /* row: of this thread, below 0: none */
    /* What this thread reads first of each. */
    const float *S_from, *keys_from, *u_from;
    const double *last_from, *G_from;
    double last, open_G; /* G of the latest open row, and of this thread's */

    __device__ few_block(const qrn_gdn_open_chunk_params &params, few_shared &shared)
        : p(params), z(shared), slice((int)blockIdx.x % SLICES), tid((int)threadIdx.x),
          warp(qrn_warp()), lane(qrn_lane()), row(warp == 1 || warp == 2 ? tid - 32 : -1)
    {
        l.find(p, (int)blockIdx.y, (int)blockIdx.x / SLICES);
    }

    __device__ const float *u_rows() const { return l.u(p) + slice * W; }

    __device__ void find_places()
    {
        S_from = l.S() + slice * W + tid / 8 * D + tid % 8 * 4;
        keys_from = l.k(p) + warp * D + lane * 4;
        u_from = u_rows() + tid / 8 * D + tid % 8 * 4;
        last_from = l.G() + l.open() - 1;
        G_from = l.G() + row;
        qrn_hold(S_from), qrn_hold(keys_from), qrn_hold(u_from), qrn_hold(last_from), qrn_hold(G_from);
    }

    /* Asks for the state and what is open.  Keys: slices of the head that keeps them have a share each. */
    __device__ void ask() const
    {
        const int open = l.open();
        qrn_prefetch(l.S() + tid * D + slice * W);
        if (tid < open) qrn_prefetch(u_rows() + tid * D);
        if (tid >= 64 && tid - 64 < open && l.keeps_key(p))
            qrn_prefetch(l.k(p) + (tid - 64) * D + slice * W);
        if (warp == 3 && lane * 16 < open) qrn_prefetch(l.G() + lane * 16);
    }

    /* All that is read of the state and of open rows, by copies that this thread waits for later. */
    __device__ void fetch()
    {
        const int c = tid % 8 * 4, open = l.open();
#pragma unroll
        for (int i = 0; i < D; i += THREADS / 8) qrn_copy16_async(&z.S[i + tid / 8][c], S_from + i * D, 16);
#pragma unroll
        for (int i = 0; i < GDN_CHUNK; i += THREADS / 32)
            if (i + warp < open)
                qrn_copy16_async(&z.keys[i + warp][gdn_turned(i + warp, lane)], keys_from + i * D, 16);
#pragma unroll
        for (int i = 0; i < GDN_CHUNK; i += THREADS / 8)
            if (i + tid / 8 < open) qrn_copy16_async(&z.u[i + tid / 8][c], u_from + i * D, 16);
        last = open ? *last_from : 0.0;
        open_G = row >= 0 && row < open ? *G_from : 0.0;
    }

    /* This thread's column of S0, or its open row (that of the token: its key). */
    __device__ two_sums dots() const
    {
        const int open = l.open();
        two_sums sum = {0.0f, 0.0f};
        if (warp == 0)
            gdn_add_column<16>(sum, z.k, z.q, &z.S[0][lane], W, D);
        else if (row >= 0 && row - lane <= open)
            gdn_add_key<16>(sum, z.k, z.q, row < open ? z.keys[row] : z.k, row < open ? row : 0);
        return sum;
    }

    /* Keys and G join the open rows. */
    __device__ void keep(double G) const
    {
        if (slice) return;
        if (lane == 0) l.G()[l.open()] = G;
        if (!l.keeps_key(p)) return;
        *(float4 *)(l.k(p) + l.open() * D + 4 * lane) = *(const float4 *)&z.k[4 * lane];
    }

    /* After fetch. */
    template <class Inputs> __device__ void token(Inputs &in)
    {
        const int open = l.open();
        in.begin(*this);
        const float v = in.token(*this);
        qrn_copies_commit();
        qrn_copies_wait<0>();
        __syncthreads();
        const two_sums sum = dots();
        const double G = last + (double)in.gate(*this);
        if (row >= 0 && row <= open) {
            const float w = gdn_decay(G, row < open ? open_G : G);
            z.coef[row] = make_float2(-(w * sum.k), w * sum.q);
            z.to_edge[row] = w;
        }
        __syncthreads();
        if (warp == 0) in.out(*this, column(sum, G, v, in.beta(*this)));
        if (warp == 3) keep(G);
        in.end(*this);
        if (l.next()) edge(G);
    }

    /* u of a column, and what comes out. */
    __device__ float column(two_sums sum, double G, float v, float beta)
    {
        const int open = l.open();
        const float decay = qrn_exp((float)G);
        float a = fmaf(-decay, sum.k, v), b = decay * sum.q;
        gdn_add_rows<GDN_CHUNK>(a, b, z.coef, &z.u[0][lane], W, open);
        const float u = beta * a;
        z.u[open][lane] = u;
        (l.u(p) + slice * W)[open * D + lane] = u;
        return p.scale * fmaf(z.coef[open].y, u, b);
    }

    __device__ void store_out(float o) const
    {
        p.x.out[l.begin * p.x.out_token + l.h * p.x.out_head + slice * W + lane] = o;
    }

    /* The new state: a thread has a column of 32 rows; keys are decayed in their place, and turned back. */
    __device__ void edge(double G)
    {
        enum { ROWS = D / (THREADS / 32) };
        const float decay = qrn_exp((float)G);
        float x[ROWS];
        for (int s = warp; s < GDN_CHUNK; s += THREADS / 32) {
            const float *from = s == GDN_CHUNK - 1 ? z.k + 4 * lane : &z.keys[s][gdn_turned(s, lane)];
            const float4 k = *(const float4 *)from;
            const float w = z.to_edge[s];
            __syncwarp();
            *(float4 *)&z.keys[s][4 * lane] = make_float4(w * k.x, w * k.y, w * k.z, w * k.w);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) x[i] = decay * z.S[warp * ROWS + i][lane];
        __syncthreads();
#pragma unroll 1
        for (int s = 0; s < GDN_CHUNK; s++) {
            const float u = z.u[s][lane];
#pragma unroll
            for (int i = 0; i < ROWS; i += 4) {
                const float4 k = *(const float4 *)&z.keys[s][warp * ROWS + i];
                x[i] = fmaf(k.x, u, x[i]);
                x[i + 1] = fmaf(k.y, u, x[i + 1]);
                x[i + 2] = fmaf(k.z, u, x[i + 2]);
                x[i + 3] = fmaf(k.w, u, x[i + 3]);
            }
        }
        float *to = l.next() + warp * ROWS * D + slice * W + lane;
#pragma unroll
        for (int i = 0; i < ROWS; i++) to[i * D] = x[i];
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
