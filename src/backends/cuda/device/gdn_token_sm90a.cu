/* SPDX-License-Identifier: MIT
 * Joints: ssm_conv_history, l2_norm of q and k, gdn_gates and gdn_open_chunk, one token of few sequences;
 * with the product of floats before, which makes a and b; with the rms_norm behind.
 *
 * Blocks are those of gdn_open_few.cuh; each works out what it needs while the state is on its way: a
 * warp k, one q, one its columns of v and beta, one g.  Of q and k, which the blocks of several value
 * heads work out, those of the head that keeps the key write memory, their first slice.  None reads
 * what another writes: a new row's place in a ring is not one of the three that are read (the host
 * sees to it that rings have four).  Before its turn a block looks at the tables, fetches the state where that is settled
 * or asks for it, and has the weights; rows of the product and of its x are in shared memory whole, if there is room.
 *
 * For rms_norm a head's blocks are a cluster: each sends its columns to the first one, where a warp has weight and gate
 * by then.
 *
 * A sequence of other than one token, or whose tables cannot be followed in whole pieces, is left to its
 * first block, which does one op after the other. */
#include "backends/cuda/device/gdn_gate_rows.cuh"
#include "backends/cuda/device/gdn_norm.cuh"
#include "backends/cuda/device/gdn_open_few.cuh"

enum { V_WARP, K_WARP, Q_WARP, GATE_WARP, NORM_WARP = Q_WARP };

/* Element `row` of token t of the product, by a warp; stores it if asked to. */
static __device__ __noinline__ float gate_row(const qrn_gdn_gate_rows &p, int64_t t, int row, bool stores)
{
    const float x = gdn_gate_dot<8>(p, t, row);
    if (stores) gdn_store_gate_row(p, t, row, x);
    return x;
}

/* The same row in shared memory, of whole pieces. */
static __device__ __forceinline__ float staged_dot(const qrn_gdn_gate_rows &p, const uint8_t *row, const float *staged_x)
{
    const qrn_weight_row w = {row, nullptr, nullptr, p.dtype};
    const float *const x[1] = {staged_x};
    const int n_pieces = (int)p.k / QRN_PIECE;
    float acc[1] = {0.0f};
    add_pieces<1, 8>(w, x, 1, n_pieces, acc);
    return qrn_warp_sum(acc[0]);
}

/* Past phase 0: a and b of the product and x are in shared memory; what is read of the state is; k and q are. */
struct token_barriers {
    qrn_barrier staged, fetched, kq_there;
};

struct few_joined {
    /* The warps of k and q go on while v's and the gates' still have rows of the product. */
    typedef few_layout<true> layout;
    enum { COLUMN_WARP = K_WARP, ROWS_WARP = Q_WARP, ROWS = 2, FETCH_WARP = V_WARP };

    const qrn_gdn_inputs_params &p;
    const qrn_gdn_gate_rows &rows;
    qrn_barrier &staged, &fetched, &kq_there;
    float *const staged_x; /* then rows of a and b */
    const uint64_t ring;
    bool convolves, writes;
    /* Of this lane's four channels: the token's, the rows before (NULL: none), where the row is kept. */
    const float *x_from, *before_from[CONV_TAPS - 1];
    float *ring_to, *out_to;
    int64_t c; /* the first of them */
    of_f32::words x[1];
    filter<of_f32> f;
    float a_scale, dt_bias, made; /* made: a or b, where it is in memory */

    __device__ few_joined(const qrn_gdn_token_params &params, char *staged_rows, token_barriers &barriers)
        : p(params.inputs), rows(params.rows), staged(barriers.staged), fetched(barriers.fetched),
          kq_there(barriers.kq_there), staged_x((float *)staged_rows),
          ring(params.inputs.conv.history[blockIdx.y * params.inputs.conv.history_stride])
    {
    }

    /* First of all; each by the warp that copies.  All threads meet (begins) before others wait there. */
    static __device__ void come(token_barriers &barriers)
    {
        if (threadIdx.x == 32 * FETCH_WARP) qrn_barrier_init(&barriers.fetched, 1);
        if (threadIdx.x == 32 * GATE_WARP) qrn_barrier_init(&barriers.staged, 2);
        if (threadIdx.x == 32 * K_WARP) qrn_barrier_init(&barriers.kq_there, 2 * QRN_WARP_ARRIVALS);
        qrn_barriers_are_ready();
        __syncwarp();
    }

    /* A ring may lie anywhere. */
    __device__ __forceinline__ int kind_of(const few_block &b) const
    {
        const int kind = b.kind();
        return kind == ONE_TOKEN && (ring + (uint64_t)p.conv.history_offset) % 16 ? (int)OTHER : kind;
    }

