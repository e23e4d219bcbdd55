/* SPDX-License-Identifier: MIT
 * The warp of gdn_open_decode_sm90a.cu that reads: what a block's shared memory has, and what of each head is on its way
 * there.
 *
 * A lane has the tables and gates of one of the block's next 32 heads.  Before its turn comes the warp has the first ones'
 * tables, and where states are settled the first state.  To ask the second cache for more then takes longer than it saves:
 * launches before are bound by memory too. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_DECODE_READER_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_DECODE_READER_CUH

#include "backends/cuda/device/gdn_open_decode_turns.cuh"
#include "backends/cuda/device/pipeline.cuh"

enum {
    D = TOKEN_D,
    HALF = GDN_CHUNK / 2, /* rows of a stage */
    STAGE = HALF * D,     /* floats */
    STAGES = QRN_GDN_DECODE_STAGES,
    ITEMS = QRN_GDN_DECODE_ITEMS,
    PIECES = D / HALF,
    LOOKS = 32,                   /* heads whose tables are looked at together, by a warp */
    EDGE_STAGES = 2,              /* keys once more */
    WORKERS = 256,
    THREADS = QRN_GDN_DECODE_THREADS,
    ROWS_WARP = 4, /* the first of two; before it those of columns */
    KEEP_WARP = 6
};

/* One head's token.  What the ring's stages have of it follows from open and next. */
struct __align__(16) decode_item {
    float k[D], q[D], v[D];
    double G[GDN_CHUNK];
    float *next, *rows_k, *rows_u, *out; /* rows_k NULL: another head keeps the key */
    double *rows_G;
    int64_t token;
    float gate, beta;
    int kind, open; /* kind: of a head's token, or NO_MORE */
    int h;
};
enum { NO_MORE = OTHER + 1 };

struct __align__(16) decode_shared {
    float stage[STAGES][STAGE];
    decode_item item[ITEMS];
    float out[ITEMS][D]; /* for the norm behind */
    float2 coef[2][GDN_CHUNK]; /* of open rows, for u and for out; of one head after the other */
    float to_edge[GDN_CHUNK];  /* exp(G_C - G_s) */
    decode_order order;
    int leaves_some; /* heads to the end */
    qrn_barrier full[STAGES], empty[STAGES], item_full[ITEMS], item_empty[ITEMS], out_there[ITEMS];
};
static_assert(sizeof(decode_shared) <= QRN_GDN_DECODE_BYTES, "");
static_assert(sizeof(step_shared<D>) <= sizeof(float) * STAGES * STAGE, "");

/* Stages of keys, and of u. */
static __device__ __forceinline__ int stages_of_rows(int open)
{
    return (open + HALF - 1) / HALF;
}
static __device__ __forceinline__ int stages_of(const decode_item &t)
{
    return 2 * stages_of_rows(t.open) + PIECES + (t.next ? EDGE_STAGES : 0);
}

/* All lanes go through it together. */
struct decode_reader {
    const qrn_gdn_open_chunk_params &p;
    decode_shared &z;
    int n_stages, n_items; /* so far */

    __device__ decode_reader(const qrn_gdn_open_chunk_params &params, decode_shared &shared)
        : p(params), z(shared), n_stages(0), n_items(0)
    {
    }

    /* The next item, as soon as there is a place for it; its kind is all that one has which is no token. */
    __device__ decode_item &place(int kind)
    {
        const int at = n_items % ITEMS;
        decode_item &t = z.item[at];
        qrn_barrier_wait(&z.item_empty[at], (n_items++ / ITEMS & 1) ^ 1);
        if (qrn_lane()) return t;
        t.kind = kind;
        for (int i = 0; i < 2 && kind != ONE_TOKEN; i++) qrn_barrier_arrive(&z.item_full[at]);
        return t;
    }

    /* A head's token, without gates. */
    __device__ decode_item &item(const gdn_token_head &l)
    {
        decode_item &t = place(ONE_TOKEN);
        const int at = (int)(&t - z.item), open = l.open();
        if (qrn_lane()) return t;
        t.open = open;
        t.token = l.begin;
        t.h = l.h;
        t.next = l.next();
        t.rows_G = l.G();
        t.rows_k = l.keeps_key ? l.k(p) : nullptr;
        t.rows_u = l.u(p);
        t.out = p.x.out + l.begin * p.x.out_token + l.h * p.x.out_head;
        const int G_bytes = (open + 1) / 2 * 16;
        qrn_barrier_arrive_expecting(&z.item_full[at], 3 * D * 4 + G_bytes);
        qrn_bulk_copy(t.k, gdn_at(p.x.k, l.begin, l.kh), D * 4, &z.item_full[at]);
        qrn_bulk_copy(t.q, gdn_at(p.x.q, l.begin, l.kh), D * 4, &z.item_full[at]);
        qrn_bulk_copy(t.v, gdn_at(p.x.v, l.begin, l.h), D * 4, &z.item_full[at]);
        if (open) qrn_bulk_copy(t.G, l.G(), G_bytes, &z.item_full[at]);
        return t;
    }

    /* Completes the token that is latest. */
    __device__ void gates(decode_item &t, const gdn_token_head &l) const
    {
        if (qrn_lane()) return;
        t.gate = l.gate;
        t.beta = l.beta;
        qrn_barrier_arrive(&z.item_full[&t - z.item]);
    }

