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
 * A lane of the warp that reads has the tables and gates of one of the block's next 32 heads.  Before
 * its turn comes it has the first ones' tables, and where states are settled the first state.  To ask the second
 * cache for more then takes longer than it saves: launches before are bound by memory too.  Sequences of other than one token, and
 * addresses that are not aligned to 16, are left to the end, where gdn_open_step.cuh has them. */
#include "backends/cuda/device/gdn_open_token.cuh"
#include "backends/cuda/device/pipeline.cuh"

enum {
    D = TOKEN_D,
    HALF = GDN_CHUNK / 2, /* rows of a stage */
    STAGE = HALF * D,     /* floats */
    STAGES = QRN_GDN_DECODE_STAGES,
    ITEMS = QRN_GDN_DECODE_ITEMS,
    PIECES = D / HALF,
    LOOKS = 32,                   /* heads whose tables are looked at together, by a warp */
    EDGE_STAGES = 2 + 2 * PIECES, /* u once more, keys and S0 once more */
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
    float gate, beta;
    int kind, open;
};

struct __align__(16) decode_shared {
    float stage[STAGES][STAGE];
    decode_item item[ITEMS];
    float2 coef[2][GDN_CHUNK]; /* of open rows, for u and for out; of one head after the other */
    float to_edge[GDN_CHUNK];  /* exp(G_C - G_s) */
    qrn_barrier full[STAGES], empty[STAGES], item_full[ITEMS], item_empty[ITEMS];
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

/* --- the warp that reads --- */

/* All lanes go through it together. */
struct decode_reader {
    const qrn_gdn_open_chunk_params &p;
    decode_shared &z;
    int n_stages, n_items; /* so far */

    __device__ decode_reader(const qrn_gdn_open_chunk_params &params, decode_shared &shared)
        : p(params), z(shared), n_stages(0), n_items(0)
    {
    }

    /* A head's token, as soon as there is a place for it, which is returned; without gates. */
    __device__ decode_item &item(const gdn_token_head &l)
    {
        const int at = n_items % ITEMS, open = l.open(), kind = l.kind();
        decode_item &t = z.item[at];
        qrn_barrier_wait(&z.item_empty[at], (n_items++ / ITEMS & 1) ^ 1);
        if (qrn_lane()) return t;
        t.kind = kind;
        if (kind != ONE_TOKEN) {
            qrn_barrier_arrive(&z.item_full[at]);
            qrn_barrier_arrive(&z.item_full[at]);
            return t;
        }
        t.open = open;
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

    /* At the edge: HALF elements of all keys but the token's. */
    __device__ void piece_of_keys(const float *k)
    {
        enum { CHUNKS = HALF / 4 };
        const int at = stage(), c = qrn_lane() % CHUNKS * 4;
#pragma unroll 8
        for (int s = qrn_lane() / CHUNKS; s < GDN_CHUNK - 1; s += 32 / CHUNKS)
            qrn_copy16_async(z.stage[at] + s * HALF + c, k + s * D + c, 16);
        qrn_barrier_arrive_after_copies(&z.full[at]);
    }

    static __device__ int rows_of_stage(int open, int s) { return min(open - s, (int)HALF); }

    __device__ void open_u(const float *u, int open)
    {
        for (int s = 0; s < open; s += HALF) rows(u + s * D, rows_of_stage(open, s));
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
        const float *k = l.k(p), *S = l.S(), *u = l.u(p);
        decode_item &t = item(l);
        if (!has_begun) keys_and_state(l);
        gates(t, l);
        open_u(u, open);
        for (int i = 0; l.ends() && i < PIECES; i++) {
            if (i == PIECES / 2) open_u(u, open);
            piece_of_keys(k + i * HALF);
            rows(S + i * STAGE, HALF);
        }
    }

    /* Lane's head among LOOKS that this block takes in turn, if there are so many; returns how
     * many. */
    __device__ int find(gdn_token_head &mine, int first, int n) const
    {
        const int i = first + qrn_lane() * (int)gridDim.x, n_v = (int)p.x.heads.n_v,
                  left = n - first, step = (int)gridDim.x;
        if (i < n && qrn_lane() < LOOKS)
            mine.find(p, (int)((unsigned)i / (unsigned)n_v), (int)((unsigned)i % (unsigned)n_v));
        const int n_mine = (left + step - 1) / step;
        return n_mine < LOOKS ? n_mine : LOOKS;
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

    /* Returns whether heads are left to the end. */
    __device__ bool read(int n)
    {
        bool others = false;
        if (!p.numbers_stay) qrn_grid_waits();
        for (int first = (int)blockIdx.x; first < n; first += LOOKS * (int)gridDim.x) {
            gdn_token_head mine = {};
            const int n_mine = find(mine, first, n);
            const gdn_token_head next = of_lane(mine, 0);
            const bool has_begun = p.settled && first == (int)blockIdx.x && next.kind() == ONE_TOKEN;
            if (has_begun) keys_and_state(next);
            qrn_grid_waits();
            mine.find_gates(p); /* a lane without a head has no tokens */
            for (int j = 0; j < n_mine; j++) {
                const gdn_token_head l = of_lane(mine, j);
                const int kind = l.kind();
                if (kind == ONE_TOKEN)
                    head(l, has_begun && j == 0);
                else
                    item(l);
                others |= kind == OTHER;
            }
        }
        return others;
    }
};

/* --- the warps that work --- */

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
