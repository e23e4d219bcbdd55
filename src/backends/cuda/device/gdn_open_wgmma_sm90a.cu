/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, what goes from chunk to chunk: with P = S0 k and pieces from
 * gdn_open_prepare_sm90a.cu
 *     rhs = v V - p P;  u = inverse rhs;  out = q (S0 q) + scores u;  S = exp(G_C) S + k (edge u)
 *
 * All is turned: a warpgroup has 64 columns of d_v as rows, of the state, P, u and out alike.  So
 * each result is in registers as the next product wants its first operand, the state among them,
 * and nothing but k, q, v and pieces comes to shared memory: no warpgroup waits for another.  64
 * columns take 1024 cycles of the tensor cores a chunk (S0 k 256, S0 q 256, u 128, scores u 128, S
 * 256), between which about 350 are latency and conversions that nothing fills: 0.8 us a chunk
 * where a multiprocessor has one warpgroup, 1.2 us where it has two, which fill each other's gaps
 * and read k, q and pieces once: 66 KB a chunk for 128 columns against 115.  What is read at 4.2
 * TB/s bounds 64 heads of 16 keys' by 0.9 us. Registers: state 64 and 32 rounded, sums 32 each of P
 * or u and out, operands 32.
 *
 * Where few heads leave multiprocessors idle, parts of a sequence are worked on at once: first what
 * each part but the last does to a state (its own, from 0 but in the first part; and its transfer:
 * the same from the identity with v = 0), a warpgroup each, two a block; then they are joined
 * (gdn_open_join_sm90a.cu), then the walk takes all parts with their true states.
 */
#include "backends/cuda/device/gdn_wgmma.cuh"

enum { COLUMNS = 64, PIECE = sizeof(qrn_gdn_piece) };

template <int n_groups, bool makes_out> struct stage {
    char k[TILE];
    __align__(1024) qrn_gdn_piece piece;
    __align__(1024) char v[n_groups * SQUARE];
    char q[makes_out ? TILE : 1024];
};

template <int n_groups, bool makes_out> struct wgmma_shared {
    enum { STAGES = makes_out ? QRN_GDN_WGMMA_STAGES : QRN_GDN_WGMMA_PART_STAGES };
    stage<n_groups, makes_out> stages[STAGES];
    char out[makes_out ? n_groups * SQUARE : 1024];
};

