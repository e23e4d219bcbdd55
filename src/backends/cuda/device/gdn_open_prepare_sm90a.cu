/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, what can be done for all chunks at once: for each value head the inverse
 * of I + A with A[r][s] = beta_r exp(G_r - G_s) k_r.k_s (s < r), times beta of columns, decayed scores q_r.k_s, gates.
 *
 * A block has a chunk of a key head, or, where these are few, a share of its value heads: k k and k q come once from the tensor cores and stay in
 * registers for the head's value heads. The inverse is float32: diagonal blocks of 16 by
 * substitution, a warp each; below them, a warp a block column, products of bf16 pairs (x = high +
 * low), turned, so that each result is the next one's operand as it is. A chunk of a value head
 * takes some 850 cycles of issuing (decays a third, substitution a quarter, products and their
 * pairs the rest), 0.5 us of a multiprocessor, where four blocks hide each other's latency, and
 * writes 17 KiB: for 32768 tokens of 64 heads 0.12 ms of the one and 0.14 ms of the other at least.
 */
#include "backends/cuda/device/gdn_wgmma.cuh"

enum { THREADS = 128, STRIDE = 68, DIAGONAL_STRIDE = 20, HEADS = 4 };

struct below {
    float a[GDN_CHUNK * STRIDE]; /* A, rows: of diagonal blocks; below, pairs of elements as `split` */
    float diagonal[GDN_CHUNK * DIAGONAL_STRIDE]; /* inverses of its diagonal blocks, rows */
};

struct prepare_shared {
    union {
        char tiles[2 * TILE]; /* k and q, until they are multiplied */
        below matrix;
    };
    qrn_gdn_piece piece;
    /* Of HEADS value heads at a time: G in two floats. */
    float high[HEADS][GDN_CHUNK], low[HEADS][GDN_CHUNK], beta[HEADS][GDN_CHUNK];
};

struct preparer {
    const qrn_gdn_open_chunk_params &p;
    prepare_shared &z;
    const double *open_G;
    gdn_rows_of_chunk rows;
    int kh;

