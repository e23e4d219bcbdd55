/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, what can be done for all chunks at once: for each value head the inverse
 * of I + A with A[r][s] = beta_r exp(G_r - G_s) k_r.k_s (s < r), times beta of columns, decayed scores q_r.k_s, gates.
 *
 * A block has a chunk of a key head, or, where these are few, a share of its value heads: k k and
 * k q come once from the tensor cores and stay in registers for the head's value heads. The inverse
 * is float32: diagonal blocks of 16 by substitution, a warp each; below them, a warp a block column,
 * products of bf16 pairs (x = high + low), turned, so that each result is the next one's operand as
 * it is. Warps meet once a value head: rows of A are more the further down, columns of the inverse
 * the other way round, so that a warp that is through with its column goes on with the next head's
 * rows. A chunk of a value head takes some 1000 cycles of issuing, 0.6 us of a multiprocessor, of
 * which four blocks reach half, and writes 17 KiB.
 */
#include "backends/cuda/device/gdn_wgmma.cuh"

enum {
    THREADS = 128,
    WARPS = 4,
    STRIDE = 24, /* of a block's rows: no bank conflicts of mma's fragments */
    HEADS = 4,
    PART = SQUARE / WARPS
};

/* Blocks of 16 x 16 of a lower triangle, row by row; on the diagonal of A, then of its inverse; below
 * of A, pairs of elements as gdn_split. */
struct triangle {
    float blocks[WARPS * (WARPS + 1) / 2][16 * STRIDE];
    __device__ __forceinline__ float *at(int i, int j) { return blocks[i * (i + 1) / 2 + j]; }
};

struct prepare_shared {
    union {
        char tiles[2 * TILE];  /* k and q, until they are multiplied */
        triangle triangles[2]; /* of value heads in turn */
    };
    char scores[WARPS][PART], inverse[WARPS][PART]; /* a warp's rows, and its 16 columns */
    /* Of HEADS value heads at a time: G in two floats. */
    float high[HEADS][GDN_CHUNK], low[HEADS][GDN_CHUNK], beta[HEADS][GDN_CHUNK];
    gdn_segment before; /* where open rows are */
};
static_assert(sizeof(prepare_shared) + 1024 <= QRN_GDN_PREPARE_BYTES, "");

struct preparer {
    const qrn_gdn_open_chunk_params &p;
    prepare_shared &z;
    gdn_rows_of_chunk rows;
    int kh;

    /* A warp: G and what comes of it of rows 2 lane, 2 lane + 1 of one value head. */
    __device__ void sum_gates(int slot, int64_t h, qrn_gdn_gates &to)
    {
        const int row = 2 * qrn_lane();
        const bool closes = rows.end == GDN_CHUNK;
        double G[2];
        float e[2];
        bool mine[2];
        gdn_sum_gates(G, p, rows, z.before.G + h * GDN_CHUNK, h);
        const double last = __shfl_sync(QRN_ALL_OF_WARP, G[1], 31);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = row + i;
            mine[i] = r >= rows.open && r < rows.end;
            e[i] = qrn_exp((float)G[i]);
            z.beta[slot][r] = mine[i]         ? *gdn_at(p.x.beta, rows.first + r, h)
                              : r < rows.open ? 1.0f
                                              : 0.0f;
            z.high[slot][r] = (float)G[i];
            z.low[slot][r] = (float)(G[i] - (double)(float)G[i]);
        }
        *(float2 *)(to.p + row) = make_float2(mine[0] ? e[0] : 0.0f, mine[1] ? e[1] : 0.0f);
        *(float2 *)(to.q + row) =
            make_float2(mine[0] ? p.scale * e[0] : 0.0f, mine[1] ? p.scale * e[1] : 0.0f);
        *(float2 *)(to.edge + row) = make_float2(closes ? gdn_decay(last, G[0]) : 0.0f,
                                                 closes ? gdn_decay(last, G[1]) : 0.0f);
        if (row < 4) *(float2 *)(to.last + row) = make_float2(qrn_exp((float)last), qrn_exp((float)last));
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

    /* exp(G_r - G_s), s <= r. */
    __device__ __forceinline__ float decay(int slot, int r, int s) const
    {
        return __expf((z.high[slot][r] - z.high[slot][s]) + (z.low[slot][r] - z.low[slot][s]));
    }

