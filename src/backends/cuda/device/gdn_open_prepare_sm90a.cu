/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, what can be done for all chunks at once: for each value head the inverse
 * of I + A with A[r][s] = beta_r exp(G_r - G_s) k_r.k_s (s < r), times beta of columns, decayed scores q_r.k_s, gates.
 *
 * A block has a chunk of a key head, or a share of its value heads: k k and k q come once from the
 * tensor cores and stay in registers for all of them. Diagonal blocks of 16 are inverted in float32 by
 * substitution, a warp each; below them, a warp a block column, products of tf32, turned, so that each
 * result is the next one's operand as it is (the inverse is rounded to bf16 in the end).
 *
 * Two value heads go through this side by side, and at each step warps have as much to do as others: of
 * rows a warp has eight of the upper half and the eight that mirror them, of the inverse one block
 * column of the first head and the mirrored one of the second. A chunk of a value head is 11 KiB.
 */
#include "backends/cuda/device/gdn_wgmma.cuh"

enum {
    THREADS = 128,
    WARPS = 4,
    BLOCK = 16 * 16,
    HALF = 8, /* of a block's rows */
    HEADS = QRN_GDN_PREPARE_HEADS
};

/* Blocks of 16 x 16 of a lower triangle, row by row; on the diagonal of -A, then of the inverse; below
 * of -A. What products by mma read is times QRN_TF32_PAIR: all but -A in the diagonal's own 8 x 8. */
struct triangle {
    float blocks[WARPS * (WARPS + 1) / 2][BLOCK];
    float apart[16]; /* two triangles' diagonals have other banks */
    __device__ __forceinline__ float *at(int i, int j) { return blocks[i * (i + 1) / 2 + j]; }
};

/* Where element (r, c) of a block is: mma's fragments meet no bank twice. */
static __device__ __forceinline__ int in_block(int r, int c)
{
    return 16 * r + (c ^ (r & 2) << 2);
}

struct prepare_shared {
    union {
        struct {
            char k[TILE]; /* until they are multiplied */
            union {
                char q[TILE];
                char scores[QRN_GDN_SLICES];
            };
        };
        struct {
            triangle triangles[2]; /* of two value heads */
            __align__(128) char inverse[2][QRN_GDN_SLICES];
        };
    };
    /* Of each value head, of the 16 rows that row r is of: log2 of the decay from the first to r, that
     * decay, the decay from r to the first of the next 16; and from the first of 16 to that of the next. */
    float along[HEADS][GDN_CHUNK], from[HEADS][GDN_CHUNK], to[HEADS][GDN_CHUNK],
        across[HEADS][WARPS], beta[HEADS][GDN_CHUNK];
    gdn_segment before; /* where open rows are */
};
static_assert(sizeof(prepare_shared) + 1024 <= QRN_GDN_PREPARE_BYTES, "");

constexpr double LOG2_E = 1.4426950408889634;

/* Registers are short: what comes of a number that is held (qrn_hold) is worked out for each head. */
struct preparer {
    const qrn_gdn_open_chunk_params &p;
    prepare_shared &z;
    gdn_rows_of_chunk rows;
    int kh;

    /* exp(x). */
    static __device__ __forceinline__ float power(double x)
    {
        return qrn_exp2((float)(x * LOG2_E));
    }