    __device__ void find_places(const few_block &b)
    {
        const int n_k = (int)b.p.x.heads.n_k;
        const int head = b.warp == V_WARP   ? 2 * n_k + b.l.h
                         : b.warp == K_WARP ? n_k + b.l.kh
                                            : b.l.kh;
        const bool is_v = b.warp == V_WARP;
        c = (int64_t)head * D + (is_v ? b.slice * W : 0) + 4 * b.lane;
        convolves = is_v ? 4 * b.lane < W : b.warp != GATE_WARP;
        writes = is_v || (b.slice == 0 && b.l.keeps_key);
        const qrn_tile t = {(int64_t)blockIdx.y, b.l.begin, b.l.begin + 1, 0, 1, 0, true};
        const rings<of_f32> rows_of(p.conv, t, c, ring, b.l.position);
        x_from = (const float *)p.conv.x + b.l.begin * p.conv.x_stride[1] + c;
        out_to = (float *)p.conv.out + b.l.begin * p.conv.out_stride[1] + c;
        ring_to = rows_of.row_before(0) + c;
        qrn_hold(x_from);
#pragma unroll
        for (int k = 0; k < CONV_TAPS - 1; k++) {
            before_from[k] = rows_of.row_before(CONV_TAPS - 1 - k);
            if (before_from[k]) before_from[k] += c;
            qrn_hold(before_from[k]);
        }
    }

    static __device__ __forceinline__ of_f32::words four_of(const float *from)
    {
        return from ? vector_at(from) : of_f32::words{};
    }

    /* Asks for lines of the rows before. */
    __device__ void ask(const few_block &b) const
    {
        enum { LINE = 32 };
        const int n_lines = (b.warp == V_WARP ? (int)W : (int)D) / LINE;
        if (b.warp == GATE_WARP || b.lane >= (CONV_TAPS - 1) * n_lines) return;
        const int k = b.lane / n_lines;
        const float *row = k == 0 ? before_from[0] : k == 1 ? before_from[1] : before_from[2];
        if (row) qrn_prefetch(row + b.lane % n_lines * LINE - 4 * b.lane);
    }

    /* Before anything is read that other launches may write: rows of the product, which take longest. */
    __device__ void stage(const few_block &b)
    {
        if (b.warp != GATE_WARP || !rows.w) return;
        if (!rows.staged_bytes) {
            gdn_ask_gate_weights(rows, rows.a + b.l.h);
            gdn_ask_gate_weights(rows, rows.b + b.l.h);
        } else if (qrn_elected()) {
            qrn_barrier_arrive_expecting(&staged, 2 * rows.staged_bytes);
            qrn_bulk_copy(staged_row(0), gdn_gate_weights(rows, rows.a + b.l.h), rows.staged_bytes, &staged);
            qrn_bulk_copy(staged_row(1), gdn_gate_weights(rows, rows.b + b.l.h), rows.staged_bytes, &staged);
        }
    }

    /* And all others. */
    __device__ void load_weights(const few_block &b)
    {
        if (convolves) f.load_weights(p.conv, c);
        if (b.warp != GATE_WARP) return;
        a_scale = p.gates.a_scale[b.l.h];
        dt_bias = p.gates.dt_bias[b.l.h];
    }

    __device__ void fetch(const qrn_tensor_map &lines, few_block &b) const
    {
        if (b.warp == FETCH_WARP && qrn_elected()) b.fetch_boxes(lines, fetched);
    }

    __device__ uint8_t *staged_row(int i) const
    {
        return (uint8_t *)(staged_x + rows.k) + i * rows.staged_bytes;
    }

    __device__ void begin(few_block &b)
    {
        const qrn_gdn_gates_params &g = p.gates;
        if (rows.staged_bytes) {
            if (b.warp == GATE_WARP && qrn_elected()) {
                qrn_barrier_arrive_expecting(&staged, 4 * (int)rows.k);
                qrn_bulk_copy(staged_x, (const void *)(uintptr_t)(rows.x + (uint64_t)(b.l.begin * rows.x_row)),
                              4 * (int)rows.k, &staged);
            }
        } else if (!rows.w) {
            if (b.warp == GATE_WARP) made = g.a[b.l.begin * g.a_stride + b.l.h];
            if (b.warp == V_WARP) made = g.b[b.l.begin * g.b_stride + b.l.h];
        }
        if (!convolves) return;
        x[0] = four_of(x_from);
#pragma unroll
        for (int k = 0; k < CONV_TAPS - 1; k++) f.before[k] = four_of(before_from[k]);
    }