/* makes_out: what is sought is out; else a part's own state, or its transfer. */
template <int n_groups, bool makes_out> struct walker {
    typedef wgmma_shared<n_groups, makes_out> shared;
    typedef stage<n_groups, makes_out> stage_of;
    const qrn_gdn_wgmma_params &p;
    shared &z;
    qrn_barrier *full, *empty;
    const gdn_sequence &sequence;
    int h, kh, first; /* first: this warpgroup's column */
    int n_v;          /* squares of v, of these columns on: of the first warpgroups */
    const qrn_gdn_piece *pieces;
    int64_t piece_step;
    int first_wave, last_wave; /* the latter is not this part's */

    __device__ void load(int wave, int at)
    {
        stage_of &s = z.stages[at];
        gdn_rows_of_chunk rows;
        rows.find(sequence, wave);
        qrn_barrier_arrive_expecting(&full[at],
                                     TILE + PIECE + (makes_out ? TILE : 0) + n_v * SQUARE);
        gdn_load_tile(s.k, &p.k, rows.first, kh, &full[at]);
        if (makes_out) gdn_load_tile(s.q, &p.q, rows.first, kh, &full[at]);
        qrn_bulk_copy(&s.piece, pieces + wave * piece_step, PIECE, &full[at]);
        for (int i = 0; i < n_v; i++)
            qrn_tensor_copy(s.v + i * SQUARE, &p.v, first + COLUMNS * i, rows.first, h, &full[at]);
    }

    /* Where rows of this lane are: column of d_v of c[4 j + 0, 1]. */
    static __device__ __forceinline__ int lane_row()
    {
        return qrn_warp() % 4 * 16 + qrn_lane() / 4;
    }

    /* Matrices of this head. */
    __device__ void load_state(float (&S)[64], const float *state) const
    {
        const float *from = state + first + lane_row();
#pragma unroll
        for (int i = 0; i < 64; i++)
            S[i] = from[(i / 4 * 8 + qrn_lane() % 4 * 2 + i % 2) * WIDTH + i % 4 / 2 * 8];
    }
    __device__ void store_state(const float (&S)[64], float *state) const
    {
        float *to = state + first + lane_row();
#pragma unroll
        for (int i = 0; i < 64; i++)
            to[(i / 4 * 8 + qrn_lane() % 4 * 2 + i % 2) * WIDTH + i % 4 / 2 * 8] = S[i];
    }

    /* Its identity: what a transfer begins with. */
    __device__ void identity(float (&S)[64]) const
    {
#pragma unroll
        for (int i = 0; i < 64; i++)
            S[i] = i / 4 * 8 + qrn_lane() % 4 * 2 + i % 2 == first + lane_row() + i % 4 / 2 * 8;
    }

    /* Open rows of earlier calls: k, and u [64][d_v] in the place of v. */
    __device__ void place_open_rows(stage_of &s, const gdn_segment &g, const float *u)
    {
        gdn_place_open_keys(s.k, g.k + (int64_t)kh * WIDTH * GDN_CHUNK, g.open, 128 * n_groups);
        const int mine = threadIdx.x % 128;
        char *v = s.v + threadIdx.x / 128 * SQUARE;
#pragma unroll 1
        for (int i = mine; i < g.open * COLUMNS; i += 128)
            *gdn_in_tile(v, i / COLUMNS, i % COLUMNS) =
                qrn_bf16_of_float(u[i / COLUMNS * WIDTH + first + i % COLUMNS]);
        qrn_fence_async();
        qrn_sync_some(1, 128 * n_groups);
    }

    /* x = v V - p x, as operands; rows from end on are not there. */
    template <bool whole>
    __device__ __forceinline__ void right_side(uint32_t (&to)[4][4], const float (&x)[32],
                                               const stage_of &s, int end) const
    {
        const char *v = s.v + threadIdx.x / 128 * SQUARE;
        const int lane = qrn_lane(), t = lane % 4 * 2;
        const int token = lane / 16 * 8 + lane % 8,
                  at = (qrn_warp() % 4 * 16 + lane / 8 % 2 * 8) * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t values[4];
            qrn_ldmatrix4_transposed(values, v + qrn_in_atom(16 * i + token, at));
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const int r = 16 * i + m / 2 * 8 + t;
                const float2 b = *(const float2 *)(s.piece.gates.v + r),
                             c = *(const float2 *)(s.piece.gates.p + r);
                const float *of = x + 4 * (2 * i + m / 2) + m % 2 * 2;
                float y0 = fmaf(b.x, qrn_float_of_bf16((uint16_t)values[m]), -(c.x * of[0]));
                float y1 = fmaf(b.y, __uint_as_float(values[m] & 0xffff0000u), -(c.y * of[1]));
                if (!whole) {
                    y0 = r < end ? y0 : 0.0f;
                    y1 = r + 1 < end ? y1 : 0.0f;
                }
                to[i][m] = qrn_bf16_pair(y0, y1);
            }
        }
    }

    /* Rounded, and that times a factor of each column (a token). */
    static __device__ __forceinline__ void operands(uint32_t (&to)[4][4], const float (&x)[32])
    {
#pragma unroll
        for (int i = 0; i < 16; i++) to[i / 4][i % 4] = qrn_bf16_pair(x[2 * i], x[2 * i + 1]);
    }
    static __device__ __forceinline__ void operands(uint32_t (&to)[4][4], const float (&x)[32],
                                                    const float *factors)
    {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float2 f = *(const float2 *)(factors + i / 2 * 8 + qrn_lane() % 4 * 2);
            to[i / 4][i % 4] = qrn_bf16_pair(f.x * x[2 * i], f.y * x[2 * i + 1]);
        }
    }
    static __device__ __forceinline__ void scale(float (&x)[32], const float *factors)
    {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 f = *(const float2 *)(factors + 8 * j + qrn_lane() % 4 * 2);
            x[4 * j + 0] *= f.x, x[4 * j + 1] *= f.y;
            x[4 * j + 2] *= f.x, x[4 * j + 3] *= f.y;
        }
    }
    static __device__ __forceinline__ void round_state(uint32_t (&to)[8][4], const float (&S)[64])
    {
#pragma unroll
        for (int i = 0; i < 32; i++) to[i / 4][i % 4] = qrn_bf16_pair(S[2 * i], S[2 * i + 1]);
    }

    /* x = S0 tile^T. */
    static __device__ __forceinline__ void by_state(float (&x)[32], const uint32_t (&S)[8][4],
                                                    const char *tile)
    {
        const uint64_t b = qrn_tile_by_k(tile);
#pragma unroll
        for (int i = 0; i < 8; i++)
            qrn_wgmma_bf16<64, QRN_BY_K>(x, S[i], qrn_tile_moved(b, i / 4 * SQUARE + i % 4 * 32),
                                         i > 0);
    }
    /* x (+)= a square^T. */
    static __device__ __forceinline__ void by_square(float (&x)[32], const uint32_t (&a)[4][4],
                                                     const void *square, bool adds)
    {
        const uint64_t b = qrn_tile_by_k(square);
#pragma unroll
        for (int i = 0; i < 4; i++)
            qrn_wgmma_bf16<64, QRN_BY_K>(x, a[i], qrn_tile_moved(b, i * 32), adds || i > 0);
    }
    /* S += a k. */
    static __device__ __forceinline__ void by_keys(float (&S)[64], const uint32_t (&a)[4][4],
                                                   const char *k)
    {
        const uint64_t b = qrn_tile_by_rows(k, SQUARE);
#pragma unroll
        for (int i = 0; i < 4; i++)
            qrn_wgmma_bf16<128, QRN_BY_ROWS>(S, a[i], qrn_tile_moved(b, i * 16 * QRN_LINE), 1);
    }

    /* Rows of out.  Those of bf16 go by shared memory, where a warp has 32 bytes of each token,
     * to be sent later: ptxas lets sums wait for no other product. */
    __device__ void put_out(const float (&x)[32], const gdn_rows_of_chunk &rows)
    {
        const int lane = qrn_lane();
        if (p.out_is_bf16) {
            char *mine = z.out + threadIdx.x / 128 * SQUARE;
            const int token = lane / 16 * 8 + lane % 8,
                      at = (qrn_warp() % 4 * 16 + lane / 8 % 2 * 8) * 2;
            __syncwarp(); /* the last ones are sent */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t pairs[4];
#pragma unroll
                for (int m = 0; m < 4; m++)
                    pairs[m] = qrn_bf16_pair(x[8 * i + 2 * m], x[8 * i + 2 * m + 1]);
                qrn_stmatrix4_transposed(mine + qrn_in_atom(16 * i + token, at), pairs);
            }
            __syncwarp();
            return;
        }
        if (p.out_is_aligned) {
            put_floats(x, rows);
            return;
        }
        float *to = p.c.x.out + h * p.c.x.out_head + first + lane_row();
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (r >= rows.open && r < rows.end)
                to[(rows.first + r) * p.c.x.out_token + i % 4 / 2 * 8] = x[i];
        }
    }

    /* Rows of f32: a warp's 16 columns of 16 tokens at a time by shared memory, where tokens are 20
     * floats apart: no bank conflicts. */
    __device__ __forceinline__ void put_floats(const float (&x)[32], const gdn_rows_of_chunk &rows)
    {
        enum { APART = 20 };
        static_assert(4 * 16 * APART * 4 <= SQUARE, "");
        const int lane = qrn_lane();
        float *mine = (float *)(z.out + threadIdx.x / 128 * SQUARE) + qrn_warp() % 4 * 16 * APART;
        float *const put = mine + lane % 4 * 2 * APART + lane / 4;
        const float *const get = mine + lane / 4 * APART + lane % 4 * 4;
        float *to = p.c.x.out + h * p.c.x.out_head + first + qrn_warp() % 4 * 16 + lane % 4 * 4;
#pragma unroll
        for (int part = 0; part < 4; part++) {
            __syncwarp(); /* the last ones are read */
#pragma unroll
            for (int i = 0; i < 8; i++)
                put[(i / 4 * 8 + i % 2) * APART + i % 4 / 2 * 8] = x[8 * part + i];
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int r = 16 * part + 8 * i + lane / 4;
                const float4 v = *(const float4 *)(get + i * 8 * APART);
                if (r >= rows.open && r < rows.end)
                    *(float4 *)(to + (rows.first + r) * p.c.x.out_token) = v;
            }
        }
    }
    __device__ void send_out(const gdn_rows_of_chunk &rows) const
    {
        if (!p.out_is_bf16) return;
        const int half = qrn_lane() % 2, column = qrn_warp() % 4 * 16 + half * 8;
        const char *mine = z.out + threadIdx.x / 128 * SQUARE;
        uint16_t *to = (uint16_t *)p.c.x.out + h * p.c.x.out_head + first + column;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = 16 * i + qrn_lane() / 2;
            const uint4 v = *(const uint4 *)(mine + qrn_in_atom(r, 2 * column));
            if (r >= rows.open && r < rows.end)
                *(uint4 *)(to + (rows.first + r) * p.c.x.out_token) = v;
        }
    }

    __device__ void store_u(const float (&x)[32], const gdn_segment &g,
                            const gdn_rows_of_chunk &rows) const
    {
        float *to = g.u + (int64_t)h * GDN_CHUNK * WIDTH + first + lane_row();
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 4 * 8 + qrn_lane() % 4 * 2 + i % 2;
            if (r >= rows.open && r < rows.end) to[r * WIDTH + i % 4 / 2 * 8] = x[i];
        }
    }

    /* By one lane of the last warps. */
    __device__ void load_all()
    {
        qrn_ring<shared::STAGES> ring;
        for (int wave = first_wave; wave < last_wave; wave++, ring.next()) {
            qrn_barrier_wait(&empty[ring.stage], ring.parity ^ 1);
            load(wave, ring.stage);
        }
    }

    /* From S on; u: of open rows.  Without out S is what is wanted. */
    __device__ void walk(float (&S)[64], const float *u)
    {
        const int n_waves = sequence.n_segments();
        float x[32], out[32];
        uint32_t rounded[8][4], a[4][4], b[4][4];
        gdn_rows_of_chunk rows, before = {};
        gdn_segment g;
        qrn_ring<shared::STAGES> ring;
        int last_stage = 0;
        g.find(p.c, sequence, 0);
        round_state(rounded, S);
        for (int wave = first_wave; wave < last_wave; wave++, ring.next()) {
            stage_of &s = z.stages[ring.stage];
            rows.find(sequence, wave);
            const bool closes = rows.end == GDN_CHUNK, keeps = makes_out && wave >= n_waves - 2;
            if (keeps) g.find(p.c, sequence, wave);
            qrn_barrier_wait(&full[ring.stage], ring.parity);
            if (rows.open) place_open_rows(s, g, u);
            __syncwarp();
            qrn_wgmma_hold(rounded);
            qrn_wgmma_fence();
            by_state(x, rounded, s.k);
            qrn_wgmma_commit();
            if (wave > first_wave) {
                qrn_barrier_arrive(&empty[last_stage]);
                if (makes_out) send_out(before);
            }
            if constexpr (makes_out) {
                qrn_wgmma_hold(out);
                qrn_wgmma_fence();
                by_state(out, rounded, s.q);
            }
            qrn_wgmma_commit();
            qrn_wgmma_wait<1>();
            qrn_wgmma_hold(x);
            if (closes)
                right_side<true>(a, x, s, GDN_CHUNK);
            else
                right_side<false>(a, x, s, rows.end);
            qrn_wgmma_hold(a);
            qrn_wgmma_hold(x);
            qrn_wgmma_fence();
            by_square(x, a, s.piece.inverse, false);
            qrn_wgmma_commit();
            qrn_wgmma_wait<1>();
            if constexpr (makes_out) {
                qrn_wgmma_hold(out);
                scale(out, s.piece.gates.q);
            }
            const float decay = s.piece.gates.last[0];
#pragma unroll
            for (int i = 0; i < 64; i++) S[i] *= decay;
            qrn_wgmma_wait<0>();
            qrn_wgmma_hold(x);
            operands(b, x, s.piece.gates.edge);
            if constexpr (makes_out) {
                operands(a, x);
                qrn_wgmma_hold(a);
                qrn_wgmma_hold(out);
            }
            qrn_wgmma_hold(S);
            qrn_wgmma_hold(b);
            qrn_wgmma_fence();
            if constexpr (makes_out) by_square(out, a, s.piece.scores, true);
            qrn_wgmma_commit();
            by_keys(S, b, s.k); /* of no use if the chunk stays open */
            qrn_wgmma_commit();
            qrn_wgmma_wait<1>();
            if constexpr (makes_out) {
                qrn_wgmma_hold(out);
                put_out(out, rows);
            }
            if (keeps) store_u(x, g, rows);
            qrn_wgmma_wait<0>(); /* ptxas lets no product go on into the next round */
            qrn_wgmma_hold(S);
            round_state(rounded, S);
            if (keeps && closes) store_state(S, g.next + (int64_t)h * WIDTH * WIDTH);
            before = rows;
            last_stage = ring.stage;
        }
        if (makes_out && first_wave < last_wave) send_out(before);
    }
};