    /* This warp's 16 rows of A and scores, from its sums of products, which are 0 of rows that are
     * not the call's.  In blocks below the diagonal exp(G_r - G_s) is made of two factors, by way of
     * the first of the 16 rows: no one is above 1 where none of the decays is. */
    __device__ void weigh(int slot, triangle &A, const float (&kk)[32], const float (&qk)[32])
    {
        const int warp = qrn_warp(), row = 16 * warp + qrn_lane() / 4, column = qrn_lane() % 4 * 2;
        float *const mine = A.at(warp, 0) + qrn_lane() / 4 * STRIDE + column;
        float of_a[2], of_scores[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float e = decay(slot, row + 8 * half, 16 * warp);
            of_a[half] = z.beta[slot][row + 8 * half] * e;
            of_scores[half] = p.scale * e;
        }
#pragma unroll
        for (int j = 0; j < 6; j++) {
            if (j >= 2 * warp) continue;
            const float w[2] = {decay(slot, 16 * warp, 8 * j + column),
                                decay(slot, 16 * warp, 8 * j + column + 1)};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row + 8 * half, s = 8 * j + column, at = 4 * j + 2 * half;
                const float a = of_a[half], score = of_scores[half];
                uint2 halves;
                gdn_split(a * (w[0] * kk[at]), a * (w[1] * kk[at + 1]), &halves.x, &halves.y);
                *(uint2 *)(mine + j / 2 * 16 * STRIDE + half * 8 * STRIDE + j % 2 * 8) = halves;
                put_scores(r, s, score * (w[0] * qk[at]), score * (w[1] * qk[at + 1]));
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (j / 2 != warp) continue;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row + 8 * half, s = 8 * j + column, at = 4 * j + 2 * half;
                const float w[2] = {s <= r ? decay(slot, r, s) : 0.0f,
                                    s < r ? decay(slot, r, s + 1) : 0.0f};
                const float beta = z.beta[slot][r];
                *(float2 *)(mine + warp * 16 * STRIDE + half * 8 * STRIDE + j % 2 * 8) =
                    make_float2(s < r ? beta * w[0] * kk[at] : 0.0f,
                                s + 1 < r ? beta * w[1] * kk[at + 1] : 0.0f);
                put_scores(r, s, s <= r ? p.scale * w[0] * qk[at] : 0.0f,
                           s < r ? p.scale * w[1] * qk[at + 1] : 0.0f);
            }
        }
    }
    __device__ __forceinline__ void put_scores(int r, int s, float x, float y)
    {
        *(uint32_t *)((char *)z.scores + qrn_in_atom(r, 2 * s)) = qrn_bf16_pair(x, y);
    }

    /* The warp's diagonal block, its inverse D in its place: its halves of 8 by substitution, half a
     * warp each, a column a lane; then below them -D_1 (A D_0), two elements a lane. */
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
                y = fmaf(-v.x, x[s], y);
                if (s + 1 < r) y = fmaf(-v.y, x[s + 1], y);
            }
            x[r] = y;
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < HALF; r++)
            if (lane % 16 < HALF) of_half[r * STRIDE + c] = x[r];
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
        *below = make_float2(-m.x, -m.y);
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

    /* A result as an operand. */
    struct operand {
        uint32_t high[4], low[4];
        __device__ __forceinline__ void take(const float (&x)[2][4])
        {
#pragma unroll
            for (int i = 0; i < 4; i++)
                gdn_split(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], &high[i], &low[i]);
        }
    };

    /* sum += x y^T, 16 x 16 each; y rows in shared memory, in halves already or not. */
    template <bool in_halves>
    static __device__ __forceinline__ void multiply(float (&sum)[2][4], const operand &x,
                                                    const float *y)
    {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float *row = y + (8 * n + qrn_lane() / 4) * STRIDE + qrn_lane() % 4 * 2;
            uint32_t y_high[2], y_low[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (in_halves) {
                    const uint2 v = *(const uint2 *)(row + 8 * i);
                    y_high[i] = v.x, y_low[i] = v.y;
                } else {
                    const float2 v = *(const float2 *)(row + 8 * i);
                    gdn_split(v.x, v.y, &y_high[i], &y_low[i]);
                }
            }
            qrn_mma_bf16(sum[n], x.low, y_high);
            qrn_mma_bf16(sum[n], x.high, y_low);
            qrn_mma_bf16(sum[n], x.high, y_high);
        }
    }

    /* A line of 32 bytes of the warp's columns of the inverse, whose halves change places: no bank
     * conflicts. */
    __device__ __forceinline__ char *in_columns(int r, int half) const
    {
        return z.inverse[qrn_warp()] + r * 32 + (half ^ (r >> 2 & 1)) * 16;
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
        qrn_stmatrix4_transposed(in_columns(16 * i + lane / 16 * 8 + lane % 8, lane / 8 % 2), x);
    }

    /* Block column j of the inverse M, j the warp: M_ij = -D_i (sum over k = j .. i - 1 of A_ik
     * M_kj); each M_kj is added to all sums that want it, then forgotten. */
    __device__ void invert_below(int slot, triangle &A)
    {
        const int j = qrn_warp();
        const float *const beta = z.beta[slot] + 16 * j, *const D = A.at(j, j);
        float x[2][4], sums[4][2][4] = {};
        operand m;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[n][e] =
                    D[(8 * n + qrn_lane() % 4 * 2 + e % 2) * STRIDE + qrn_lane() / 4 + e / 2 * 8];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (j + k >= 4) continue;
            if (k > 0) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    sums[k][i / 4][i % 4] = -sums[k][i / 4][i % 4];
                    x[i / 4][i % 4] = 0.0f;
                }
                m.take(sums[k]);
                multiply<false>(x, m, A.at(j + k, j + k));
            }
            m.take(x);
            put_block(j + k, x, beta);
