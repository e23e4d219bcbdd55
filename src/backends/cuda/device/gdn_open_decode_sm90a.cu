/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token a sequence, d 128: bound by reading S0 (64 KB a head), keys (512
 * bytes an open row, read by all value heads of a key head) and u (512 bytes an open row).
 *
 * Blocks stay, two a multiprocessor, and take heads in turn.  A warp keeps a ring of six stages
 * of 16 KB on its way: of a head its keys, S0 in four pieces and u, all 32 rows a stage, keys
 * turned in their rows (gdn_turned); a smaller ring has what is known of its token: k, q, v, G, gates, tables.
 * Four warps have a column each thread, two an open row: dots with k and q from shared memory, 128 FMA
 * one after the other; then columns add the open rows.  Of two more warps one stores k and G.  On the edge the
 * ring brings keys, S0 and u again (from L2), piece by piece.  1500 cycles a head, of the
 * 4800 that its bytes take.
 *
 * Sequences of other than one token, and addresses that are not aligned to 16, are left to the end, where
 * gdn_open_step.cuh has them. */
#include "backends/cuda/device/gdn_open_decode_reader.cuh"

struct decode_worker {
    const qrn_gdn_open_chunk_params &p;
    decode_shared &z;
    const int warp, lane;
    int n_stages; /* before this head's */
    float2 *coef;

    __device__ decode_worker(const qrn_gdn_open_chunk_params &params, decode_shared &shared)
        : p(params), z(shared), warp(qrn_warp()), lane(qrn_lane()), n_stages(0),
          coef(shared.coef[0])
    {
    }

    /* Stage i of this head, when it is there. */
    __device__ float *wait(int i)
    {
        const int at = (n_stages + i) % STAGES;
        qrn_barrier_wait(&z.full[at], (n_stages + i) / STAGES & 1);
        return z.stage[at];
    }
    /* This warp is done with it, and counts for n of 8. */
    __device__ void leave(int i, int n)
    {
        __syncwarp();
        if (lane < n) qrn_barrier_arrive(&z.empty[(n_stages + i) % STAGES]);
    }

    __device__ static double G_of(const decode_item &t)
    {
        return (t.open ? t.G[t.open - 1] : 0.0) + (double)t.gate;
    }

    /* An open row's products with k and q; the token's own row is its key.  A stage has the rows of one
     * warp. */
    __device__ void row(const decode_item &t)
    {
        const int i = warp - ROWS_WARP, r = i * HALF + lane;
        const bool is_open = r < t.open, has_stage = i * HALF < t.open;
        two_sums sum = {0.0f, 0.0f};
        const float *keys = has_stage ? wait(i) : nullptr;
        if (i * HALF <= t.open)
            gdn_add_key<32>(sum, t.k, t.q, is_open ? keys + lane * D : t.k, is_open ? lane : 0);
        if (has_stage) leave(i, 8);
        if (r > t.open) return;
        const double G = G_of(t), G_row = is_open ? t.G[r] : G;
        const float w = gdn_decay(G, G_row);
        coef[r] = make_float2(-(w * sum.k), w * sum.q);
        if (t.next) z.to_edge[r] = w; /* the token is the chunk's last */
    }

    __device__ two_sums column_dots(const decode_item &t)
    {
        two_sums sum = {0.0f, 0.0f};
        const int first = stages_of_rows(t.open);
        for (int i = 0; i < PIECES; i++) {
            const float *x = wait(first + i) + threadIdx.x;
            gdn_add_column<32>(sum, t.k + i * HALF, t.q + i * HALF, [&](int j) { return x[j * D]; }, HALF);
            leave(first + i, 2);
        }
        return sum;
    }

    /* u and out of a column; returns u. */
    __device__ float column(const decode_item &t, two_sums sum)
    {
        const int j = (int)threadIdx.x, n = stages_of_rows(t.open),
                  first = n + PIECES; /* stage of u */
        const float decay = qrn_exp((float)G_of(t));
        float a = fmaf(-decay, sum.k, t.v[j]), b = decay * sum.q;
        for (int i = 0; i < n; i++) {
            const float *x = wait(first + i) + j;
            const int n_rows = t.open - i * HALF < HALF ? t.open - i * HALF : HALF;
            gdn_add_rows<HALF>(a, b, coef + i * HALF, [&](int j) { return x[j * D]; }, n_rows);
            if (!t.next) leave(first + i, 2);
        }
        const float u = t.beta * a;
        t.rows_u[t.open * D + j] = u;
        t.out[j] = p.scale * fmaf(coef[t.open].y, u, b);
        return u;
    }

    __device__ void keep(const decode_item &t) const
    {
        if (warp > KEEP_WARP) return;
        if (lane == 0) t.rows_G[t.open] = G_of(t);
        if (t.rows_k) *(float4 *)(t.rows_k + t.open * D + 4 * lane) = *(const float4 *)(t.k + 4 * lane);
    }

