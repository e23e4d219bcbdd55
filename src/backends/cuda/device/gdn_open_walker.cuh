/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, a warpgroup on its way from chunk to chunk: with P = S0 k and pieces from
 * gdn_open_prepare_sm90a.cu
 *     rhs = V - p P;  u = inverse rhs;  out = q (S0 q) + scores u;  S = exp(G_C) S + k (edge u)
 *
 * All is turned: a warpgroup has 64 columns of d_v as rows, of the state, P, u and out alike.  So
 * each result is in registers as the next product wants its first operand, the state among them,
 * and nothing but k, q, v and pieces comes to shared memory: no warpgroup waits for another.  64
 * columns take 1024 cycles of the tensor cores a chunk (S0 k 256, S0 q 256, u 128, scores u 128, S
 * 256).  What one product waits for is done while others run: out of the chunk before is put away
 * beside S0 k, rhs made beside S0 q, the next state rounded beside scores u.
 * Registers: state 64 and 32 rounded, sums 32 each of P or u and out, operands 32, what is read
 * ahead 32.
 */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_WALKER_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_WALKER_CUH

#include "backends/cuda/device/gdn_wgmma.cuh"

enum { COLUMNS = 64, SLICE = SQUARE / 4 };

/* Triangles are whole squares, by slices: what is above their diagonal blocks is 0 from the start. */
template <int n_groups, bool makes_out> struct stage {
    char k[TILE], inverse[SQUARE];
    char scores[makes_out ? SQUARE : 1024];
    char v[n_groups * SQUARE];
    char q[makes_out ? TILE : 1024];
    __align__(1024) qrn_gdn_gates gates;
};

template <int n_groups, bool makes_out> struct wgmma_shared {
    enum { STAGES = makes_out ? QRN_GDN_WGMMA_STAGES : QRN_GDN_WGMMA_PART_STAGES };
    stage<n_groups, makes_out> stages[STAGES];
    char out[makes_out ? n_groups * SQUARE : 1024];
    qrn_barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(wgmma_shared<1, true>) + 1024 <= QRN_GDN_WALK_BYTES(1), "");
static_assert(sizeof(wgmma_shared<2, true>) + 1024 <= QRN_GDN_WALK_BYTES(2), "");
static_assert(sizeof(wgmma_shared<2, false>) + 1024 <= QRN_GDN_PARTS_BYTES, "");