    /* The next stage, when all are done with it; threads may have written there. */
    __device__ int stage()
    {
        const int at = n_stages % STAGES;
        qrn_barrier_wait(&z.empty[at], (n_stages++ / STAGES & 1) ^ 1);
        qrn_fence_async();
        return at;
    }

    __device__ void rows(const float *from, int n)
    {
        const int at = stage();
        if (qrn_lane()) {
            qrn_barrier_arrive(&z.full[at]);
            return;
        }
        qrn_barrier_arrive_expecting(&z.full[at], n * D * 4);
        qrn_bulk_copy(z.stage[at], from, n * D * 4, &z.full[at]);
    }

    /* n keys, turned. */
    __device__ void keys(const float *k, int n)
    {
        const int at = stage(), lane = qrn_lane();
#pragma unroll 8
        for (int s = 0; s < n; s++)
            qrn_copy16_async(z.stage[at] + s * D + gdn_turned(s, lane), k + s * D + 4 * lane, 16);
        qrn_barrier_arrive_after_copies(&z.full[at]);
    }

    static __device__ int rows_of_stage(int open, int s) { return min(open - s, (int)HALF); }

    __device__ void open_rows(const float *x, int open)
    {
        for (int s = 0; s < open; s += HALF) rows(x + s * D, rows_of_stage(open, s));
    }

    /* A ring has room for them. */
    __device__ void keys_and_state(const gdn_token_head &l)
    {
        const int open = l.open();
        const float *k = l.k(p), *S = l.S();
        static_assert(STAGES >= 2 + PIECES, "");
        for (int s = 0; s < open; s += HALF) keys(k + s * D, rows_of_stage(open, s));
        for (int i = 0; i < PIECES; i++) rows(S + i * STAGE, HALF);
    }

    /* has_begun: keys and the state are on their way. */
    __device__ void head(const gdn_token_head &l, bool has_begun)
    {
        const int open = l.open();
        decode_item &t = item(l);
        if (!has_begun) keys_and_state(l);
        gates(t, l);
        open_rows(l.u(p), open);
        if (l.ends()) open_rows(l.k(p), open);
    }

    /* Lane's head among LOOKS of this block from its number `first` on, if there are so many; returns how many. */
    __device__ int find(gdn_token_head &mine, int n_at_edge, int first) const
    {
        const decode_turns turns(z.order, n_at_edge, (int)p.x.sequences.n_seqs, (int)p.x.heads.n_v);
        const decode_turns::turn t = qrn_lane() < LOOKS ? turns.at(first + qrn_lane()) : decode_turns::turn{-1, 0};
        mine = {};
        if (t.s >= 0) mine.find(p, t.s, t.h);
        return __popc(__ballot_sync(QRN_ALL_OF_WARP, t.s >= 0));
    }

    static __device__ __forceinline__ uint64_t of_lane(uint64_t x, int lane)
    {
        return __shfl_sync(QRN_ALL_OF_WARP, (unsigned long long)x, lane);
    }
    static __device__ __forceinline__ gdn_token_head of_lane(const gdn_token_head &l, int lane)
    {
        gdn_token_head x;
        x.begin = (int64_t)of_lane((uint64_t)l.begin, lane);
        x.n = __shfl_sync(QRN_ALL_OF_WARP, l.n, lane);
        x.h = __shfl_sync(QRN_ALL_OF_WARP, l.h, lane);
        x.kh = __shfl_sync(QRN_ALL_OF_WARP, l.kh, lane);
        x.position = __shfl_sync(QRN_ALL_OF_WARP, l.position, lane);
        x.state = of_lane(l.state, lane);
        x.next_state = of_lane(l.next_state, lane);
        x.own_rows = of_lane(l.own_rows, lane);
        x.gate = __shfl_sync(QRN_ALL_OF_WARP, l.gate, lane);
        x.beta = __shfl_sync(QRN_ALL_OF_WARP, l.beta, lane);
        x.keeps_key = __shfl_sync(QRN_ALL_OF_WARP, (int)l.keeps_key, lane);
        return x;
    }

    __device__ void read()
    {
        gdn_token_head mine;
        bool others = false;
        if (!p.numbers_stay) qrn_grid_waits();
        int n_mine = find(mine, 0, 0); /* as they mostly are; meanwhile it is known whether they are */
        z.order.find(p.position, (int)p.x.sequences.n_seqs);
        const int n_at_edge = z.order.n_at_edge;
        for (int first = 0;; first += LOOKS) {
            if (first || n_at_edge) n_mine = find(mine, n_at_edge, first);
            const gdn_token_head next = of_lane(mine, 0); /* nothing, where there is none */
            const bool has_begun = p.settled && first == 0 && next.kind() == ONE_TOKEN;
            if (has_begun) keys_and_state(next);
            qrn_grid_waits();
            mine.find_gates(p); /* a lane without a head has no tokens */
            for (int j = 0; j < n_mine; j++) {
                const gdn_token_head l = of_lane(mine, j);
                const int kind = l.kind();
                if (kind == ONE_TOKEN)
                    head(l, has_begun && j == 0);
                else
                    place(kind);
                others |= kind == OTHER;
            }
            if (n_mine < LOOKS) break;
        }
        if (qrn_lane() == 0) z.leaves_some = others;
        __syncwarp();
        place(NO_MORE);
    }
};

#endif
