/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token of sequences whose heads are up to two for each multiprocessor, d 128: bound by
 * reading S0 (64 KB a head), keys and u (512 bytes an open row).
 *
 * Eight sequences' states are 17 MB, 4 us of memory.  A launch that asks for them when the one before has ended adds
 * what lies between the last byte of that one and its own first, 3 us.  So a block has a head, and multiprocessors have
 * room for the blocks of two launches: most rows of a state are in registers, the others and keys in shared memory.
 * Where states are settled all of that is on its way before the launch's turn, while the one before multiplies; u, which
 * is read last, comes to the second cache by then, and to registers as those of the state are used up.
 *
 * All of it comes by the copy engine, by way of shared memory: loads to registers would stand in the queue of those from
 * shared memory, in which the launch before has its own.
 *
 * From its turn on a launch has 5 us, as long as memory needs for the next one.  What a warp reads of k and q, all lanes
 * the same, takes four clocks for 16 bytes, of which all warps of a multiprocessor have one: so a thread has two columns.
 * Beside them it has an open row's products.
 *
 * With the norm behind what it needs comes with the token's inputs, and a warp norms what comes out. */
#include "backends/cuda/device/gdn_norm.cuh"
#include "backends/cuda/device/gdn_open_edge.cuh"
#include "backends/cuda/device/pipeline.cuh"

enum {
    D = TOKEN_D,
    THREADS = QRN_GDN_HEAD_THREADS,
    HELD = QRN_GDN_HEAD_HELD, /* rows of the state in registers */
    LEFT = D - HELD,          /* and in shared memory */
    PART = LEFT,              /* rows that come to registers at once, by way of shared memory */
    PARTS = HELD / PART,
    RUN = 8,                  /* rows of u that are asked for at once */
    PACE = 8,                 /* clocks from one part of all heads to the next, for each head */
    PITCH = D + 4,            /* of keys: eight rows side by side are in banks of their own */
    FALLBACK = 64             /* columns of a head that no token's block takes */
};

struct __align__(128) head_shared
{
    float S[LEFT * D];            /* then, at the edge, rows of u in two turns */
    float keys[GDN_CHUNK][PITCH]; /* at the edge decayed; before it, v in the last row, then what comes out */
    float k[D], q[D];
    double G[GDN_CHUNK];
    float2 coef[GDN_CHUNK];  /* of open rows, for u and for out */
    float decays[GDN_CHUNK]; /* at the edge: exp(G_C - G_s) */
    float norm_gate[D], norm_weight[D];
    const float *norm_gate_from; /* NULL: none */
    float gate, beta;
    qrn_barrier here[PARTS], fetched, turn[2];
    gdn_token_head head; /* here and not in registers, of which there are few left */
};
static_assert(sizeof(head_shared) <= QRN_GDN_HEAD_BYTES, "");
static_assert(sizeof(step_shared<FALLBACK>) <= QRN_GDN_HEAD_BYTES, "");
static_assert(2 * THREADS == D && THREADS == (int)GDN_CHUNK && HELD % RUN == 0 && HELD % PART == 0, "");
static_assert(PART * (PARTS - 1) == GDN_CHUNK && PART % 4 == 0 && 4 * LEFT == D, "");

/* Two floats, as gdn_load4 has them, if i < n; otherwise x is as before. */
static __device__ __forceinline__ void head_load2_below(float2 &x, const float *p, int i, int n)
{
#ifdef QRN_EMULATED
    if (i < n) x = *(const float2 *)p;
#else
    asm volatile("{\n"
                 ".reg .pred is_there;\n"
                 "setp.lt.s32 is_there, %3, %4;\n"
                 "@is_there ld.global.cg.v2.f32 {%0, %1}, [%2];\n"
                 "}\n"
                 : "+f"(x.x), "+f"(x.y)
                 : "l"(p), "r"(i), "r"(n));
#endif
}