/* makes_out: what is sought is out; else a part's own state, or its transfer. */
template <int n_groups, bool makes_out> struct walker {
    typedef wgmma_shared<n_groups, makes_out> shared;
    typedef stage<n_groups, makes_out> stage_of;
    const qrn_gdn_wgmma_params &p;
    shared &z;
    const gdn_sequence &sequence;
    int h, kh, first; /* first: this warpgroup's column */
    int n_v;          /* squares of v, of these columns on: of the first warpgroups */
    const qrn_gdn_piece *pieces;
    int64_t piece_step;
    int first_wave, last_wave; /* the latter is not this part's */

    static __device__ void load_triangle(char *to, const uint8_t *from, qrn_barrier *full)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            qrn_bulk_copy(to + i * (SLICE + 512), from + gdn_slice(i) + i * 512, SLICE - i * 512,
                          full);
    }
    __device__ void load(int wave, const gdn_rows_of_chunk &rows, int at)
    {
        stage_of &s = z.stages[at];
        qrn_barrier_arrive_expecting(&z.full[at], (makes_out ? 2 : 1) * (TILE + QRN_GDN_SLICES) +
                                                      (int)sizeof(qrn_gdn_gates) + n_v * SQUARE);
        if (rows.open)
            qrn_bulk_copy(s.k, p.open_keys + (sequence.s * p.n_k_heads + kh - p.first_k_head) * TILE,
                          TILE, &z.full[at]);
        else
            gdn_load_tile(s.k, &p.k, rows.first, kh, &z.full[at]);
        if (makes_out) gdn_load_tile(s.q, &p.q, rows.first, kh, &z.full[at]);
        const qrn_gdn_piece &piece = pieces[wave * piece_step];
        load_triangle(s.inverse, piece.inverse, &z.full[at]);
        if (makes_out) load_triangle(s.scores, piece.scores, &z.full[at]);
        qrn_bulk_copy(&s.gates, &piece.gates, sizeof piece.gates, &z.full[at]);
        for (int i = 0; i < n_v; i++)
            qrn_tensor_copy(s.v + i * SQUARE, &p.v, first + COLUMNS * i, rows.first, h, &z.full[at]);
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

    /* Open rows of earlier calls: u [64][d_v] in the place of v. */
    __device__ void place_open_rows(stage_of &s, const float *u, int open)
    {
        const int mine = threadIdx.x % 128;
        char *v = s.v + threadIdx.x / 128 * SQUARE;
#pragma unroll 1
        for (int i = mine; i < open * COLUMNS; i += 128)
            *gdn_in_tile(v, i / COLUMNS, i % COLUMNS) =
                qrn_bf16_of_float(u[i / COLUMNS * WIDTH + first + i % COLUMNS]);
        qrn_fence_async();
        qrn_sync_some(1, 128 * n_groups);
    }

    /* Numbers of this lane's tokens, 8 j + 2 (lane % 4) and the next one. */
    static __device__ __forceinline__ void load_pairs(float2 (&to)[8], const float *of_tokens)
    {
#pragma unroll
        for (int j = 0; j < 8; j++)
            to[j] = *(const float2 *)(of_tokens + 8 * j + qrn_lane() % 4 * 2);
    }

    /* Where fragments of this lane begin in v and in out, of which a warp has 16 columns of all tokens:
     * tokens lane / 16 * 8 + lane % 8. */
    static __device__ int fragment_place()
    {
        const int lane = qrn_lane(), token = lane / 16 * 8 + lane % 8,
                  at = (qrn_warp() % 4 * 16 + lane / 8 % 2 * 8) * 2;
        return (int)threadIdx.x / 128 * SQUARE + qrn_in_atom(token, at);
    }

    /* What the right side is made of besides P. */
    struct right_side {
        uint32_t v[4][4];
        float2 factors[8];
        __device__ __forceinline__ void load(const char *fragment)
        {
#pragma unroll
            for (int i = 0; i < 4; i++)
                qrn_ldmatrix4_transposed(v[i], fragment + i * 16 * QRN_LINE);
        }

        /* V - p P as operands; rows from end on are not there. */
        template <bool whole>
        __device__ __forceinline__ void make(uint32_t (&to)[4][4], const float (&P)[32],
                                             int end) const
        {
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const float2 f = factors[i / 2];
                const uint32_t pair = v[i / 4][i % 4];
                float y0 = fmaf(-f.x, P[2 * i], qrn_float_of_bf16((uint16_t)pair));
                float y1 = fmaf(-f.y, P[2 * i + 1], __uint_as_float(pair & 0xffff0000u));
                if (!whole) {
                    const int r = i / 2 * 8 + qrn_lane() % 4 * 2;
                    y0 = r < end ? y0 : 0.0f;
                    y1 = r + 1 < end ? y1 : 0.0f;
                }
                to[i / 4][i % 4] = qrn_bf16_pair(y0, y1);
            }
        }
    };

    /* Rounded, and that times a factor of each column (a token). */
    static __device__ __forceinline__ void operands(uint32_t (&to)[4][4], const float (&x)[32])
    {
#pragma unroll
        for (int i = 0; i < 16; i++) to[i / 4][i % 4] = qrn_bf16_pair(x[2 * i], x[2 * i + 1]);
    }
    static __device__ __forceinline__ void operands(uint32_t (&to)[4][4], const float (&x)[32],
                                                    const float2 (&factors)[8])
    {
#pragma unroll
        for (int i = 0; i < 16; i++)
            to[i / 4][i % 4] =
                qrn_bf16_pair(factors[i / 2].x * x[2 * i], factors[i / 2].y * x[2 * i + 1]);
    }
    static __device__ __forceinline__ void scale(float (&x)[32], const float2 (&factors)[8])
    {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            x[2 * i] *= factors[i / 2].x;
            x[2 * i + 1] *= factors[i / 2].y;
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
    /* x (+)= a triangle^T. */
    static __device__ __forceinline__ void by_triangle(float (&x)[32], const uint32_t (&a)[4][4],
                                                       const void *triangle, bool adds)
    {
        const uint64_t b = qrn_slice_by_k(triangle);
#pragma unroll
        for (int i = 0; i < 4; i++)
            qrn_wgmma_bf16<64, QRN_BY_K>(x, a[i], qrn_tile_moved(b, i * SLICE), adds || i > 0);
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

    /* Out of a chunk on its way to rows of bf16, by shared memory, where a warpgroup has 128 bytes of
     * each token.  Of these a warp stores 16 tokens', whole lines: half lines cost the second cache
     * as much. */
    struct out_rows {
        int place;       /* of this lane's row and 16 bytes of it */
        int row;         /* of the first four */
        int barrier = 2 + (int)threadIdx.x / 128; /* of the warpgroup */
        uint16_t *to;    /* there in the tensor, of the chunk that is stored next */
        int open = 0, n = 0; /* of its rows, that are the call's */
        __device__ out_rows(const walker &w, int first_row)
        {
            const int column = qrn_lane() % 8 * 8;
            row = qrn_warp() % 4 * 16 + qrn_lane() / 8;
            place = (int)threadIdx.x / 128 * SQUARE + qrn_in_atom(row, 2 * column);
            to = (uint16_t *)w.p.c.x.out + w.h * w.p.c.x.out_head + w.first + column +
                 (first_row - GDN_CHUNK + row) * w.p.c.x.out_token;
            qrn_hold(place), qrn_hold(barrier);
        }
        /* All of the warpgroup, which has read what was there. */
        __device__ __forceinline__ void take(char *fragment, const uint32_t (&x)[4][4])
        {
            qrn_sync_some(barrier, 128);
#pragma unroll
            for (int i = 0; i < 4; i++)
                qrn_stmatrix4_transposed(fragment + i * 16 * QRN_LINE, x[i]);
        }
        __device__ __forceinline__ void store(const char *memory, int64_t step) const
        {
            uint4 rows[4];
            qrn_sync_some(barrier, 128);
#pragma unroll
            for (int i = 0; i < 4; i++)
                rows[i] = *(const uint4 *)(memory + (place ^ i % 2 * 64) + 4 * i * QRN_LINE);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if ((unsigned)(row + 4 * i - open) < (unsigned)n)
                    *(uint4 *)(to + 4 * i * step) = rows[i];
        }
        __device__ __forceinline__ void go_on(const gdn_rows_of_chunk &rows, int64_t step)
        {
            to += GDN_CHUNK * step;
            open = rows.open;
            n = rows.end - rows.open;
        }
    };

    __device__ __forceinline__ void put_unaligned(const float (&x)[32],
                                                  const gdn_rows_of_chunk &rows) const
    {
        float *to = p.c.x.out + h * p.c.x.out_head + first + lane_row();
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 4 * 8 + qrn_lane() % 4 * 2 + i % 2;
            if (r >= rows.open && r < rows.end)
                to[(rows.first + r) * p.c.x.out_token + i % 4 / 2 * 8] = x[i];
        }
    }

    /* Rows of f32: a warp's 16 columns of 16 tokens at a time by shared memory, where tokens are 20
     * floats apart: no bank conflicts. */
    __device__ __forceinline__ void put_aligned(const float (&x)[32], const gdn_rows_of_chunk &rows)
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
    __device__ __forceinline__ void put_floats(const float (&x)[32], const gdn_rows_of_chunk &rows)
    {
        if (p.out_is_aligned)
            put_aligned(x, rows);
        else
            put_unaligned(x, rows);
    }

    /* By one lane of the last warps. */
    __device__ void load_all()
    {
        const gdn_rows_of_sequence all(sequence);
        qrn_ring<shared::STAGES> ring;
        for (int wave = first_wave; wave < last_wave; wave++, ring.next()) {
            qrn_barrier_wait(&z.empty[ring.stage], ring.parity ^ 1);
            load(wave, all.of(wave), ring.stage);
        }
    }

    /* What a chunk leaves: u of its rows, and the state if it closes. */
    __device__ void keep_u(const float (&u)[32], int wave, const gdn_rows_of_chunk &rows) const
    {
        gdn_segment g;
        g.find(p.c, sequence, wave);
        float *to = g.u + (int64_t)h * GDN_CHUNK * WIDTH + first + lane_row();
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = i / 4 * 8 + qrn_lane() % 4 * 2 + i % 2;
            if (r >= rows.open && r < rows.end) to[r * WIDTH + i % 4 / 2 * 8] = u[i];
        }
    }
    __device__ void keep_state(const float (&S)[64], int wave, const gdn_rows_of_chunk &rows) const
    {
        gdn_segment g;
        if (rows.end < GDN_CHUNK) return;
        g.find(p.c, sequence, wave);
        store_state(S, g.next + (int64_t)h * WIDTH * WIDTH);
    }

    /* Four elements of a token's key. */
    __device__ __forceinline__ float4 key_at(int64_t token, int e) const
    {
        const int64_t at = token * p.c.x.k.token + kh * p.c.x.k.head + e;
        if (!p.out_is_bf16) return gdn_four_at(p.c.x.k.data + at);
        const uint2 x = *(const uint2 *)((const uint16_t *)p.c.x.k.data + at);
        return make_float4(qrn_float_of_bf16((uint16_t)x.x), __uint_as_float(x.x & 0xffff0000u),
                           qrn_float_of_bf16((uint16_t)x.y), __uint_as_float(x.y & 0xffff0000u));
    }

    /* What stays of the sequence's last two chunks besides u, when nobody reads the old ones any more;
     * the older chunk first, as both may be one memory, of which a thread has the same elements.  Of
     * the key head's keys a block has as many as others of its value heads and columns, the first
     * columns' block G. */
    __device__ void leave() const
    {
        enum { SLICES = WIDTH / (COLUMNS * n_groups) };
        const qrn_gdn_heads &heads = p.c.x.heads;
        const gdn_rows_of_sequence all(sequence);
        const int ratio = p.ratio, n_shares = ratio * SLICES,
                  nth = heads.tiled ? (h - kh) / (int)heads.n_k : h - kh * ratio,
                  slice = first / (COLUMNS * n_groups), share = nth * SLICES + slice;
        const int n_waves = sequence.n_segments(), e = 4 * qrn_lane();
        if (last_wave < n_waves) return;
        for (int wave = max(n_waves - 2, 0); wave < n_waves; wave++) {
            const gdn_rows_of_chunk rows = all.of(wave);
            gdn_segment g;
            g.find(p.c, sequence, wave);
            float *const keys = g.k + (int64_t)kh * GDN_CHUNK * WIDTH + e;
#pragma unroll 4
            for (int r = share + n_shares * qrn_warp(); r < GDN_CHUNK; r += 4 * n_groups * n_shares) {
                if (r < rows.open || r >= rows.end) continue;
                const float4 x = key_at(rows.first + r, e);
                *(float2 *)(keys + r * WIDTH) = make_float2(x.x, x.y);
                *(float2 *)(keys + r * WIDTH + 2) = make_float2(x.z, x.w);
            }
            if (slice > 0 || qrn_warp() > 0) continue;
            double G[2], *const to = g.G + (int64_t)h * GDN_CHUNK;
            gdn_sum_gates(G, p.c, rows, to, h);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int r = 2 * qrn_lane() + i;
                if (r >= rows.open && r < rows.end) to[r] = G[i];
            }
        }
    }

    /* From S on; u: of open rows.  Without out S is what is wanted. */
    __device__ void walk(float (&S)[64], const float *u)
    {
        const gdn_rows_of_sequence all(sequence);
        const int keeps_from = sequence.n_segments() - 2;
        shared *memory = &z;
        int fragment = fragment_place();
        float x[32], out[32];
        uint32_t rounded[8][4], a[4][4], b[4][4], halves[4][4] = {}; /* the last: of out before */
        right_side right;
        out_rows put(*this, all.of(first_wave).first);
        qrn_ring<shared::STAGES> ring;
        if (first_wave >= last_wave) return;
        qrn_hold_shared(memory);
        qrn_hold(fragment);
        qrn_barrier_wait(&memory->full[0], 0);
        if (first_wave == 0 && all.open) place_open_rows(memory->stages[0], u, all.open);
        right.load(memory->stages[0].v + fragment);
        round_state(rounded, S);
        for (int wave = first_wave; wave < last_wave; wave++) {
            const int at = ring.stage;
            stage_of &s = *qrn_uniform_shared(&memory->stages[at]);
            const gdn_rows_of_chunk rows = all.of(wave);
            __syncwarp();
            qrn_wgmma_hold(rounded);
            qrn_wgmma_fence();
            by_state(x, rounded, s.k);
            qrn_wgmma_commit();
            if constexpr (makes_out) {
                qrn_wgmma_hold(out);
                qrn_wgmma_fence();
                by_state(out, rounded, s.q);
                qrn_wgmma_commit();
                if (p.out_is_bf16) put.take(memory->out + fragment, halves);
            }
            load_pairs(right.factors, s.gates.p);
            const float decay = s.gates.last[0];
            qrn_wgmma_wait<makes_out>();
            qrn_wgmma_hold(x);
            if (rows.end == GDN_CHUNK)
                right.template make<true>(a, x, GDN_CHUNK);
            else
                right.template make<false>(a, x, rows.end);
            qrn_wgmma_hold(a);
            qrn_wgmma_hold(x);
            qrn_wgmma_fence();
            by_triangle(x, a, s.inverse, false);
            qrn_wgmma_commit();
            float2 factors[8];
            load_pairs(factors, s.gates.edge);
#pragma unroll
            for (int i = 0; i < 64; i++) S[i] *= decay;
            qrn_wgmma_wait<0>();
            qrn_wgmma_hold(x);
            if (makes_out && wave >= keeps_from) keep_u(x, wave, rows);
            operands(b, x, factors);
            qrn_wgmma_hold(S);
            qrn_wgmma_hold(b);
            qrn_wgmma_fence();
            by_keys(S, b, s.k); /* of no use if the chunk stays open */
            qrn_wgmma_commit();
            if constexpr (makes_out) {
                load_pairs(factors, s.gates.q);
                operands(a, x);
                qrn_wgmma_hold(out);
                scale(out, factors);
                qrn_wgmma_hold(a);
                qrn_wgmma_hold(out);
                qrn_wgmma_fence();
                by_triangle(out, a, s.scores, true);
                qrn_wgmma_commit();
                if (p.out_is_bf16)
                    put.store(memory->out, p.c.x.out_token);
            }
            ring.next();
            if (wave + 1 < last_wave) {
                qrn_barrier_wait(&memory->full[ring.stage], ring.parity);
                right.load(memory->stages[ring.stage].v + fragment);
            }
            qrn_wgmma_wait<makes_out>();
            qrn_wgmma_hold(S);
            round_state(rounded, S);
            qrn_wgmma_wait<0>(); /* ptxas lets no product go on into the next round */
            qrn_barrier_arrive(&memory->empty[at]);
            if constexpr (makes_out) {
                qrn_wgmma_hold(out);
                operands(halves, out);
                put.go_on(rows, p.c.x.out_token);
                if (!p.out_is_bf16) put_floats(out, rows);
                if (wave >= keeps_from) keep_state(S, wave, rows);
            }
        }
        if (!makes_out || !p.out_is_bf16) return;
        put.take(memory->out + fragment, halves);
        put.store(memory->out, p.c.x.out_token);
    }
};

#endif
