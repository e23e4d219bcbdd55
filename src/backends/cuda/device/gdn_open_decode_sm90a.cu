/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token a sequence, d 128: bound by reading S0 (64 KB a head), keys (512
 * bytes an open row, read by all value heads of a key head) and u (512 bytes an open row).
 *
 * Blocks stay, two a multiprocessor, and take heads in turn (gdn_open_decode_turns.cuh).  A warp keeps a ring of six stages
 * of 16 KB on its way: of a head its keys, S0 in four pieces and u, all 32 rows a stage, keys
 * turned in their rows (gdn_turned); a smaller ring has what is known of its token: k, q, v, G, gates, tables.
 * Four warps have a column each thread, two an open row: dots with k and q from shared memory, 128 FMA
 * one after the other; then columns add the open rows.  Of two more warps one stores k and G.  On the edge S0 and u
 * stay in the ring, which brings keys again (from L2).  1500 cycles a head, of the 4800 that its bytes take.
 * A norm behind has a warp of its own.
 *
 * Sequences of other than one token, and addresses that are not aligned to 16, are left to the end, where
 * gdn_open_step.cuh has them. */
#include "backends/cuda/device/gdn_norm.cuh"
#include "backends/cuda/device/gdn_open_decode_reader.cuh"
#include "backends/cuda/device/gdn_open_edge.cuh"

template <class Norm> struct decode_worker {
    static const bool NORMS = gdn_has_norm<Norm>;

    const qrn_gdn_open_chunk_params &p;
    const Norm &norm;
    decode_shared &z;
    const int warp, lane;
    int n_stages, n_items; /* before this head's */

    __device__ decode_worker(const qrn_gdn_open_chunk_params &params, const Norm &behind, decode_shared &shared)
        : p(params), norm(behind), z(shared), warp(qrn_warp()), lane(qrn_lane()), n_stages(0), n_items(0)
    {
    }

    /* Those of the next head may be written while columns read this one's. */
    __device__ float2 *coef() const { return z.coef[n_items % 2]; }

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
        for (int k = lane; k < n * QRN_WARP_ARRIVALS; k += 32) qrn_barrier_arrive(&z.empty[(n_stages + i) % STAGES]);
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
        coef()[r] = make_float2(-(w * sum.k), w * sum.q);
        if (t.next) z.to_edge[r] = w; /* the token is the chunk's last */
    }

    __device__ two_sums column_dots(const decode_item &t)
    {
        two_sums sum = {0.0f, 0.0f};
        const int first = stages_of_rows(t.open);
        for (int i = 0; i < PIECES; i++) {
            const float *x = wait(first + i) + threadIdx.x;
            gdn_add_column<32>(sum, t.k + i * HALF, t.q + i * HALF, [&](int j) { return x[j * D]; }, HALF);
            if (!t.next) leave(first + i, 2);
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
            gdn_add_rows<HALF>(a, b, coef() + i * HALF, [&](int j) { return x[j * D]; }, n_rows);
            if (!t.next) leave(first + i, 2);
        }
        const float u = t.beta * a;
        t.rows_u[t.open * D + j] = u;
        const float out = p.scale * fmaf(coef()[t.open].y, u, b);
        if (stores_out()) t.out[j] = out;
        if constexpr (NORMS) {
            z.out[n_items % ITEMS][j] = out;
            qrn_barrier_arrive_warp(&z.out_there[n_items % ITEMS]);
        }
        return u;
    }

    /* What comes out may be where the norm's result goes. */
    __device__ bool stores_out() const
    {
        if constexpr (NORMS) return norm.out.data != (uint64_t)(uintptr_t)p.x.out;
        return true;
    }

    __device__ void keep(const decode_item &t) const
    {
        if (warp > KEEP_WARP) return;
        if (lane == 0) t.rows_G[t.open] = G_of(t);
        if (t.rows_k) *(float4 *)(t.rows_k + t.open * D + 4 * lane) = *(const float4 *)(t.k + 4 * lane);
    }

    /* The new state: a warp has 16 rows of it, a thread eight rows of eight columns.  S0 has stayed where it was, and so
     * has u; keys come once more, as they lie.  new_u: of the token. */
    __device__ void edge(const decode_item &t, float new_u)
    {
        enum { ROWS = 8, S = 2, U = S + PIECES, KEYS = U + 2 }; /* stages of the head */
        const int row = ROWS * (2 * warp + lane / 16), column = 4 * (lane % 16);
        const float decay = qrn_exp((float)G_of(t));
        gdn_edge_columns x[ROWS];
        const float *from = wait(S + row / HALF) + row % HALF * D + column;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            x[i].take(from + i * D);
            x[i].decay(decay);
        }
        for (int i = 0; i < PIECES; i++) leave(S + i, 1);
        if (warp < ROWS_WARP) wait(U + 1)[(HALF - 1) * D + threadIdx.x] = new_u;
        for (int half = 0; half < 2; half++) {
            float *k = wait(KEYS + half);
            const float *u = wait(U + half) + column;
            decay_keys(k, t.k, half);
            qrn_sync_some(2, WORKERS);
            k += row;
#pragma unroll 1
            for (int s = 0; s < HALF; s++, k += D, u += D) gdn_edge_add(x, k, u);
            leave(KEYS + half, 1);
            leave(U + half, 1);
        }
        float *to = t.next + row * D + column;