    /* The new state, 32 rows at a time: a warp has 4 of them, a lane 4 columns.  Keys are decayed in
     * their place.  A ring cannot keep u longer than for half of them; new_u: of the token. */
    __device__ void edge(const decode_item &t, float new_u)
    {
        const int c = 4 * lane;
        const float decay = qrn_exp((float)G_of(t));
        for (int piece = 0; piece < PIECES; piece++) {
            const int half = piece / (PIECES / 2), u = 2 + PIECES + half * (2 + PIECES),
                      at = u + 2 + 2 * (piece % (PIECES / 2));
            if (piece % (PIECES / 2) == 0) {
                (void)wait(u);
                float *last = wait(u + 1) + (HALF - 1) * D;
                if (warp < ROWS_WARP) last[threadIdx.x] = new_u;
                qrn_sync_some(2, WORKERS);
            }
            float *k = wait(at);
            for (int i = threadIdx.x; i < HALF * GDN_CHUNK; i += WORKERS) {
                const int s = i / HALF;
                const float key = s == GDN_CHUNK - 1 ? t.k[piece * HALF + i % HALF] : k[i];
                k[i] = z.to_edge[s] * key;
            }
            qrn_sync_some(2, WORKERS);
            edge_rows(t.next + (piece * HALF + 4 * warp) * D + c, wait(at + 1) + 4 * warp * D + c,
                      k + 4 * warp, u, decay);
            leave(at, 1);
            leave(at + 1, 1);
            if (piece % (PIECES / 2) == 0) continue;
            leave(u, 1);
            leave(u + 1, 1);
        }
    }

    /* 4 rows, 4 columns: exp(G_C) S0 and what the rows add, ascending; k: 4 elements of each, HALF apart. */
    __device__ void edge_rows(float *next, const float *S, const float *k, int first_u, float decay)
    {
        float x[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 old = *(const float4 *)(S + i * D);
            x[i][0] = decay * old.x, x[i][1] = decay * old.y;
            x[i][2] = decay * old.z, x[i][3] = decay * old.w;
        }
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            const float *u = z.stage[(n_stages + first_u + half) % STAGES] + 4 * lane;
#pragma unroll 8
            for (int s = 0; s < HALF; s++) {
                const float4 v = *(const float4 *)(k + (half * HALF + s) * HALF),
                             w = *(const float4 *)(u + s * D);
                const float ks[4] = {v.x, v.y, v.z, v.w}, us[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) x[i][j] = fmaf(ks[i], us[j], x[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(float4 *)(next + i * D) = make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
    }

    __device__ void token(const decode_item &t)
    {
        two_sums sum = {0.0f, 0.0f};
        if (warp < ROWS_WARP)
            sum = column_dots(t);
        else if (warp < KEEP_WARP)
            row(t);
        else
            keep(t);
        if (warp < KEEP_WARP) qrn_sync_some(1, KEEP_WARP * 32); /* coefficients are there */
        const float u = warp < ROWS_WARP ? column(t, sum) : 0.0f;
        if (t.next) edge(t, u);
        /* Those of the next head may be written while columns read these. */
        coef = coef == z.coef[0] ? z.coef[1] : z.coef[0];
        n_stages += stages_of(t);
    }

    /* Returns whether heads are left to the end. */
    __device__ bool work(int n)
    {
        bool others = false;
        int at = 0, parity = 0;
        for (int i = (int)blockIdx.x; i < n; i += (int)gridDim.x) {
            qrn_barrier_wait(&z.item_full[at], parity);
            const decode_item &t = z.item[at];
            others |= t.kind == OTHER;
            if (t.kind == ONE_TOKEN) token(t);
            __syncwarp();
            if (lane == 0) qrn_barrier_arrive(&z.item_empty[at]);
            if (++at == ITEMS) at = 0, parity ^= 1;
        }
        return others;
    }
};

static __device__ __forceinline__ void decode_begin(decode_shared &z)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            qrn_barrier_init(&z.full[i], 32);
            qrn_barrier_init(&z.empty[i], 8);
        }
        for (int i = 0; i < ITEMS; i++) {
            qrn_barrier_init(&z.item_full[i], 2);
            qrn_barrier_init(&z.item_empty[i], 8);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_decode, 288, 2, qrn_gdn_open_chunk_params)
{
    QRN_DYNAMIC_SHARED(char, shared);
    decode_shared &z = *(decode_shared *)shared;
    const int n_v = (int)p.x.heads.n_v, n = (int)p.x.sequences.n_seqs * n_v;
    bool others;
    decode_begin(z);
    if (qrn_warp() == WORKERS / 32) {
        others = decode_reader(p, z).read(n);
    } else {
        qrn_grid_waits();
        others = decode_worker(p, z).work(n);
    }
    if (!others) return; /* all threads say the same */
    step_shared<D> &step = *(step_shared<D> *)shared;
    for (int i = (int)blockIdx.x; i < n; i += (int)gridDim.x) {
        gdn_token_head l;
        l.find(p, i / n_v, i % n_v);
        if (l.kind() != OTHER) continue;
        __syncthreads();
        step_block<D, THREADS>(p, step, i).work();
    }
}