/* A sequence whose position is out of range. */
static __device__ void fill_nan(const qrn_gdn_wgmma_params &p, const gdn_sequence &q, int h,
                                int first, int width)
{
    if (!p.out_is_bf16) {
        gdn_fill_nan(p.c, q, h, first, width);
        return;
    }
    uint16_t *to = (uint16_t *)p.c.x.out + h * p.c.x.out_head + first;
    for (int64_t i = threadIdx.x; i < q.n * width; i += blockDim.x)
        to[(q.begin + i / width) * p.c.x.out_token + i % width] = 0x7fc0;
}

/* What a block works on.  Of the first part, which begins with the true state, a block has all
 * columns of its own state, of the others half of them and of their transfer. */
template <int n_groups> struct place {
    int64_t item; /* of all sequences' value heads */
    int part, n_parts, first;
    bool transfers;
    __device__ place(const qrn_gdn_wgmma_params &p, bool makes_out)
    {
        enum { SLICES = WIDTH / (COLUMNS * n_groups) };
        const int mine = makes_out ? SLICES * p.n_parts : 2 * (p.n_parts - 1) - 1;
        item = (int)blockIdx.x / mine;
        int at = (int)blockIdx.x - (int)item * mine, slices = SLICES;
        if (!makes_out) at++, slices = 2;
        n_parts = p.n_parts;
        part = at / slices;
        transfers = !makes_out && part > 0;
        first = makes_out || transfers ? at % slices * COLUMNS * (makes_out ? n_groups : 1) : 0;
    }
};