    /* A warp: G and what comes of it of rows 2 lane, 2 lane + 1 of one value head. */
    __device__ void sum_gates(int slot, int h, qrn_gdn_gates &of)
    {
        const int row = 2 * qrn_lane(), first = row / 16 * 8; /* the latter a lane */
        const bool closes = rows.end == GDN_CHUNK;
        double G[2];
        float e[2], beta[2];
        bool mine[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = row + i;
            mine[i] = r >= rows.open && r < rows.end;
            beta[i] = mine[i] ? *gdn_at(p.x.beta, rows.first + r, h) : r < rows.open ? 1.0f : 0.0f;
        }
        gdn_sum_gates(G, p, rows, z.before.G + h * GDN_CHUNK, h);
        const double last = __shfl_sync(QRN_ALL_OF_WARP, G[1], 31),
                     begin = __shfl_sync(QRN_ALL_OF_WARP, G[0], first),
                     next = __shfl_sync(QRN_ALL_OF_WARP, G[0], (first + 8) % 32);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = row + i;
            const float along = (float)((G[i] - begin) * LOG2_E);
            e[i] = power(G[i]);
            z.beta[slot][r] = beta[i];
            z.along[slot][r] = along;
            z.from[slot][r] = qrn_exp2(along);
            z.to[slot][r] = power(next - G[i]);
            if (i == 0 && r % 16 == 0) z.across[slot][r / 16] = z.to[slot][r];
        }
        *(float2 *)(of.p + row) = make_float2(mine[0] ? e[0] : 0.0f, mine[1] ? e[1] : 0.0f);
        *(float2 *)(of.q + row) =
            make_float2(mine[0] ? p.scale * e[0] : 0.0f, mine[1] ? p.scale * e[1] : 0.0f);
        *(float2 *)(of.edge + row) =
            make_float2(closes ? power(last - G[0]) : 0.0f, closes ? power(last - G[1]) : 0.0f);
        if (row < 4) *(float2 *)(of.last + row) = make_float2(power(last), power(last));
    }

    /* Of n value heads of the key head from the first on, a warp each. */
    __device__ void sum_gates_of(const qrn_gdn_wgmma_params &of, int first, int n,
                                 qrn_gdn_piece *pieces)
    {
        const int warp = qrn_warp();
        if (warp < n) sum_gates(warp, gdn_value_head(of, kh, first + warp), pieces[warp].gates);
    }

    /* Eight rows of the upper half of the chunk, or the eight that mirror them, of which this lane has one. */
    static __device__ __forceinline__ int row_of(int half)
    {
        return 8 * (half ? 7 - qrn_warp() : qrn_warp()) + qrn_lane() / 4;
    }

    /* Of this warp's rows those that are not the call's are made 0. */
    __device__ __forceinline__ void forget_others(float (&sums)[32]) const
    {
        if (rows.are_all()) return;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = row_of(i % 4 / 2);
            if (r < rows.open || r >= rows.end) sums[i] = 0.0f;
        }
    }

    /* This warp's rows of a tile times all of k; 0 of rows that are not the call's. */
    __device__ __forceinline__ void multiply_by_keys(float (&sums)[32], const char *tile) const
    {
        const int lane = qrn_lane(), group = lane / 8 % 2 ? 7 - qrn_warp() : qrn_warp();
        const uint64_t b = qrn_tile_by_k(z.k);
        uint32_t a[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++)
            qrn_ldmatrix4(a[i], tile + i / 4 * SQUARE +
                                    qrn_in_atom(8 * group + lane % 8, i % 4 * 32 + lane / 16 * 16));
        qrn_wgmma_hold(a);
        qrn_wgmma_fence();
#pragma unroll
        for (int i = 0; i < 8; i++)
            qrn_wgmma_bf16<64, QRN_BY_K>(sums, a[i], qrn_tile_moved(b, i / 4 * SQUARE + i % 4 * 32),
                                         i > 0);
        qrn_wgmma_commit();
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(sums);
        forget_others(sums);
    }

    /* exp(G_row - G_s) of this lane's two of 8 columns j of each block b, 0 for s > row; diagonal: the last
     * block of the row. Left of it they are products of factors, of which none is above 1 where none of the
     * decays is. */
    template <int diagonal> struct decays {
        float2 of[diagonal + 1][2];
        __device__ __forceinline__ decays(const prepare_shared &z, int slot, int row, int column)
        {
            const float *const along = z.along[slot], here = along[row], from = z.from[slot][row];
            float across[diagonal + 1];
#pragma unroll
            for (int b = 0; b <= diagonal; b++) {
                across[b] = b && b < diagonal ? z.across[slot][b] : 1.0f;
#pragma unroll
                for (int j = 0; j < 2; j++)
                    of[b][j] = *(const float2 *)((b < diagonal ? z.to[slot] : along) + 16 * b +
                                                 8 * j + column);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int s = 16 * diagonal + 8 * j + column;
                float2 &x = of[diagonal][j];
                x = make_float2(qrn_exp2(s <= row ? here - x.x : -1e30f),
                                qrn_exp2(s < row ? here - x.y : -1e30f));
            }
            float way = from;
#pragma unroll
            for (int b = diagonal - 1; b >= 0; b--) {
                way *= across[b + 1];
#pragma unroll
                for (int j = 0; j < 2; j++)
                    of[b][j] = make_float2(way * of[b][j].x, way * of[b][j].y);
            }
        }
    };

    /* Eight rows of scores, from products that are 0 of rows that are not the call's: by shared memory to
     * where they go. */
    template <int half, int diagonal>
    __device__ __forceinline__ void put_scores(int slot, const float (&qk)[32])
    {
        int row = row_of(half), column = qrn_lane() % 4 * 2;
        qrn_hold(row), qrn_hold(column);
        const decays<diagonal> w(z, slot, row, column);
#pragma unroll
        for (int b = 0; b <= diagonal; b++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int at = 8 * b + 4 * j + 2 * half;
                *(uint32_t *)(z.scores + gdn_in_slices(row, b, j) + 2 * column) =
                    qrn_bf16_pair(w.of[b][j].x * qk[at], w.of[b][j].y * qk[at + 1]);
            }
    }
    template <int half, int diagonal>
    __device__ __forceinline__ void store_scores(qrn_gdn_piece &to) const
    {
        int at = 8 * (half ? 7 - qrn_warp() : qrn_warp()) * 32 + 16 * qrn_lane();
        qrn_hold(at);
#pragma unroll
        for (int b = 0; b <= diagonal; b += 2) { /* half a warp takes eight rows of a slice */
            const int here = at + (qrn_lane() < 16 ? gdn_slice(b) : gdn_slice(b + 1) - 256);
            if (b < diagonal || qrn_lane() < 16)
                *(uint4 *)(to.scores + here) = *(const uint4 *)(z.scores + here);
        }
    }
    template <int low>
    __device__ __forceinline__ void make_scores(int slot, const float (&qk)[32], qrn_gdn_piece &to)
    {
        put_scores<0, low>(slot, qk);
        put_scores<1, 3 - low>(slot, qk);
        __syncwarp();
        store_scores<0, low>(to);
        store_scores<1, 3 - low>(to);
        __syncwarp();
    }

    /* Eight rows of -A, from such products. */
    template <int half, int diagonal>
    __device__ __forceinline__ void weigh_rows(int slot, triangle &A, const float (&kk)[32])
    {
        int row = row_of(half), column = qrn_lane() % 4 * 2;
        qrn_hold(row), qrn_hold(column);
        const float beta = -z.beta[slot][row], of_products = beta * QRN_TF32_PAIR;
        const decays<diagonal> w(z, slot, row, column);
        const int in_16 = row & 15;
#pragma unroll
        for (int b = 0; b <= diagonal; b++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int s = 16 * b + 8 * j + column, at = 8 * b + 4 * j + 2 * half;
                const bool substitutes = b == diagonal && in_16 / 8 == j;
                const float by = substitutes ? beta : of_products;
                float2 a = make_float2(by * w.of[b][j].x * kk[at], by * w.of[b][j].y * kk[at + 1]);
                if (b == diagonal) a = make_float2(s < row ? a.x : 0.0f, s + 1 < row ? a.y : 0.0f);
                *(float2 *)(A.at(diagonal, b) + in_block(in_16, 8 * j + column)) = a;
            }
    }
    template <int low>
    __device__ __forceinline__ void weigh(int slot, triangle &A, const float (&kk)[32])
    {
        weigh_rows<0, low>(slot, A, kk);
        weigh_rows<1, 3 - low>(slot, A, kk);
    }

    /* The warp's diagonal blocks of -A of two heads, the inverse D of I + A in their place: their halves of
     * 8 by substitution, 8 lanes each, a column a lane; then what is below these, D_1 (-A D_0), turned:
     * (D_0^T -A^T) D_1^T. */
    static __device__ void invert_diagonals(triangle (&of)[2])
    {
        int lane = qrn_lane();
        qrn_hold(lane);
        const int warp = qrn_warp(), c = lane % HALF, half = lane / HALF % 2;
        float *const mine = of[lane / 16].at(warp, warp) + half * HALF * 16;
        float x[HALF];
#pragma unroll
        for (int r = 0; r < HALF; r++) {
            float y = r == c ? 1.0f : 0.0f;
#pragma unroll
            for (int s = 0; s < r; s += 2) {
                const float2 v = *(const float2 *)(mine + in_block(r, HALF * half) + s);
                y = fmaf(v.x, x[s], y);
                if (s + 1 < r) y = fmaf(v.y, x[s + 1], y);
            }
            x[r] = y;
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < HALF; r++) mine[in_block(r, HALF * half) + c] = x[r] * QRN_TF32_PAIR;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) invert_below_half(of[i].at(warp, warp), lane);
    }
    static __device__ __forceinline__ void invert_below_half(float *block, int lane)
    {
        const int row = lane / 4, column = lane % 4 * 2;
        const float2 a = *(const float2 *)(block + in_block(HALF + row, column)),
                     d = *(const float2 *)(block + in_block(HALF + row, HALF + column));
        float p[4] = {}, m[4] = {};
        qrn_mma_tf32(p,
                     {block[in_block(column, row)], 0.0f, block[in_block(column + 1, row)], 0.0f},
                     {a.x, a.y});
        qrn_mma_tf32(m, {p[0], 0.0f, p[1], 0.0f}, {d.x, d.y});
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) block[in_block(HALF + column + i, row)] = m[i];
    }

    /* sum += x y^T, 16 x 16 each; y rows in shared memory, fragment: where this lane's elements of 8 x 8 are.
     * Of 8 k, mma's number t is 2 t and its t + 4 is 2 t + 1, in both operands. */
    static __device__ __forceinline__ void multiply(float (&sum)[2][4], const float (&x)[2][4],
                                                    const float *y, int fragment)
    {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float2 v = *(const float2 *)(y + 16 * HALF * n + (fragment ^ HALF * i));
                qrn_mma_tf32(sum[n], {x[i][0], x[i][2], x[i][1], x[i][3]}, {v.x, v.y});
            }
        }
    }

    /* Block (i, j), from its transposed. */
    __device__ __forceinline__ void put_block(int nth, int i, int j, const float (&m)[2][4]) const
    {
        const int lane = qrn_lane(), row = 16 * i + lane / 16 * 8 + lane % 8;
        uint32_t x[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            x[k] = qrn_bf16_pair(m[k / 2][k % 2 * 2], m[k / 2][k % 2 * 2 + 1]);
        qrn_stmatrix4_transposed(z.inverse[nth] + gdn_in_slices(row, j, lane / 8 % 2), x);
    }

    /* Block column j of the inverse times beta of columns, M: M_ij = D_i (sum over k = j .. i - 1 of -A_ik
     * M_kj); each M_kj is added to all sums that want it, then forgotten. */
    __device__ void invert_below(int slot, int nth, int j)
    {
        triangle *A = &z.triangles[nth];
        int row = qrn_lane() / 4, column = qrn_lane() % 4 * 2;
        qrn_hold(row), qrn_hold(column);
        const int fragment = in_block(row, column);
        const float *const D = A->at(j, j), *const beta_of = z.beta[slot] + 16 * j + row,
                           beta[2] = {beta_of[0] * (1 / QRN_TF32_PAIR),
                                      beta_of[8] * (1 / QRN_TF32_PAIR)};
        float x[2][4], sums[WARPS][2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[n][e] = beta[e / 2] * D[in_block(8 * n + column + e % 2, row + e / 2 * 8)];
#pragma unroll
        for (int k = 0; k < WARPS; k++) {
            if (j + k >= WARPS) continue;
            if (k > 0) {
#pragma unroll
                for (int i = 0; i < 8; i++) x[i / 4][i % 4] = 0.0f;
                multiply(x, sums[k], A->at(j + k, j + k), fragment);
            }
            put_block(nth, j + k, j, x);
#pragma unroll
            for (int i = k + 1; i < WARPS; i++)
                if (j + i < WARPS) multiply(sums[i], x, A->at(j + i, j + k), fragment);
        }
    }

    /* A warp: block column j of the inverse, 16 rows at a time. */
    __device__ __forceinline__ void store_inverse(qrn_gdn_piece &to, int nth, int j) const
    {
        int first = gdn_slice(j) + 16 * qrn_lane();
        qrn_hold(first);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            const int at = first + 512 * (WARPS - 1 - i);
            if (i >= WARPS - j) break;
            *(uint4 *)(to.inverse + at) = *(const uint4 *)(z.inverse[nth] + at);
        }
    }
};