template <class Norm> struct head_block {
    static const bool NORMS = gdn_has_norm<Norm>;

    const qrn_gdn_open_chunk_params &p;
    const Norm &norm;
    head_shared &z;
    const gdn_token_head &l;
    const int tid, warp, lane;
    int open, kind;
    float2 x[HELD]; /* of this thread's columns: rows of the state, then of u */

    __device__ head_block(const qrn_gdn_open_chunk_params &params, const Norm &behind, head_shared &shared)
        : p(params), norm(behind), z(shared), l(shared.head), tid((int)threadIdx.x), warp(qrn_warp()), lane(qrn_lane())
    {
        gdn_token_head found;
        found.find(p, (int)(blockIdx.x / (unsigned)p.x.heads.n_v), (int)(blockIdx.x % (unsigned)p.x.heads.n_v));
        open = found.open();
        kind = found.kind();
        if (tid == 0) {
            z.head = found;
            if (kind == ONE_TOKEN) {
                for (int i = 0; i < PARTS; i++) qrn_barrier_init(&z.here[i], 1);
                for (int i = 0; i < 2; i++) qrn_barrier_init(&z.turn[i], 1);
                qrn_barrier_init(&z.fetched, 1);
            }
            qrn_barriers_are_ready();
        }
        if constexpr (NORMS)
            if (tid == 32) z.norm_gate_from = gdn_row_to_norm(norm, found.begin, found.h).gate;
        __syncthreads();
    }

    __device__ int first_column() const { return 2 * tid; }
    __device__ float *u_columns() const { return l.u(p) + first_column(); }
    __device__ const float *v() const { return z.keys[GDN_CHUNK - 1]; }

    /* Gives copies a pace; where states are not settled it is this launch's turn, and no other one waits for memory. */
    __device__ void wait_until(long long clock) const
    {
#ifndef QRN_EMULATED
        while (p.settled && qrn_clock() < clock) continue;
#else
        (void)clock;
#endif
    }

    /* Where rows PART i .. of the state are on their way to registers: the places of keys, then of the rows that stay. */
    __device__ float *part(int i) const { return i < PARTS - 1 ? z.keys[PART * i] : z.S; }

    /* All of the state and of open rows, u to the second cache. */
    __device__ void fetch()
    {
        const float *S = l.S();
        if (tid == 0) {
            const long long begun = qrn_clock();
            const int G_bytes = (open + 1) / 2 * 16, pace = PACE * (int)gridDim.x;
            for (int i = 0; i < PARTS; i++) {
                wait_until(begun + pace * i);
                qrn_barrier_arrive_expecting(&z.here[i], PART * D * 4);
                qrn_bulk_copy(part(i), S + PART * i * D, PART * D * 4, &z.here[i]);
            }
            qrn_barrier_arrive_expecting(&z.fetched, (int)sizeof z.S + open * D * 4 + G_bytes);
            if (open) qrn_bulk_copy(z.G, l.G(), G_bytes, &z.fetched);
            if (open) qrn_prefetch_bulk(l.u(p), open * D * 4);
        }
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            qrn_barrier_wait(&z.here[i], 0);
            const float *columns = part(i) + first_column();
#pragma unroll
            for (int j = 0; j < PART; j++) x[PART * i + j] = *(const float2 *)(columns + j * D);
            qrn_fence_async();
            __syncthreads();
            if (i < PARTS - 1 && tid / PART == i && tid < open)
                qrn_bulk_copy(z.keys[tid], l.k(p) + tid * D, D * 4, &z.fetched);
            if (i == PARTS - 1 && tid == 0) qrn_bulk_copy(z.S, S + HELD * D, (int)sizeof z.S, &z.fetched);
        }
    }

    /* The token's k, q, v and gates; and all that was fetched. */
    __device__ void take_inputs() const
    {
        if (warp == 0) {
            qrn_copy16_async(z.k + 4 * lane, gdn_at(p.x.k, l.begin, l.kh) + 4 * lane, 16);
            qrn_copy16_async(z.q + 4 * lane, gdn_at(p.x.q, l.begin, l.kh) + 4 * lane, 16);
        } else {
            qrn_copy16_async(z.keys[GDN_CHUNK - 1] + 4 * lane, gdn_at(p.x.v, l.begin, l.h) + 4 * lane, 16);
            if (lane == 0) qrn_copy4_async(&z.gate, gdn_at(p.x.g, l.begin, l.h));
            if (lane == 1) qrn_copy4_async(&z.beta, gdn_at(p.x.beta, l.begin, l.h));
        }
        if constexpr (NORMS) {
            if (warp == 0 && norm.weight)
                qrn_copy16_async(z.norm_weight + 4 * lane, (const float *)(uintptr_t)norm.weight + 4 * lane, 16);
            if (warp == 1 && z.norm_gate_from)
                qrn_copy16_async(z.norm_gate + 4 * lane, z.norm_gate_from + 4 * lane, 16);
        }
        qrn_copies_commit();
        qrn_copies_wait<0>();
        qrn_barrier_wait(&z.fetched, 0);
        __syncthreads();
    }

    /* Products with k and q: of two columns, and of a key. */
    struct sums {
        two_sums column[2] = {}, row = {};

        __device__ void add(const head_shared &z, const float *key, int i, const float2 (&c)[4])
        {
            const float4 k = *(const float4 *)(z.k + i), q = *(const float4 *)(z.q + i);
            gdn_add_four(column[0], k, q, make_float4(c[0].x, c[1].x, c[2].x, c[3].x));
            gdn_add_four(column[1], k, q, make_float4(c[0].y, c[1].y, c[2].y, c[3].y));
            gdn_add_four(row, k, q, *(const float4 *)(key + i));
        }
    };
    /* A row that is not open has the token's key. */
    __device__ sums products()
    {
        const float *u = u_columns(), *S = z.S + first_column(), *key = tid < open ? z.keys[tid] : z.k;
        sums s;
        qrn_hold(u);
#pragma unroll
        for (int first = 0; first < HELD; first += RUN) {
#pragma unroll
            for (int i = first; i < first + RUN; i += 4) s.add(z, key, i, {x[i], x[i + 1], x[i + 2], x[i + 3]});
#pragma unroll
            for (int i = first; i < first + RUN; i++)
                if (i < GDN_CHUNK - 1) head_load2_below(x[i], u + i * D, i, open);
        }
#pragma unroll 2
        for (int i = 0; i < LEFT; i += 4) {
            float2 c[4];
#pragma unroll
            for (int j = 0; j < 4; j++) c[j] = *(const float2 *)(S + (i + j) * D);
            s.add(z, key, HELD + i, c);
        }
        return s;
    }

    /* u of the columns, and what comes out. */
    __device__ void columns(const two_sums (&sum)[2], double G)
    {
        const float decay = qrn_exp((float)G);
        float a[2], b[2], *out = p.x.out + l.begin * p.x.out_token + l.h * p.x.out_head + first_column();
#pragma unroll
        for (int c = 0; c < 2; c++) a[c] = fmaf(-decay, sum[c].k, v()[first_column() + c]), b[c] = decay * sum[c].q;
#pragma unroll
        for (int first = 0; first < GDN_CHUNK; first += RUN) {
            if (first >= open) break;
#pragma unroll
            for (int s = first; s < first + RUN; s++) {
                if (s >= open) continue;
                const float2 c = z.coef[s];
                a[0] = fmaf(c.x, x[s].x, a[0]), b[0] = fmaf(c.y, x[s].x, b[0]);
                a[1] = fmaf(c.x, x[s].y, a[1]), b[1] = fmaf(c.y, x[s].y, b[1]);
            }
        }
        const float2 u = make_float2(z.beta * a[0], z.beta * a[1]);
        const float own = z.coef[open].y;
        *(float2 *)(u_columns() + open * D) = u;
        const float2 made = make_float2(p.scale * fmaf(own, u.x, b[0]), p.scale * fmaf(own, u.y, b[1]));
        if constexpr (NORMS) *(float2 *)(z.keys[GDN_CHUNK - 1] + first_column()) = made;
        if (stores_out()) out[0] = made.x, out[1] = made.y;
    }
    /* What comes out may be where the norm's result goes. */
    __device__ bool stores_out() const
    {
        if constexpr (NORMS) return norm.out.data != (uint64_t)(uintptr_t)p.x.out;
        return true;
    }

    /* When all columns are out. */
    __device__ void norm_head() const
    {
        __syncthreads();
        if (warp) return;
        const norm_row row = gdn_row_to_norm(norm, l.begin, l.h);
        norm_part<1, 1> s, weight, gate;
        s.load(v(), D);
        if (norm.weight) weight.load(z.norm_weight, D);
        if (row.gate) gate.load(z.norm_gate, D);
        norm_whole_row<false>(norm, row, D, s, weight, gate, nullptr);
    }

    /* After it was fetched. */
    __device__ void token()
    {
        take_inputs();
        const sums s = products();
        const double G = (open ? z.G[open - 1] : 0.0) + (double)z.gate;
        if (tid <= open) {
            const float w = gdn_decay(G, tid < open ? z.G[tid] : G);
            z.coef[tid] = make_float2(-(w * s.row.k), w * s.row.q);
        }
        __syncthreads();
        columns(s.column, G);
        if constexpr (NORMS) norm_head();
        if (tid == 0) l.G()[open] = G;
        if (warp == 1 && l.keeps_key) *(float4 *)(l.k(p) + open * D + 4 * lane) = *(const float4 *)(z.k + 4 * lane);
        if (l.next()) edge(G);
    }

    /* Of the edge: rows of a thread, and of u at a time; rows that come ahead, and while others are stored. */
    enum { ROWS = 16, HALF = ROWS / 2, QUARTER = D / 4, TURN = LEFT / 2, TURNS = GDN_CHUNK / TURN, EARLY = 4 };
    typedef gdn_edge_row<ROWS, QUARTER> edge_row;

    /* The new state, half of its rows at a time: half a warp has ROWS of them, a lane four columns in either half of the
     * head's.  So many products at once are as many as there are registers for.  First the half of which the last quarter
     * is in shared memory, where u comes then, TURN rows at a time; meanwhile a quarter of the other half is on its way. */
    __device__ void edge(double G)
    {
        const float decay = qrn_exp((float)G);
        const int column = 4 * (lane % 16), first = HALF * (tid / 16);
        const float *S = l.S() + first * D + column;
        float *to = l.next() + first * D + column;
        gdn_edge_columns made[ROWS], ahead[HALF], early[EARLY];
#pragma unroll
        for (int i = 0; i < HALF; i++) made[HALF + i].take(z.S + (first + i) * D + column);
        qrn_fence_async();
        qrn_fence_async_global();
        z.decays[tid] = gdn_decay(G, tid < GDN_CHUNK - 1 ? z.G[tid] : G);
        __syncthreads();
        edge_turn(0);
        edge_turn(1);
#pragma unroll
        for (int i = 0; i < HALF; i++) made[i].load(S + (2 * QUARTER + i) * D);
#pragma unroll
        for (int i = 0; i < HALF; i++) ahead[i].load(S + i * D);
        decay_keys();
        __syncthreads();
        edge_half(made, decay, 0, 2 * QUARTER + first, column);
#pragma unroll
        for (int i = 0; i < EARLY; i++) early[i].load(S + (QUARTER + i) * D);
        edge_store(made, to + 2 * QUARTER * D);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            made[i] = ahead[i];
            if (i < EARLY) made[HALF + i] = early[i];
            else made[HALF + i].load(S + (QUARTER + i) * D);
        }
        edge_half(made, decay, 1, first, column);
        edge_store(made, to);
    }
    static __device__ __forceinline__ void edge_store(const gdn_edge_columns (&made)[ROWS], float *to)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) made[i].store(to + (i / HALF * QUARTER + i % HALF) * D);
    }
    /* Decays rows of the state, HALF of them from `row` on and as many a quarter further, and adds what open rows do. */
    __device__ __forceinline__ void edge_half(gdn_edge_columns (&made)[ROWS], float decay, int half, int row, int column)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) made[i].decay(decay);