    /* a (0) or b (1) of the token and head. */
    __device__ float made_of(const few_block &b, int which) const
    {
        const int row = (which ? rows.b : rows.a) + b.l.h;
        if (!rows.w) return made;
        if (!rows.staged_bytes) return gate_row(rows, b.l.begin, row, b.slice == 0);
        qrn_barrier_wait(&staged, 0);
        const float acc = staged_dot(rows, staged_row(which), staged_x);
        if (b.slice == 0) gdn_store_gate_row(rows, b.l.begin, row, acc);
        return acc;
    }

    __device__ void find_gate(few_block &b) const
    {
        const qrn_gdn_gates_params &g = p.gates;
        const float gate = gdn_gate(a_scale, dt_bias, made_of(b, 0));
        if (b.lane) return;
        b.z.gate = gate;
        if (b.slice == 0) g.g[b.l.begin * g.g_stride + b.l.h] = gate;
    }

    __device__ void find_beta(few_block &b) const
    {
        const qrn_gdn_gates_params &g = p.gates;
        const float beta = qrn_sigmoid(made_of(b, 1));
        if (b.lane) return;
        b.z.beta = beta;
        if (b.slice == 0) g.beta[b.l.begin * g.beta_stride + b.l.h] = beta;
    }

    __device__ void token(few_block &b)
    {
        b.load_G<few_joined>(); /* while what was asked for is on its way */
        if (b.warp == GATE_WARP) {
            find_gate(b);
            return;
        }
        float *to = b.warp == V_WARP ? b.z.v : b.warp == K_WARP ? b.z.k : b.z.q;
        if (convolves) {
            float y[1][of_f32::V];
            f.sum(x, 0, y[0]);
            gdn_normed(p, c)(y);
            *(float4 *)(to + 4 * b.lane) = make_float4(y[0][0], y[0][1], y[0][2], y[0][3]);
            if (writes) {
                *(float4 *)out_to = *(const float4 *)(to + 4 * b.lane);
                *(uint4 *)ring_to = make_uint4(x[0].w[0], x[0].w[1], x[0].w[2], x[0].w[3]);
            }
        }
        __syncwarp();
        if (b.warp == V_WARP) {
            find_beta(b);
            return;
        }
        qrn_barrier_arrive_warp(&kq_there);
        qrn_barrier_wait(&kq_there, 0);
        qrn_barrier_wait(&fetched, 0);
    }
    __device__ void meet(const few_block &) const { __syncthreads(); }

    __device__ float v(const few_block &b) const { return b.z.v[b.lane]; }

    __device__ float gate(const few_block &b) const
    {
        return b.z.gate;
    }
    __device__ float beta(const few_block &b) const
    {
        return b.z.beta;
    }
    __device__ void out(const few_block &b, float o) const { b.store_out(o); }
    __device__ void end(const few_block &) const {}

    __device__ void begins() const { __syncthreads(); } /* all threads, before the launch's turn */
    /* When the steps before have done a sequence of other than one token. */
    __device__ void end_others(const qrn_gdn_open_chunk_params &) const {}
};

/* In the first block of a head, whose barrier counts the columns that have come. */
struct __align__(128) norm_shared
{
    float row[D];
    qrn_barrier whole;
};
static_assert(sizeof(norm_shared) <= QRN_GDN_TOKEN_NORM_BYTES && QRN_GDN_FEW_BYTES % 128 == 0, "");

struct few_normed : few_joined {
    const qrn_rms_norm_params &norm;
    norm_shared &z;
    const bool in_place; /* rms_norm writes over what it reads */
    norm_part<1, 1> norm_weight, norm_gate;

    static __device__ void come(norm_shared &z, token_barriers &barriers)
    {
        few_joined::come(barriers);
        if (threadIdx.x == 0) {
            qrn_barrier_init(&z.whole, 1);
            qrn_barriers_are_ready();
            qrn_barrier_arrive_expecting(&z.whole, sizeof z.row);
        }
        qrn_cluster_arrive();
    }

    __device__ few_normed(const qrn_gdn_token_norm_params &params, char *shared, token_barriers &barriers)
        : few_joined(params.token, shared + QRN_GDN_FEW_BYTES + QRN_GDN_TOKEN_NORM_BYTES, barriers), norm(params.norm),
          z(*(norm_shared *)(shared + QRN_GDN_FEW_BYTES)),
          in_place(params.norm.out.data == (uint64_t)(uintptr_t)params.token.chunk.x.out)
    {
    }

    __device__ bool has_row(const few_block &b) const { return b.slice == 0 && b.warp == NORM_WARP; }

    __device__ norm_row row_of(const few_block &b) const { return gdn_row_to_norm(norm, b.l.begin, b.l.h); }

    __device__ void load_weights(const few_block &b)
    {
        few_joined::load_weights(b);
        if (has_row(b) && norm.weight) norm_weight.load((const float *)(uintptr_t)norm.weight, D);
    }

