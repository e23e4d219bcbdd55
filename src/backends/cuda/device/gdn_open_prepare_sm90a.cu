/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, what can be done for all chunks at once: for each value head the inverse
 * of I + A with A[r][s] = beta_r exp(G_r - G_s) k_r.k_s (s < r), times beta of columns, decayed scores q_r.k_s, gates.
 *
 * A block has a chunk of a key head, or, where these are few, a share of its value heads: k k and
 * k q come once from the tensor cores and stay in registers for the head's value heads. Diagonal
 * blocks of 16 are inverted in float32 by substitution, a warp each; below them, a warp a block column,
 * products of tf32, turned, so that each result is the next one's operand as it is (the inverse is
 * rounded to bf16 in the end). Warps meet once a value head: rows of A are more the further down,
 * columns of the inverse the other way round, so that a warp that is through with its column goes on
 * with the next head's rows. A chunk of a value head is 11 KiB.
 */
#include "backends/cuda/device/gdn_wgmma.cuh"

enum {
    THREADS = 128,
    WARPS = 4,
    STRIDE = 24, /* of a block's rows: no bank conflicts of mma's fragments */
    HEADS = 4
};

/* Blocks of 16 x 16 of a lower triangle, row by row; on the diagonal of A, then of its inverse; below
 * of A, rounded to tf32. */
struct triangle {
    float blocks[WARPS * (WARPS + 1) / 2][16 * STRIDE];
    __device__ __forceinline__ float *at(int i, int j) { return blocks[i * (i + 1) / 2 + j]; }
};

struct prepare_shared {
    union {
        char tiles[2 * TILE];  /* k and q, until they are multiplied */
        triangle triangles[2]; /* of value heads in turn */
    };
    __align__(128) char scores[QRN_GDN_SLICES], inverse[QRN_GDN_SLICES];
    /* Of HEADS value heads at a time, of the 16 rows that row r is of: log2 of the decay from the first
     * to r, its power, the decay from r to the first of the next 16; from the first of 16 to that of
     * the next. */
    float along[HEADS][GDN_CHUNK], from[HEADS][GDN_CHUNK], to[HEADS][GDN_CHUNK],
        across[HEADS][WARPS], beta[HEADS][GDN_CHUNK];
    gdn_segment before; /* where open rows are */
};
static_assert(sizeof(prepare_shared) + 1024 <= QRN_GDN_PREPARE_BYTES, "");

struct preparer {
    const qrn_gdn_open_chunk_params &p;
    prepare_shared &z;
    gdn_rows_of_chunk rows;
    int kh;