/* Keys of open rows in their place, from this key head's. */
static __device__ __forceinline__ void place_open_keys(void *tile, const float *keys, int open)
{
    for (int i = threadIdx.x; i < GDN_CHUNK * WIDTH; i += THREADS)
        if (i / WIDTH < open)
            *gdn_in_tile(tile, i / WIDTH, i % WIDTH) = qrn_bf16_of_float(keys[i]);
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_prepare, 128, QRN_GDN_PREPARE_AT_ONCE, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full;
    prepare_shared *shared = (prepare_shared *)qrn_align_shared(memory, QRN_ATOM);
    qrn_hold_shared(shared);
    prepare_shared &z = *shared;
    const int item = (int)blockIdx.x / p.n_shares, share = (int)blockIdx.x - item * p.n_shares,
              each = (p.ratio + p.n_shares - 1) / p.n_shares, first = share * each,
              n_heads = min(each, p.ratio - first), number = item / (int)p.n_k_heads,
              of_wave = item - number * (int)p.n_k_heads;
    gdn_sequence sequence;
    int wave;
    if (!gdn_find_chunk(p.c, number, &sequence, &wave)) return;
    preparer x{p.c, z, gdn_rows_of_sequence(sequence).of(wave), (int)p.first_k_head + of_wave};
    if (threadIdx.x == 0) {
        qrn_barrier_init(&full, 1);
        qrn_barriers_are_ready();
        qrn_barrier_arrive_expecting(&full, 2 * TILE);
        gdn_load_tile(z.k, &p.k, x.rows.first, x.kh, &full);
        gdn_load_tile(z.q, &p.q, x.rows.first, x.kh, &full);
        if (x.rows.open) z.before.find(p.c, sequence, wave);
    }
    if (x.rows.open) __syncthreads();
    qrn_gdn_piece *const pieces = p.pieces + (int64_t)item * p.ratio + first;
    x.sum_gates_of(p, first, n_heads, pieces);
    __syncthreads(); /* the barrier is ready */
    qrn_barrier_wait(&full, 0);
    if (x.rows.open) {
        place_open_keys(z.k, z.before.k + (int64_t)x.kh * WIDTH * GDN_CHUNK, x.rows.open);
        qrn_fence_async();
        __syncthreads();
        uint8_t *to = p.open_keys + (sequence.s * p.n_k_heads + of_wave) * TILE;
        for (int i = threadIdx.x; share == 0 && i < TILE / 16; i += THREADS)
            ((uint4 *)to)[i] = ((const uint4 *)z.k)[i];
    }
    float products[32];
    x.multiply_by_keys(products, z.q);
    __syncthreads(); /* q is done with */
#pragma unroll
    for (int i = 0; i < 32; i++) products[i] *= p.c.scale;
#pragma unroll 1
    for (int i = 0; i < n_heads; i++) {
        if (qrn_warp() < 2)
            x.make_scores<0>(i, products, pieces[i]);
        else
            x.make_scores<1>(i, products, pieces[i]);
    }
    x.multiply_by_keys(products, z.k);
    for (int head = 0; head < n_heads; head += 2) {
        const int n = min(n_heads - head, 2);
        __syncthreads(); /* k and scores, or the last heads' triangles, are done with */
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            if (qrn_warp() < 2)
                x.weigh<0>(head + i, z.triangles[i], products);
            else
                x.weigh<1>(head + i, z.triangles[i], products);
        }
        __syncthreads();
        preparer::invert_diagonals(z.triangles);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            const int j = i ? WARPS - 1 - qrn_warp() : qrn_warp();
            x.invert_below(head + i, i, j);
            x.store_inverse(pieces[head + i], i, j);
        }
    }
}

/* A row a warp, several of them on their way at once. */
QRN_DEVICE_FUNCTION(qrn_gdn_open_round, 256, 4, qrn_gdn_round_params)
{
    enum { AT_ONCE = QRN_GDN_ROUND_ROWS, WARPS = 8 };
    const int64_t n = p.n_tokens * p.n_heads, step = (int64_t)gridDim.x * WARPS;
    const int c = 4 * qrn_lane();
    for (int64_t row = (int64_t)blockIdx.x * WARPS + qrn_warp(); row < n; row += AT_ONCE * step) {
        float4 x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int64_t r = row + i * step, t = r / p.n_heads;
            if (r < n) x[i] = gdn_four_at(gdn_at(p.from, t, r - t * p.n_heads) + c);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int64_t r = row + i * step;
            if (r < n)
                *(uint2 *)(p.to + (r * WIDTH + c) / 2) =
                    make_uint2(qrn_bf16_pair(x[i].x, x[i].y), qrn_bf16_pair(x[i].z, x[i].w));
        }
    }
}