    __device__ void begin(few_block &b)
    {
        few_joined::begin(b);
        if (has_row(b) && norm.gate.data) norm_gate.load(row_of(b).gate, D);
    }

    __device__ void out(const few_block &b, float o)
    {
        qrn_send_to_block(z.row + b.slice * W + b.lane, o, &z.whole, 0);
        if (!in_place) b.store_out(o);
    }

    __device__ void end(const few_block &b)
    {
        if (!has_row(b)) return;
        norm_part<1, 1> s;
        norm_row row = row_of(b);
        qrn_hold(row.out), qrn_hold(row.rounded);
        if (norm.gate.data) norm_gate.silu();
        qrn_barrier_wait(&z.whole, 0);
        s.load(z.row, D);
        norm_whole_row<true>(norm, row, D, s, norm_weight, norm_gate, nullptr);
    }

    __device__ void begins() const { qrn_cluster_wait(); }

    __device__ void end_others(const qrn_gdn_open_chunk_params &chunk) const
    {
        int64_t begin, end;
        qrn_sequence(chunk.x.sequences, (int)blockIdx.y, &begin, &end);
        __syncthreads();
        gdn_norm_others(norm, begin, (int)(end - begin), 0, (int)chunk.x.heads.n_v);
    }
};

/* A sequence of any number of tokens; all threads of one block. */
static __device__ __noinline__ void others(const qrn_gdn_token_params &p, char *shared)
{
    const qrn_gdn_inputs_params &in = p.inputs;
    const int s = (int)blockIdx.y, n_heads = (int)p.chunk.x.heads.n_v;
    qrn_tile t = {s, 0, 0, 0, 0, 0, true};
    qrn_sequence(in.conv.sequences, s, &t.begin, &t.end);
    const int n_tokens = (int)(t.end - t.begin);
    for (int64_t c = 4 * threadIdx.x; c < in.conv.n_channels; c += 4 * THREADS) {
#pragma unroll 1
        for (t.first = 0; t.first < n_tokens; t.first += of_f32::ROWS) {
            t.n = min(n_tokens - (int)t.first, (int)of_f32::ROWS);
            const rings<of_f32> memory(in.conv, t, c, in.conv.history[s * in.conv.history_stride], in.conv.position[s]);
            convolve<of_f32>(in.conv, t, c, memory, gdn_normed(in, c));
        }
    }
    for (int i = qrn_warp(); p.rows.w && i < n_tokens * 2 * n_heads; i += THREADS / 32)
        (void)gate_row(p.rows, t.begin + i / (2 * n_heads), i % (2 * n_heads), true);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_tokens * n_heads; i += THREADS)
        gdn_store_gates(in.gates, t.begin + i / n_heads, i % n_heads);
    for (int i = 0; i < n_heads * (D / FALLBACK); i++) {
        __syncthreads();
        few_other(p.chunk, shared, s, i / (D / FALLBACK), i % (D / FALLBACK));
    }
}

template <class Inputs>
static __device__ __forceinline__ void token_or_others(const qrn_gdn_token_params &p, char *shared, Inputs &in)
{
    few_block x(p.chunk, *(few_shared *)shared);
    const int kind = in.kind_of(x); /* all threads say the same */
    if (kind == ONE_TOKEN) {
        if (p.chunk.settled) in.fetch(p.lines, x);
        in.stage(x);
        in.find_places(x);
        in.ask(x);
        if (!p.chunk.settled) x.ask();
        in.load_weights(x);
    }
    in.begins();
    qrn_grid_waits();
    if (!p.chunk.settled && kind == ONE_TOKEN) in.fetch(p.lines, x);
    if (kind == ONE_TOKEN) x.token(in);
    if (kind != OTHER || blockIdx.x) return;
    others(p, shared);
    in.end_others(p.chunk);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_token, 128, 3, qrn_gdn_token_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    char *shared = (char *)qrn_align_shared(memory, QRN_GDN_FEW_ALIGNMENT);
    __shared__ token_barriers barriers;
    few_joined::come(barriers);
    if (!p.early) qrn_grid_waits();
    few_joined in(p, shared + QRN_GDN_FEW_BYTES, barriers);
    token_or_others(p, shared, in);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_token_norm, 128, 3, qrn_gdn_token_norm_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    char *shared = (char *)qrn_align_shared(memory, QRN_GDN_FEW_ALIGNMENT);
    __shared__ token_barriers barriers;
    few_normed::come(*(norm_shared *)(shared + QRN_GDN_FEW_BYTES), barriers);
    if (!p.token.early) qrn_grid_waits();
    few_normed in(p, shared, barriers);
    token_or_others(p.token, shared, in);
}