    /* A warp: G of rows 2 lane, 2 lane + 1 of one value head. */
    __device__ void sum_gates(int slot, int64_t h)
    {
        double G[2];
        gdn_sum_gates(G, p, rows, open_G + h * GDN_CHUNK, h);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = 2 * qrn_lane() + i;
            const bool mine = r >= rows.open && r < rows.end;
            z.beta[slot][r] = mine          ? *gdn_at(p.x.beta, rows.first + r, h)
                              : r < rows.open ? 1.0f
                                              : 0.0f;
            z.high[slot][r] = (float)G[i];
            z.low[slot][r] = (float)(G[i] - (double)(float)G[i]);
        }
    }

    /* Of value heads i, i + 1 ... of the key head, a warp each. */
    __device__ void sum_gates_of(int i, int end)
    {
        const int warp = qrn_warp();
        if (i + warp < end) sum_gates(warp, gdn_value_head(p.x.heads, kh, i + warp));
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

    __device__ void gates(int slot)
    {
        const int r = threadIdx.x;
        if (r >= GDN_CHUNK) return;
        const bool mine = r >= rows.open && r < rows.end, closes = rows.end == GDN_CHUNK;
        const float e = qrn_exp(z.high[slot][r]);
        z.piece.gates.p[r] = mine ? e : 0.0f;
        z.piece.gates.q[r] = mine ? p.scale * e : 0.0f;
        z.piece.gates.edge[r] = closes ? decay(slot, GDN_CHUNK - 1, r) : 0.0f;
        if (r < 4) z.piece.gates.last[r] = qrn_exp(z.high[slot][GDN_CHUNK - 1]);
    }

    /* Two floats, each the sum of two bf16. */
    static __device__ __forceinline__ void split(float a, float b, uint32_t *high, uint32_t *low)
    {
        *high = qrn_bf16_pair(a, b);
        *low = qrn_bf16_pair(a - qrn_float_of_bf16((uint16_t)*high),
                             b - qrn_float_of_bf16((uint16_t)(*high >> 16)));
    }

    /* This warp's 16 rows of A and scores, from its sums of products, which are 0 of rows that are
     * not the call's.  In blocks below the diagonal exp(G_r - G_s) is made of two factors, by way of
     * the first of the 16 rows: no one is above 1 where none of the decays is. */
    __device__ void weigh(int slot, const float (&kk)[32], const float (&qk)[32])
    {
        const int warp = qrn_warp(), row = 16 * warp + qrn_lane() / 4, column = qrn_lane() % 4 * 2;
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
                split(a * (w[0] * kk[at]), a * (w[1] * kk[at + 1]), &halves.x, &halves.y);
                *(uint2 *)(z.matrix.a + r * STRIDE + s) = halves;
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
                *(float2 *)(z.matrix.a + r * STRIDE + s) =
                    make_float2(s < r ? beta * w[0] * kk[at] : 0.0f,
                                s + 1 < r ? beta * w[1] * kk[at + 1] : 0.0f);
                put_scores(r, s, s <= r ? p.scale * w[0] * qk[at] : 0.0f,
                           s < r ? p.scale * w[1] * qk[at + 1] : 0.0f);
            }
        }
    }
    __device__ __forceinline__ void put_scores(int r, int s, float x, float y)
    {
        *(uint32_t *)(z.piece.scores + qrn_in_atom(r, 2 * s)) = qrn_bf16_pair(x, y);
    }

    /* The warp's diagonal block D: its halves of 8 by substitution, half a warp each, a column a
     * lane; then below them -D_1 (A D_0), two elements a lane. */
    __device__ void invert_diagonal()
    {
        enum { HALF = 8 };
        const int first = 16 * qrn_warp(), lane = qrn_lane(), half = lane / 16 * HALF;
        const float *const a = z.matrix.a + (first + half) * STRIDE + first + half;
        float *const inverse = z.matrix.diagonal + first * DIAGONAL_STRIDE;
        float x[HALF];
        const int c = lane % HALF;
#pragma unroll
        for (int r = 0; r < HALF; r++) {
            float y = r == c ? 1.0f : 0.0f;
#pragma unroll
            for (int s = 0; s < r; s += 2) {
                const float2 v = *(const float2 *)(a + r * STRIDE + s);
                y = fmaf(-v.x, x[s], y);
                if (s + 1 < r) y = fmaf(-v.y, x[s + 1], y);
            }
            x[r] = y;
        }
        float *to = inverse + half * DIAGONAL_STRIDE + half + c;
#pragma unroll
        for (int r = 0; r < HALF; r++)
            if (lane % 16 < HALF) to[r * DIAGONAL_STRIDE] = x[r];
        const int row = lane % HALF, column = lane / HALF * 2;
        float2 *const below = (float2 *)(inverse + (HALF + row) * DIAGONAL_STRIDE + column);
        *(float2 *)(inverse + row * DIAGONAL_STRIDE + HALF + column) = make_float2(0.0f, 0.0f);
        __syncwarp();
        const float2 product = times(z.matrix.a + (first + HALF + row) * STRIDE + first,
                                     inverse + column, DIAGONAL_STRIDE);
        *below = product;
        __syncwarp();
        const float2 m = times(inverse + (HALF + row) * DIAGONAL_STRIDE + HALF,
                               inverse + HALF * DIAGONAL_STRIDE + column, DIAGONAL_STRIDE);
        __syncwarp();
        *below = make_float2(-m.x, -m.y);
    }

    /* A row of 8 times two columns. */
    static __device__ __forceinline__ float2 times(const float *row, const float *columns,
                                                   int stride)
    {
        float2 sum = make_float2(0.0f, 0.0f);
        const float4 a = *(const float4 *)row, b = *(const float4 *)(row + 4);
        const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float2 v = *(const float2 *)(columns + k * stride);
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
                split(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], &high[i], &low[i]);
        }
    };

    /* sum += x y^T, 16 x 16 each; y rows in shared memory, in halves already or not. */
    template <bool in_halves>
    static __device__ __forceinline__ void multiply(float (&sum)[2][4], const operand &x,
                                                    const float *y, int stride)
    {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float *row = y + (8 * n + qrn_lane() / 4) * stride + qrn_lane() % 4 * 2;
            uint32_t y_high[2], y_low[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (in_halves) {
                    const uint2 v = *(const uint2 *)(row + 8 * i);
                    y_high[i] = v.x, y_low[i] = v.y;
                } else {
                    const float2 v = *(const float2 *)(row + 8 * i);
                    split(v.x, v.y, &y_high[i], &y_low[i]);
                }
            }
            qrn_mma_bf16(sum[n], x.low, y_high);
            qrn_mma_bf16(sum[n], x.high, y_low);
            qrn_mma_bf16(sum[n], x.high, y_high);
        }
    }

    /* Block (i, j) of the inverse times beta of its columns, from its transposed. */
    __device__ __forceinline__ void put_block(int i, int j, const float (&m)[2][4],
                                              const float (&beta)[2])
    {
        const int c = 16 * j + qrn_lane() / 4, r = 16 * i + qrn_lane() % 4 * 2;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                *(uint16_t *)(z.piece.inverse +
                              qrn_in_atom(r + 8 * n + e % 2, 2 * (c + e / 2 * 8))) =
                    (uint16_t)qrn_bf16_pair(beta[e / 2] * m[n][e], 0.0f);
    }

    /* Block column j of the inverse M, j the warp: M_ij = -D_i (sum over k = j .. i - 1 of A_ik
     * M_kj); each M_kj is added to all sums that want it, then forgotten. */
    __device__ void invert_below(int slot)
    {
        const int j = qrn_warp();
        const float *const diagonal = z.matrix.diagonal,
                    *const of_columns = z.beta[slot] + 16 * j + qrn_lane() / 4;
        const float beta[2] = {of_columns[0], of_columns[8]};
        float sums[4][2][4] = {}; /* the first is M_jj */
        operand m;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[0][n][e] =
                    diagonal[(16 * j + 8 * n + qrn_lane() % 4 * 2 + e % 2) * DIAGONAL_STRIDE +
                             qrn_lane() / 4 + e / 2 * 8];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (j + k >= 4) continue;
            if (k > 0) {
                float negative[2][4], x[2][4] = {};
#pragma unroll
                for (int n = 0; n < 2; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) negative[n][e] = -sums[k][n][e];
                m.take(negative);
                multiply<false>(x, m, diagonal + 16 * (j + k) * DIAGONAL_STRIDE, DIAGONAL_STRIDE);
                m.take(x);
                put_block(j + k, j, x, beta);
            } else {
                m.take(sums[0]);
                put_block(j, j, sums[0], beta);
            }
#pragma unroll
            for (int i = k + 1; i < 4; i++)
                if (j + i < 4)
                    multiply<true>(sums[i], m, z.matrix.a + 16 * (j + i) * STRIDE + 16 * (j + k), STRIDE);
        }
    }
};