    /* A warp: G and what comes of it of rows 2 lane, 2 lane + 1 of one value head. */
    __device__ void sum_gates(int slot, int64_t h, qrn_gdn_gates &of)
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
            beta[i] = mine[i]         ? *gdn_at(p.x.beta, rows.first + r, h)
                      : r < rows.open ? 1.0f
                                      : 0.0f;
        }
        gdn_sum_gates(G, p, rows, z.before.G + h * GDN_CHUNK, h);
        const double last = __shfl_sync(QRN_ALL_OF_WARP, G[1], 31),
                     begin = __shfl_sync(QRN_ALL_OF_WARP, G[0], first),
                     next = __shfl_sync(QRN_ALL_OF_WARP, G[0], (first + 8) % 32);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = row + i;
            const float along = (float)((G[i] - begin) * 1.4426950408889634);
            e[i] = qrn_exp((float)G[i]);
            z.beta[slot][r] = beta[i];
            z.along[slot][r] = along;
            z.from[slot][r] = qrn_exp2(along);
            z.to[slot][r] = qrn_exp2((float)((next - G[i]) * 1.4426950408889634));
            if (i == 0 && r % 16 == 0) z.across[slot][r / 16] = z.to[slot][r];
        }
        *(float2 *)(of.p + row) = make_float2(mine[0] ? e[0] : 0.0f, mine[1] ? e[1] : 0.0f);
        *(float2 *)(of.q + row) =
            make_float2(mine[0] ? p.scale * e[0] : 0.0f, mine[1] ? p.scale * e[1] : 0.0f);
        *(float2 *)(of.edge + row) = make_float2(closes ? gdn_decay(last, G[0]) : 0.0f,
                                                 closes ? gdn_decay(last, G[1]) : 0.0f);
        if (row < 4) *(float2 *)(of.last + row) = make_float2(qrn_exp((float)last), qrn_exp((float)last));
    }

    /* Of value heads i, i + 1 ... of the key head, a warp each. */
    __device__ void sum_gates_of(int i, int end, qrn_gdn_piece *pieces)
    {
        const int warp = qrn_warp();
        if (i + warp < end)
            sum_gates(warp, gdn_value_head(p.x.heads, kh, i + warp), pieces[i + warp].gates);
    }

    /* This warp's 16 rows, of which those that are not the call's are made 0. */
    __device__ __forceinline__ void forget_others(float (&sums)[32]) const
    {
        if (rows.are_all()) return;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int r = 16 * qrn_warp() + qrn_lane() / 4 + i % 4 / 2 * 8;
            if (r < rows.open || r >= rows.end) sums[i] = 0.0f;
        }
    }

    /* Columns of this warp's rows by blocks of 16, the one on the diagonal first, then to the left. */
    static __device__ __forceinline__ void turn_blocks(float (&sums)[32])
    {
        const int warp = qrn_warp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float x[4] = {sums[i], sums[8 + i], sums[16 + i], sums[24 + i]};
            sums[i] = warp == 0 ? x[0] : warp == 1 ? x[1] : warp == 2 ? x[2] : x[3];
            sums[8 + i] = warp == 1 ? x[0] : warp == 2 ? x[1] : x[2];
            sums[16 + i] = warp == 2 ? x[0] : x[1];
            sums[24 + i] = x[0];
        }
    }

    /* Two elements of A, block d to the left of the diagonal, and of scores there: this lane's of half
     * and column block j, 8 each. */
    __device__ __forceinline__ void put(float *block, int d, int half, int j, float2 a, float2 score)
    {
        const int warp = qrn_warp(), lane = qrn_lane(), row = 16 * warp + 8 * half + lane / 4;
        *(float2 *)(block - d * 16 * STRIDE + (8 * half + lane / 4) * STRIDE + 8 * j + lane % 4 * 2) = a;
        *(uint32_t *)(z.scores + gdn_in_slices(row, warp - d, j) + lane % 4 * 4) =
            qrn_bf16_pair(score.x, score.y);
    }

    /* The block on the diagonal. */
    __device__ __forceinline__ void weigh_diagonal(int slot, float *block, const float (&beta)[2],
                                                   const float (&kk)[32], const float (&qk)[32])
    {
        const int row = qrn_lane() / 4, column = qrn_lane() % 4 * 2;
        const float *const along = z.along[slot] + 16 * qrn_warp();
        put(block, 0, 0, 1, make_float2(0.0f, 0.0f), make_float2(0.0f, 0.0f));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float2 there = *(const float2 *)(along + 8 * j + column);
#pragma unroll
            for (int half = j; half < 2; half++) {
                const int at = 4 * j + 2 * half;
                const bool all = half > j, has[2] = {all || column <= row, all || column < row};
                const float here = along[8 * half + row];
                const float w[2] = {qrn_exp2(has[0] ? here - there.x : -1e30f),
                                    qrn_exp2(has[1] ? here - there.y : -1e30f)};
                const float a[2] = {-beta[half] * w[0] * kk[at], -beta[half] * w[1] * kk[at + 1]};
                put(block, 0, half, j,
                    make_float2(all || column < row ? a[0] : 0.0f, all || column + 1 < row ? a[1] : 0.0f),
                    make_float2(w[0] * qk[at], w[1] * qk[at + 1]));
            }
        }
    }

    /* This warp's 16 rows of -A and scores, from its sums of products by blocks (turn_blocks), which
     * are 0 of rows that are not the call's. To the left of the diagonal exp(G_r - G_s) is a product of
     * factors, of which none is above 1 where none of the decays is. */
    __device__ void weigh(int slot, triangle &A, const float (&kk)[32], const float (&qk)[32])
    {
        const int warp = qrn_warp(), row = 16 * warp + qrn_lane() / 4, column = qrn_lane() % 4 * 2;
        float *const block = A.at(warp, warp);
        const float beta[2] = {z.beta[slot][row], z.beta[slot][row + 8]};
        float of[2] = {z.from[slot][row], z.from[slot][row + 8]};
        weigh_diagonal(slot, block, beta, kk, qk);
#pragma unroll
        for (int d = 1; d < WARPS; d++) {
            if (d > warp) break;
            const float across = d > 1 ? z.across[slot][warp - d + 1] : 1.0f;
#pragma unroll
            for (int half = 0; half < 2; half++) of[half] *= across;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float2 to = *(const float2 *)(z.to[slot] + 16 * (warp - d) + 8 * j + column);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int at = 8 * d + 4 * j + 2 * half;
                    const float w[2] = {of[half] * to.x, of[half] * to.y}, b = -beta[half];
                    put(block, d, half, j,
                        make_float2(qrn_tf32(b * w[0] * kk[at]), qrn_tf32(b * w[1] * kk[at + 1])),
                        make_float2(w[0] * qk[at], w[1] * qk[at + 1]));
                }
            }
        }
    }

    /* The warp's diagonal block of -A, the inverse D of I + A in its place: its halves of 8 by
     * substitution, half a warp each, a column a lane; then below them D_1 (-A D_0), two elements a
     * lane. */
    static __device__ void invert_diagonal(float *block)
    {
        enum { HALF = 8 };
        const int lane = qrn_lane(), half = lane / 16 * HALF, c = lane % HALF;
        float *const of_half = block + half * STRIDE + half;
        float x[HALF];
#pragma unroll
        for (int r = 0; r < HALF; r++) {
            float y = r == c ? 1.0f : 0.0f;
#pragma unroll
            for (int s = 0; s < r; s += 2) {
                const float2 v = *(const float2 *)(of_half + r * STRIDE + s);
                y = fmaf(v.x, x[s], y);
                if (s + 1 < r) y = fmaf(v.y, x[s + 1], y);
            }
            x[r] = y;
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < HALF; r++)
            if (lane % 16 < HALF) of_half[r * STRIDE + c] = qrn_tf32(x[r]);
        const int row = lane % HALF, column = lane / HALF * 2;
        float2 *const below = (float2 *)(block + (HALF + row) * STRIDE + column);
        *(float2 *)(block + row * STRIDE + HALF + column) = make_float2(0.0f, 0.0f);
        __syncwarp();
        const float2 product = times(block + (HALF + row) * STRIDE, block + column);
        __syncwarp();
        *below = product;
        __syncwarp();
        const float2 m = times(block + (HALF + row) * STRIDE + HALF, block + HALF * STRIDE + column);
        __syncwarp();
        *below = make_float2(qrn_tf32(m.x), qrn_tf32(m.y));
    }

    /* A row of 8 times two columns. */
    static __device__ __forceinline__ float2 times(const float *row, const float *columns)
    {
        float2 sum = make_float2(0.0f, 0.0f);
        const float4 a = *(const float4 *)row, b = *(const float4 *)(row + 4);
        const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float2 v = *(const float2 *)(columns + k * STRIDE);
            sum.x = fmaf(x[k], v.x, sum.x);
            sum.y = fmaf(x[k], v.y, sum.y);
        }
        return sum;
    }

    /* sum += x y^T, 16 x 16 each; y rows in shared memory. Of 8 k, mma's number t is 2 t and its t + 4
     * is 2 t + 1, in both operands. */
    static __device__ __forceinline__ void multiply(float (&sum)[2][4], const float (&x)[2][4],
                                                    const float *y)
    {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float *row = y + (8 * n + qrn_lane() / 4) * STRIDE + qrn_lane() % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float2 v = *(const float2 *)(row + 8 * i);
                qrn_mma_tf32(sum[n], {x[i][0], x[i][2], x[i][1], x[i][3]}, {v.x, v.y});
            }
        }
    }
    static __device__ __forceinline__ void round(float (&x)[2][4])
    {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i / 4][i % 4] = qrn_tf32(x[i / 4][i % 4]);
    }

    /* Block i of the column times beta of its columns, from its transposed. */
    __device__ __forceinline__ void put_block(int i, const float (&m)[2][4],
                                              const float *of_columns) const
    {
        const int lane = qrn_lane();
        const float beta[2] = {of_columns[lane / 4], of_columns[lane / 4 + 8]};
        uint32_t x[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            x[k] = qrn_bf16_pair(beta[k % 2] * m[k / 2][k % 2 * 2],
                                 beta[k % 2] * m[k / 2][k % 2 * 2 + 1]);
        const int row = 16 * i + lane / 16 * 8 + lane % 8;
        qrn_stmatrix4_transposed(z.inverse + gdn_in_slices(row, qrn_warp(), lane / 8 % 2), x);
    }

    /* Block column j of the inverse M, j the warp: M_ij = D_i (sum over k = j .. i - 1 of -A_ik
     * M_kj); each M_kj is added to all sums that want it, then forgotten. */
    __device__ void invert_below(int slot, triangle &A)
    {
        const int j = qrn_warp();
        const float *const beta = z.beta[slot] + 16 * j, *const D = A.at(j, j);
        float x[2][4], sums[4][2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[n][e] =
                    D[(8 * n + qrn_lane() % 4 * 2 + e % 2) * STRIDE + qrn_lane() / 4 + e / 2 * 8];
#pragma unroll
        for (int k = 0; k < WARPS; k++) {
            if (j + k >= WARPS) continue;
            if (k > 0) {
#pragma unroll
                for (int i = 0; i < 8; i++) x[i / 4][i % 4] = 0.0f;
                round(sums[k]);
                multiply(x, sums[k], A.at(j + k, j + k));
            }
            put_block(j + k, x, beta);
            round(x);
#pragma unroll
            for (int i = k + 1; i < WARPS; i++)
                if (j + i < WARPS) multiply(sums[i], x, A.at(j + i, j + k));
        }
    }

    /* The warp's rows of scores, and columns of the inverse: 16 rows of 16 columns at a time. */
    __device__ void store_scores(qrn_gdn_piece &to) const
    {
        const int rows = 512 * qrn_warp() + 16 * qrn_lane();
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            if (i > qrn_warp()) break;
            const int at = gdn_slice(i) + rows;
            *(uint4 *)(to.scores + at) = *(const uint4 *)(z.scores + at);
        }
    }
    __device__ void store_inverse(qrn_gdn_piece &to) const
    {
        const int first = gdn_slice(qrn_warp()) + 16 * qrn_lane();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            const int at = first + 512 * (WARPS - 1 - i);
            if (i >= WARPS - qrn_warp()) break;
            *(uint4 *)(to.inverse + at) = *(const uint4 *)(z.inverse + at);
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

/* k k and k q of the chunk, 16 rows a warp. */
static __device__ __forceinline__ void multiply_tiles(char *tiles, float (&kk)[32], float (&qk)[32])
{
    const uint64_t k = qrn_tile_by_k(tiles), q = qrn_tile_by_k(tiles + TILE);
    qrn_wgmma_fence();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = i / 4 * SQUARE + i % 4 * 32;
        qrn_wgmma_bf16<64, QRN_BY_K, QRN_BY_K>(kk, qrn_tile_moved(k, at), qrn_tile_moved(k, at),
                                               i > 0);
        qrn_wgmma_bf16<64, QRN_BY_K, QRN_BY_K>(qk, qrn_tile_moved(q, at), qrn_tile_moved(k, at),
                                               i > 0);
    }
    qrn_wgmma_commit();
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(kk);
    qrn_wgmma_hold(qk);
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_prepare, 128, 4, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full;
    prepare_shared &z = *(prepare_shared *)qrn_align_shared(memory, QRN_ATOM);
    const int ratio = (int)(p.c.x.heads.n_v / p.c.x.heads.n_k),
              share = (int)blockIdx.x % p.n_shares, each = (ratio + p.n_shares - 1) / p.n_shares,
              begin = share * each, end = begin + each < ratio ? begin + each : ratio;
    const int item = (int)blockIdx.x / p.n_shares, number = item / (int)p.n_k_heads,
              of_wave = item - number * (int)p.n_k_heads;
    gdn_sequence sequence;
    int wave;
    if (!gdn_find_chunk(p.c, number, &sequence, &wave)) return;
    preparer x{p.c, z, gdn_rows_of_sequence(sequence).of(wave), (int)p.first_k_head + of_wave};
    if (threadIdx.x == 0) {
        qrn_barrier_init(&full, 1);
        qrn_barriers_are_ready();
        qrn_barrier_arrive_expecting(&full, 2 * TILE);
        gdn_load_tile(z.tiles, &p.k, x.rows.first, x.kh, &full);
        gdn_load_tile(z.tiles + TILE, &p.q, x.rows.first, x.kh, &full);
        if (x.rows.open) z.before.find(p.c, sequence, wave);
    }
    if (x.rows.open) __syncthreads();
    qrn_gdn_piece *const pieces = p.pieces + (int64_t)item * ratio;
    x.sum_gates_of(begin, end, pieces);
    __syncthreads(); /* the barrier is ready */
    qrn_barrier_wait(&full, 0);
    if (x.rows.open) {
        place_open_keys(z.tiles, z.before.k + (int64_t)x.kh * WIDTH * GDN_CHUNK, x.rows.open);
        qrn_fence_async();
        __syncthreads();
        uint8_t *to = p.open_keys + (sequence.s * p.n_k_heads + of_wave) * TILE;
        for (int i = threadIdx.x; share == 0 && i < TILE / 16; i += THREADS)
            ((uint4 *)to)[i] = ((const uint4 *)z.tiles)[i];
    }
    float kk[32], qk[32];
    multiply_tiles(z.tiles, kk, qk);
    x.forget_others(kk);
    x.forget_others(qk);
    preparer::turn_blocks(kk);
    preparer::turn_blocks(qk);
#pragma unroll
    for (int i = 0; i < 32; i++) qk[i] *= p.c.scale;
    for (int i = begin; i < end; i++) {
        const int slot = (i - begin) % HEADS;
        if (slot == 0) {
            __syncthreads(); /* tiles and the last heads' gates are done with */
            if (i > begin) {
                x.sum_gates_of(i, end, pieces);
                __syncthreads();
            }
        }
        qrn_gdn_piece &to = pieces[i];
        triangle *A = &z.triangles[i % 2];
        qrn_hold_shared(A);
        x.weigh(slot, *A, kk, qk);
        __syncwarp();
        x.invert_diagonal(A->at(qrn_warp(), qrn_warp()));
        __syncthreads();
        x.store_scores(to);
        x.invert_below(slot, *A);
        x.store_inverse(to);
        __syncwarp();
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
