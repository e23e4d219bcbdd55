/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token of few sequences: its inputs are in memory.
 *
 * Before its turn a block looks at the tables, fetches state and open rows where they are settled, and asks for all
 * else that it will read (what another step still writes is no worse for it). */
#include "backends/cuda/device/gdn_open_few.cuh"

struct few_from_memory {
    typedef few_layout<false> layout;
    enum { COLUMN_WARP = 0, ROWS_WARP = 1, ROWS = 1 };

    /* What this thread reads first of each. */
    const float *kq_from, *v_from, *g_from, *beta_from;
    float v_here, gate_here, beta_here;

    __device__ void find_places(const few_block &x)
    {
        const qrn_gdn_tokens &t = x.p.x;
        kq_from = gdn_at(x.warp == 0 ? t.k : t.q, x.l.begin, x.l.kh) + x.lane * 4;
        v_from = gdn_at(t.v, x.l.begin, x.l.h) + x.slice * W + x.lane;
        g_from = gdn_at(t.g, x.l.begin, x.l.h);
        beta_from = gdn_at(t.beta, x.l.begin, x.l.h);
        qrn_hold(kq_from), qrn_hold(v_from), qrn_hold(g_from), qrn_hold(beta_from);
    }

    __device__ void ask(const few_block &x) const
    {
        const qrn_gdn_open_chunk_params &p = x.p;
        const gdn_token_head &l = x.l;
        const int warp = x.warp, lane = x.lane, slice = x.slice;
        if (warp == 0 && lane < 4) qrn_prefetch(gdn_at(p.x.k, l.begin, l.kh) + lane * 32);
        if (warp == 1 && lane < 4) qrn_prefetch(gdn_at(p.x.q, l.begin, l.kh) + lane * 32);
        if (warp == 2 && lane == 0) qrn_prefetch(gdn_at(p.x.v, l.begin, l.h) + slice * W);
        if (warp == 2 && lane == 1) qrn_prefetch(gdn_at(p.x.g, l.begin, l.h));
        if (warp == 2 && lane == 2) qrn_prefetch(gdn_at(p.x.beta, l.begin, l.h));
    }

    __device__ void begin(few_block &x)
    {
        if (x.warp == 0 || x.warp == 3)
            qrn_copy16_async((x.warp == 0 ? x.z.k : x.z.q) + 4 * x.lane, kq_from, 16);
    }
    __device__ void token(few_block &x)
    {
        gate_here = *g_from;
        beta_here = *beta_from;
        v_here = x.warp == COLUMN_WARP ? *v_from : 0.0f;
        qrn_copies_commit();
        qrn_copies_wait<0>();
        __syncthreads();
    }
    __device__ void meet(const few_block &) const {}
    __device__ float v(const few_block &) const { return v_here; }
    __device__ float gate(const few_block &) const { return gate_here; }
    __device__ float beta(const few_block &) const { return beta_here; }
    __device__ void out(const few_block &x, float o) const { x.store_out(o); }
    __device__ void end(const few_block &) const {}
};

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_few, 128, 3, qrn_gdn_open_chunk_params)
{
    QRN_DYNAMIC_SHARED(char, shared);
    if (!p.numbers_stay) qrn_grid_waits();
    few_block x(p, *(few_shared *)shared);
    few_from_memory in;
    const bool is_token = x.l.kind() == ONE_TOKEN; /* all threads say the same */
    in.find_places(x);
    if (p.numbers_stay && is_token) {
        in.ask(x);
        if (!p.settled) x.ask();
    }
    if (!p.settled) qrn_grid_waits();
    if (is_token) x.fetch(), x.load_G<few_from_memory>();
    qrn_grid_waits();
    if (is_token) x.token(in);
    if (x.l.kind() != OTHER || x.slice >= D / FALLBACK) return;
    few_other(p, shared, (int)blockIdx.y, x.l.h, x.slice);
}