/* The chunk of a number, if there is one. */
static __device__ bool find_chunk(const qrn_gdn_open_chunk_params &p, int64_t number,
                                  gdn_sequence *q, int *wave)
{
    const qrn_ragged &r = p.x.sequences;
    int64_t low = 0, high = r.n_seqs; /* the last sequence whose first number is not above */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        const int64_t begin = qrn_clamp(r.seq_begin[middle], 0, r.n_tokens);
        if (begin / GDN_CHUNK + 2 * middle <= number)
            low = middle;
        else
            high = middle;
    }
    if (r.n_seqs == 0) return false;
    q->find(p, low);
    *wave = (int)(number - gdn_first_number(*q));
    return !q->unknown && *wave >= 0 && *wave < q->n_segments();
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
    preparer x{p.c, z, nullptr, {}, (int)p.first_k_head + of_wave};
    if (threadIdx.x == 0) {
        exists = find_chunk(p.c, number, &sequence, &wave);
        qrn_barrier_init(&full, 1);
        qrn_barriers_are_ready();
    }
    __syncthreads();
    if (!exists) return;
    gdn_segment g;
    g.find(p.c, sequence, wave);
    x.open_G = g.G;
    x.rows = gdn_rows_of_sequence(sequence).of(wave);
    if (threadIdx.x == 0) {
        qrn_barrier_arrive_expecting(&full, 2 * TILE);
        gdn_load_tile(z.tiles, &p.k, x.rows.first, x.kh, &full);
        gdn_load_tile(z.tiles + TILE, &p.q, x.rows.first, x.kh, &full);
    }
    for (int i = threadIdx.x; i < 2 * SQUARE / 16;
         i += THREADS) /* what stays 0 above the diagonals */
        ((uint4 *)z.piece.inverse)[i] = make_uint4(0, 0, 0, 0);
    x.sum_gates_of(begin, end);
    qrn_barrier_wait(&full, 0);
    if (x.rows.open) {
        gdn_place_open_keys(z.tiles, g.k + (int64_t)x.kh * WIDTH * GDN_CHUNK, x.rows.open, THREADS);
        qrn_fence_async();
        __syncthreads();
    }
    float kk[32], qk[32];
    multiply_tiles(z.tiles, kk, qk);
    x.forget_others(kk);
    x.forget_others(qk);
    qrn_gdn_piece *const pieces = p.pieces + (int64_t)item * ratio;
    for (int i = begin; i < end; i++) {
        const int slot = (i - begin) % HEADS;
        if (slot == 0) {
            __syncthreads(); /* tiles and the last heads' gates are done with */
            if (i > begin) {
                x.sum_gates_of(i, end);
                __syncthreads();
            }
        }
        x.gates(slot);
        x.weigh(slot, kk, qk);
        __syncwarp();
        x.invert_diagonal();
        __syncthreads();
        x.invert_below(slot);
        __syncthreads();
        for (int n = threadIdx.x; n < (int)sizeof(qrn_gdn_piece) / 16; n += THREADS)
            ((uint4 *)(pieces + i))[n] = ((const uint4 *)&z.piece)[n];
        __syncthreads();
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

/* What stays of a sequence's last two chunks besides u: keys and G, when nobody reads the old
 * ones any more; the older chunk first, as both may be one memory.  A block has some rows of a
 * key head's keys and some of its value heads. */
QRN_DEVICE_FUNCTION(qrn_gdn_open_leave, 256, 4, qrn_gdn_wgmma_params)
{
    enum { PARTS = QRN_GDN_WGMMA_PARTS, ROWS = GDN_CHUNK / PARTS, AT_ONCE = 256 / WIDTH };
    static_assert(ROWS % AT_ONCE == 0, "");
    const qrn_gdn_open_chunk_params &c = p.c;
    const int64_t item = blockIdx.x / PARTS, s = item / c.x.heads.n_k,
                  kh = item - s * c.x.heads.n_k, ratio = c.x.heads.n_v / c.x.heads.n_k;
    const int part = (int)(blockIdx.x % PARTS);
    gdn_sequence q;
    q.find(c, s);
    const int n_waves = q.unknown ? 0 : q.n_segments();
    for (int wave = n_waves > 2 ? n_waves - 2 : 0; wave < n_waves; wave++) {
        gdn_segment g;
        g.find(c, q, wave);
        const gdn_rows_of_chunk rows = gdn_rows_of_sequence(q).of(wave);
        float x[ROWS / AT_ONCE];
        const int e = (int)threadIdx.x % WIDTH, r0 = part * ROWS + (int)threadIdx.x / WIDTH;
#pragma unroll /* loads at once */
        for (int i = 0; i < ROWS / AT_ONCE; i++) {
            const int r = r0 + i * AT_ONCE;
            const int64_t from = (rows.first + r) * c.x.k.token + kh * c.x.k.head + e;
            x[i] = 0.0f;
            if (r < rows.open || r >= rows.end) continue;
            x[i] = p.out_is_bf16 ? qrn_float_of_bf16(((const uint16_t *)c.x.k.data)[from])
                                 : c.x.k.data[from];
        }
        for (int64_t i = part * 8 + qrn_warp(); i < ratio; i += 8 * PARTS) {
            const int64_t h = gdn_value_head(c.x.heads, kh, i);
            double G[2];
            gdn_sum_gates(G, c, rows, g.G + h * GDN_CHUNK, h);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int r = 2 * qrn_lane() + n;
                if (r >= rows.open && r < rows.end) g.G[h * GDN_CHUNK + r] = G[n];
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS / AT_ONCE; i++) {
            const int r = r0 + i * AT_ONCE;
            if (r >= rows.open && r < rows.end) g.k[(kh * GDN_CHUNK + r) * WIDTH + e] = x[i];
        }
        __syncthreads();
    }
}