#pragma unroll
        for (int i = 0; i < ROWS; i++) x[i].store(to + i * D);
    }
    /* Half of the chunk's, in their place; the last one is the token's. */
    __device__ void decay_keys(float *keys, const float *own, int half) const
    {
#pragma unroll
        for (int i = 0; i < HALF; i += WORKERS / 32) {
            const int r = i + warp, s = half * HALF + r;
            const float4 k = *(const float4 *)((s == GDN_CHUNK - 1 ? own : keys + r * D) + 4 * lane);
            const float w = z.to_edge[s];
            *(float4 *)(keys + r * D + 4 * lane) = make_float4(w * k.x, w * k.y, w * k.z, w * k.w);
        }
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
        /* Coefficients are there for columns; on the edge what keys decay by is for all, of whom some may have come from
         * the head before while others are still there: a barrier of its own. */
        if (t.next)
            qrn_sync_some(3, WORKERS);
        else if (warp < KEEP_WARP)
            qrn_sync_some(1, KEEP_WARP * 32);
        const float u = warp < ROWS_WARP ? column(t, sum) : 0.0f;
        if (t.next) edge(t, u);
        n_stages += stages_of(t);
    }

    __device__ void work()
    {
        for (;; n_items++) {
            qrn_barrier_wait(&z.item_full[n_items % ITEMS], n_items / ITEMS % 2);
            const decode_item &t = z.item[n_items % ITEMS];
            if (t.kind == NO_MORE) return;
            if (t.kind == ONE_TOKEN) token(t);
            qrn_barrier_arrive_warp(&z.item_empty[n_items % ITEMS]);
        }
    }
};

/* A warp: the norm of each head, whose gate it has by the time that columns are out. */
struct decode_normer {
    const qrn_rms_norm_params &p;
    decode_shared &z;

    __device__ void head(const decode_item &t, const float *out, qrn_barrier *out_there, int parity) const
    {
        const norm_row row = gdn_row_to_norm(p, t.token, t.h);
        norm_part<1, 1> s, weight, gate;
        if (p.weight) weight.load((const float *)(uintptr_t)p.weight, D);
        if (row.gate) {
            gate.load(row.gate, D);
            gate.silu();
        }
        qrn_barrier_wait(out_there, parity);
        s.load(out, D);
        norm_whole_row<true>(p, row, D, s, weight, gate, nullptr);
    }
    __device__ void work() const
    {
        unsigned phases = 0; /* a bit an item: columns come out of those alone that are a token's */
        for (int i = 0;; i++) {
            const int at = i % ITEMS;
            qrn_barrier_wait(&z.item_full[at], i / ITEMS & 1);
            const decode_item &t = z.item[at];
            if (t.kind == NO_MORE) return;
            if (t.kind == ONE_TOKEN) {
                head(t, z.out[at], &z.out_there[at], phases >> at & 1);
                phases ^= 1u << at;
            }
            qrn_barrier_arrive_warp(&z.item_empty[at]);
        }
    }
};

/* n_warps: that items are for. */
static __device__ __forceinline__ void decode_begin(decode_shared &z, int n_warps)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            qrn_barrier_init(&z.full[i], 32);
            qrn_barrier_init(&z.empty[i], 8 * QRN_WARP_ARRIVALS);
        }
        for (int i = 0; i < ITEMS; i++) {
            qrn_barrier_init(&z.item_full[i], 2);
            qrn_barrier_init(&z.item_empty[i], n_warps * QRN_WARP_ARRIVALS);
            qrn_barrier_init(&z.out_there[i], ROWS_WARP * QRN_WARP_ARRIVALS);
        }
        qrn_barriers_are_ready();
    }
    __syncthreads();
}

/* A head that is left to the end. */
template <int n_threads>
static __device__ __noinline__ void decode_other(const qrn_gdn_open_chunk_params &p, char *shared, int item)
{
    step_block<D, n_threads>(p, *(step_shared<D> *)shared, item).work();
}

template <class Norm>
static __device__ __forceinline__ void decode(const qrn_gdn_open_chunk_params &p, const Norm &norm)
{
    constexpr bool norms = gdn_has_norm<Norm>;
    QRN_DYNAMIC_SHARED(char, shared);
    decode_shared &z = *(decode_shared *)shared;
    decode_begin(z, WORKERS / 32 + norms);
    if (qrn_warp() == WORKERS / 32) {
        decode_reader(p, z).read();
    } else {
        qrn_grid_waits();
        if (qrn_warp() < WORKERS / 32) decode_worker<Norm>(p, norm, z).work();
        if constexpr (norms)
            if (qrn_warp() > WORKERS / 32) decode_normer{norm, z}.work();
    }
    if (!z.leaves_some) return;
    for (int i = 0;; i++) {
        const int n_v = (int)p.x.heads.n_v;
        const decode_turns::turn t = decode_turns(z.order, z.order.n_at_edge, (int)p.x.sequences.n_seqs, n_v).at(i);
        if (t.s < 0) return;
        gdn_token_head l;
        l.find(p, t.s, t.h);
        if (l.kind() != OTHER) continue;
        __syncthreads();
        decode_other<THREADS + 32 * norms>(p, shared, t.s * n_v + t.h);
        if constexpr (norms) {
            __syncthreads();
            gdn_norm_others(norm, l.begin, l.n, t.h, 1);
        }
    }
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_decode, THREADS, 2, qrn_gdn_open_chunk_params)
{
    decode(p, gdn_no_norm());
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_decode_norm, THREADS + 32, 2, qrn_gdn_open_norm_params)
{
    decode(p.chunk, p.norm);
}