#pragma unroll 1
        for (int i = 0; i < TURNS; i++) {
            const int turn = TURNS * half + i;
            qrn_barrier_wait(&z.turn[turn % 2], turn / 2 % 2);
            edge_rows(made, z.keys[TURN * i] + row, z.S + turn % 2 * TURN * D + column);
            if (turn + 2 >= 2 * TURNS) continue;
            qrn_fence_async();
            __syncthreads();
            edge_turn(turn + 2);
        }
    }
    /* TURN open rows, of which each is asked for a row ahead, before the one there is multiplied. */
    static __device__ __forceinline__ void edge_rows(gdn_edge_columns (&made)[ROWS], const float *key, const float *u)
    {
        edge_row open[2];
        open[0].take(key, u);
#pragma unroll 1
        for (int s = 0; s < TURN; s += 2) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                key += PITCH, u += D;
                if (s + j + 1 < TURN) open[1 - j].take(key, u); /* behind the last one other rows may be on their way */
                __syncwarp(); /* so that a compiler does not ask for it later */
                open[j].add_to(made);
            }
        }
    }
    /* Begins to copy rows of u. */
    __device__ void edge_turn(int turn)
    {
        if (tid != 0) return;
        qrn_barrier_arrive_expecting(&z.turn[turn % 2], TURN * D * 4);
        qrn_bulk_copy(z.S + turn % 2 * TURN * D, l.u(p) + turn % TURNS * TURN * D, TURN * D * 4, &z.turn[turn % 2]);
    }
    __device__ void decay_keys()
    {
#pragma unroll 4
        for (int s = warp; s < GDN_CHUNK; s += THREADS / 32) {
            const float4 k = *(const float4 *)((s == GDN_CHUNK - 1 ? z.k : z.keys[s]) + 4 * lane);
            const float w = z.decays[s];
            *(float4 *)(z.keys[s] + 4 * lane) = make_float4(w * k.x, w * k.y, w * k.z, w * k.w);
        }
    }
};