/* The first part's start, before others write there. */
static __device__ void keep_start(qrn_gdn_part &part, const float *state, const float *u,
                                  int n_open)
{
    for (int i = threadIdx.x; i < WIDTH * WIDTH / 4; i += blockDim.x) {
        ((float4 *)part.transfer)[i] = gdn_four_at(state + 4 * i);
        if (i < n_open * WIDTH / 4) ((float4 *)part.u)[i] = gdn_four_at(u + 4 * i);
    }
}

template <int n_groups, bool makes_out>
static __device__ __forceinline__ void walk(const qrn_gdn_wgmma_params &p, char *memory)
{
    typedef wgmma_shared<n_groups, makes_out> shared;
    enum { STAGES = shared::STAGES, SHARES_REGISTERS = n_groups > 1 && makes_out };
    __shared__ qrn_barrier full[STAGES], empty[STAGES];
    __shared__ gdn_sequence sequence;
    const place<n_groups> at(p, makes_out);
    const qrn_gdn_heads &heads = p.c.x.heads;
    const int64_t ratio = heads.n_v / heads.n_k, n_items = p.n_k_heads * ratio,
                  s = at.item / n_items, mine = at.item - s * n_items;
    const int kh = (int)(p.first_k_head + mine / ratio),
              h = (int)gdn_value_head(heads, kh, mine % ratio);
    shared &z = *(shared *)qrn_align_shared(memory, QRN_ATOM);
    if (threadIdx.x == 0) {
        sequence.find(p.c, s);
        for (int i = 0; i < STAGES; i++) {
            qrn_barrier_init(&full[i], 1);
            qrn_barrier_init(&empty[i], 128 * n_groups);
        }
        qrn_barriers_are_ready();
    }
    if (at.transfers) /* their v is 0 */
        for (int n = 0; n < STAGES; n++)
            for (int i = threadIdx.x; i < SQUARE / 16; i += blockDim.x)
                ((uint4 *)(z.stages[n].v + (n_groups - 1) * SQUARE))[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (sequence.unknown && makes_out && at.part == 0)
        fill_nan(p, sequence, h, at.first, COLUMNS * n_groups);
    if (sequence.unknown || sequence.n == 0) return;
    const int n_waves = sequence.n_segments(), each = (n_waves + at.n_parts - 1) / at.n_parts,
              first_wave = min(at.part * each, n_waves),
              last_wave = min(first_wave + each, n_waves);
    if (makes_out && first_wave == last_wave) return;
    gdn_segment g;
    g.find(p.c, sequence, 0);
    const float *state = g.state + (int64_t)h * WIDTH * WIDTH,
                *u = g.u + (int64_t)h * GDN_CHUNK * WIDTH;
    qrn_gdn_part *const parts = p.parts + at.item * (at.n_parts - 1);
    if (!makes_out && at.part == 0) keep_start(parts[0], state, u, g.open);
    if (makes_out && at.n_parts > 1) {
        state = at.part ? parts[at.part - 1].own : parts[0].transfer;
        u = parts[0].u;
    }
    const int group = (int)(threadIdx.x / 128) % n_groups;
    const bool transfers = at.transfers && group > 0;
    walker<n_groups, makes_out> w{p,
                                  z,
                                  full,
                                  empty,
                                  sequence,
                                  h,
                                  kh,
                                  at.first + (at.transfers ? 0 : group * COLUMNS),
                                  at.transfers ? 1 : n_groups,
                                  p.pieces + gdn_first_number(sequence) * n_items + mine,
                                  n_items,
                                  first_wave,
                                  last_wave};
    if (threadIdx.x < 128 * n_groups) {
        if (SHARES_REGISTERS) qrn_registers_more<240>();
        float S[64] = {};
        if (transfers)
            w.identity(S);
        else if (makes_out || at.part == 0)
            w.load_state(S, state);
        w.walk(S, u);
        if (!makes_out)
            w.store_state(S, transfers ? parts[at.part].transfer : parts[at.part].own);
    } else {
        if (SHARES_REGISTERS) qrn_registers_fewer<24>();
        if (threadIdx.x == 128 * n_groups) w.load_all();
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_walk_64, 160, 1, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    walk<1, true>(p, memory);
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_walk_128, 384, 1, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    walk<2, true>(p, memory);
}

/* What the parts but the last one of a sequence do to its state. */
QRN_DEVICE_FUNCTION(qrn_gdn_open_parts, 288, 1, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    walk<2, false>(p, memory);
}