#pragma unroll
            for (int i = k + 1; i < 4; i++)
                if (j + i < 4) multiply<true>(sums[i], m, A.at(j + i, j + k));
        }
    }

    /* The warp's rows of scores, and columns of the inverse. */
    __device__ void store_scores(qrn_gdn_piece &to) const
    {
        const int warp = qrn_warp();
#pragma unroll
        for (int i = 0; i < PART / 512; i++)
            ((uint4 *)(to.scores + warp * PART))[32 * i + qrn_lane()] =
                ((const uint4 *)z.scores[warp])[32 * i + qrn_lane()];
    }
    __device__ void store_inverse(qrn_gdn_piece &to) const
    {
        const int half = qrn_lane() % 2;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < GDN_CHUNK / 16; i++) {
            const int row = 16 * i + qrn_lane() / 2;
            *(uint4 *)(to.inverse + qrn_in_atom(row, 32 * qrn_warp() + 16 * half)) =
                *(const uint4 *)in_columns(row, half);
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
    __shared__ gdn_sequence sequence;
    __shared__ int wave;
    __shared__ bool exists;
    prepare_shared &z = *(prepare_shared *)qrn_align_shared(memory, QRN_ATOM);
    const int ratio = (int)(p.c.x.heads.n_v / p.c.x.heads.n_k),
              share = (int)blockIdx.x % p.n_shares, each = (ratio + p.n_shares - 1) / p.n_shares,
              begin = share * each, end = begin + each < ratio ? begin + each : ratio;
    const int item = (int)blockIdx.x / p.n_shares, number = item / (int)p.n_k_heads,
                  of_wave = item - number * (int)p.n_k_heads;
    preparer x{p.c, z, {}, (int)p.first_k_head + of_wave};
    if (threadIdx.x == 0) {
        exists = gdn_find_chunk(p.c, number, &sequence, &wave);
        if (exists) z.before.find(p.c, sequence, wave);
        qrn_barrier_init(&full, 1);
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (!exists) return;
    x.rows = gdn_rows_of_sequence(sequence).of(wave);
    if (threadIdx.x == 0) {
        qrn_barrier_arrive_expecting(&full, 2 * TILE);
        gdn_load_tile(z.tiles, &p.k, x.rows.first, x.kh, &full);
        gdn_load_tile(z.tiles + TILE, &p.q, x.rows.first, x.kh, &full);
    }
    for (int i = threadIdx.x; i < 2 * SQUARE / 16; i += THREADS) /* 0 above the diagonals */
        ((uint4 *)z.scores)[i] = make_uint4(0, 0, 0, 0);
    qrn_gdn_piece *const pieces = p.pieces + (int64_t)item * ratio;
    x.sum_gates_of(begin, end, pieces);
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