/* What no block of a token takes. */
static __device__ __noinline__ void head_other(const qrn_gdn_open_chunk_params &p, char *shared)
{
    for (int slice = 0; slice < D / FALLBACK; slice++) {
        __syncthreads();
        const int64_t item = (int64_t)blockIdx.x * (D / FALLBACK) + slice;
        step_block<FALLBACK, THREADS>(p, *(step_shared<FALLBACK> *)shared, item).work();
    }
}

template <class Norm> static __device__ __forceinline__ void head(const qrn_gdn_open_chunk_params &p, const Norm &norm)
{
    QRN_DYNAMIC_SHARED(char, shared);
    const bool has_head = (int)blockIdx.x < (int)(p.x.sequences.n_seqs * p.x.heads.n_v);
    if (!p.numbers_stay || !has_head) qrn_grid_waits();
    if (!has_head) return; /* it kept a place meanwhile, where else a third launch's block would be */
    head_block<Norm> x(p, norm, *(head_shared *)shared);
    if (!p.settled || x.kind != ONE_TOKEN) qrn_grid_waits();
    if (x.kind == ONE_TOKEN) {
        x.fetch();
        qrn_grid_waits();
        x.token();
    } else if (x.kind == OTHER) {
        const gdn_token_head l = x.l; /* others have its place */
        head_other(p, shared);
        if constexpr (gdn_has_norm<Norm>) {
            __syncthreads();
            gdn_norm_others(norm, l.begin, l.n, l.h, 1);
        }
    }
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_head, THREADS, 2 * QRN_GDN_HEAD_AT_ONCE, qrn_gdn_open_chunk_params)
{
    head(p, gdn_no_norm());
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_head_norm, THREADS, 2 * QRN_GDN_HEAD_AT_ONCE, qrn_gdn_open_norm_params)
{
    head(p.chunk, p.norm);
}
