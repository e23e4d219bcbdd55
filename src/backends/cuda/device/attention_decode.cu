/* SPDX-License-Identifier: MIT
 * attention_paged for few rows: sequences that grow by a token or some, halves in the cache, heads of
 * 64, 128 and 256.
 *
 * Bound by the bytes of keys and values: a tile is all heads of a group, 8 rows or 16, so that those
 * are read once.  Blocks of 64 keys are given to as many blocks of threads as have room at once, two
 * for each multiprocessor, in equal shares (qrn_attention_share).  A block of threads has room for
 * three tiles of 64 x D halves, keys and values in turn; two of them are always under way, at D 256 128
 * KB in a multiprocessor.  Work on 64 keys takes about 2000 cycles (a chain of 16 mma for the scores, of 8
 * for the values, 3 barriers), in which 64 KB come where two blocks of threads have 18 bytes a
 * cycle: 7000 cycles.
 *
 * Each of 4 warps has 16 keys of the scores, then D / 4 dimensions of the output; queries stay in
 * registers as mma has them.  Of 8 rows, the lower half of a fragment are what the upper one left
 * over when it was rounded to halves (attention_mma.cu): one mma does for both; of 16 rows, what is
 * left over lies in shared memory.  The bits are those of attention_mma.cu. */
#include "backends/cuda/device/attention_mma.cuh"

enum { WARPS = 4, DECODE_THREADS = 32 * WARPS, WARP_KEYS = BLOCK / WARPS, STAGES = 3 };

template <int D, int R> struct decode_shared {
    uint16_t tiles[STAGES]
                  [BLOCK * D]; /* keys of the first block, its values, keys of the next ... */
    uint16_t p[2][16 * BLOCK];
    uint4 low[R == 16 ? D / 16 : 1][32]; /* of queries, a lane's piece of each fragment */
    float most[R][WARPS], sums[R][8];
    int64_t bad;
    qrn_attention_tile tile;
    qrn_attention_row row[R]; /* those past the tile's are as its first */
};

/* Queries as fragments of mma, scaled by a power of two to below 32. */
template <int D, int R> struct decode_queries {
    uint32_t high[D / 16][4];
    float inverse[R / 8];

    /* Row lane / 4, and 8 below with h of 1; low is shared memory. */
    __device__ __forceinline__ void load_row(const float *q, int h, uint4 (*low)[32])
    {
        float x[D / 4], most = 0.0f;
        const int t = qrn_lane() % 4 * 2;
        const bool in_pairs = qrn_is_aligned(q, 8);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            float2 y = make_float2(0.0f, 0.0f);
            if (q && in_pairs)
                y = *(const float2 *)(q + 8 * i + t);
            else if (q)
                y = make_float2(q[8 * i + t], q[8 * i + t + 1]);
            x[2 * i] = y.x, x[2 * i + 1] = y.y;
        }
#pragma unroll
        for (int i = 0; i < D / 4; i++) most = fmaxf(most, fabsf(x[i]));
        most = fmaxf(most, __shfl_xor_sync(QRN_ALL_OF_WARP, most, 1));
        most = fmaxf(most, __shfl_xor_sync(QRN_ALL_OF_WARP, most, 2));
        const int biased = (int)(__float_as_uint(most) >> 23);
        const int exponent = biased < 5 ? 5 : biased > 254 ? 254 : biased;
        const float factor = __uint_as_float((uint32_t)(258 - exponent) << 23);
        inverse[h] = __uint_as_float((uint32_t)(exponent - 4) << 23);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            uint32_t upper, rest;
            split(x[2 * i] * factor, x[2 * i + 1] * factor, &upper, &rest);
            if constexpr (R == 16) {
                high[i / 2][i % 2 * 2 + h] = upper;
                if (qrn_warp() == 0) ((uint32_t *)&low[i / 2][qrn_lane()])[i % 2 * 2 + h] = rest;
            } else {
                high[i / 2][i % 2 * 2] = upper;
                high[i / 2][i % 2 * 2 + 1] = rest;
            }
        }
    }
};

template <int D, int R, bool shares> struct decode {
    static const int H = R / 8, keys = WARP_KEYS / 8,
                     dims = D / WARPS / 8; /* tiles of 8 of a warp */

    const qrn_attention_params &p;
    decode_shared<D, R> &s;
    const qrn_attention_tile &t;
    decode_queries<D, R> q;
    int64_t kv_head;
    int first_key, first_dim; /* of the warp */
    float m[H], l[H], total_m[H], total_l[H];
    float o[dims][4], total[shares ? 1 : dims][4];

    __device__ __forceinline__ decode(const qrn_attention_params &params,
                                      decode_shared<D, R> &shared)
        : p(params), s(shared), t(shared.tile), kv_head(blockIdx.y)
    {
        first_key = qrn_warp() * WARP_KEYS;
        first_dim = qrn_warp() * (D / WARPS);
#pragma unroll
        for (int h = 0; h < H; h++) {
            total_m[h] = QRN_MINUS_INFINITY;
            total_l[h] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < (shares ? 1 : dims); i++)
            total[i][0] = total[i][1] = total[i][2] = total[i][3] = 0.0f;
        begin_run();
    }

    __device__ __forceinline__ int row_at(int h) const
    {
        return qrn_lane() / 4 + 8 * h;
    }

    __device__ __forceinline__ void begin_run()
    {
#pragma unroll
        for (int i = 0; i < dims; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
#pragma unroll
        for (int h = 0; h < H; h++) {
            m[h] = QRN_MINUS_INFINITY;
            l[h] = 0.0f;
        }
    }

    __device__ __forceinline__ void load_queries()
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            const int r = row_at(h);
            q.load_row(r < t.n_rows ? qrn_attention_q(p, t, s.row[r]) : nullptr, h, s.low);
        }
        /* Weights of rows that there are not. */
        if (R == 8)
            for (int i = (int)threadIdx.x; i < 2 * 8 * BLOCK / 2; i += DECODE_THREADS)
                *(uint32_t *)&s.p[i / (8 * BLOCK / 2)][8 * BLOCK + i % (8 * BLOCK / 2) * 2] = 0;
    }

    /* [D][64] of a page. */
    __device__ __forceinline__ void copy_keys(const uint16_t *from, uint16_t *to)
    {
        const int line = (int)threadIdx.x / 8, piece = (int)threadIdx.x % 8;
        to = place<BLOCK>(to, line, piece);
        if (from) {
            from += threadIdx.x * 8;
#pragma unroll
            for (int n = 0; n < D / 16; n++)
                qrn_copy16_async(to + n * (16 * BLOCK), from + n * (16 * BLOCK), 16);
        }
        qrn_copies_commit();
    }

    /* [64][D] of a page; zeros for keys outside of begin .. end - 1. */
    __device__ __forceinline__ void copy_values(const uint16_t *from, int begin, int end,
                                                uint16_t *to)
    {
        const int lines = 8 * DECODE_THREADS / D; /* at once */
        const int key = (int)threadIdx.x / (D / 8), piece = (int)threadIdx.x % (D / 8);
        uint16_t *const at[2] = {place<D>(to, key, piece), place<D>(to, key + lines, piece)};
        if (from && begin == 0 && end == BLOCK) {
            from += threadIdx.x * 8;
#pragma unroll
            for (int n = 0; n < BLOCK / lines; n++)
                qrn_copy16_async(at[n % 2] + n / 2 * (2 * lines * D), from + n * (lines * D), 16);
        } else {
#pragma unroll 2
            for (int n = 0; n < BLOCK / lines; n++) {
                const int k = n * lines + key;
                copy_piece(p, place<D>(to, k, piece), from + k * D + piece * 8,
                           from && k >= begin && k < end);
            }
        }
        qrn_copies_commit();
    }

    __device__ __forceinline__ void load_low(uint32_t (&a)[4], int i)
    {
        const uint4 x = s.low[i][qrn_lane()];
        a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w;
    }

    /* x = q k over D, of this thread's rows. */
    __device__ __forceinline__ void products(float (&x)[keys][2 * H], uint16_t *k)
    {
        float c[keys][4] = {}, d[keys][4] = {};
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            uint32_t low[2][4];
            if constexpr (R == 16) {
                load_low(low[0], 2 * i);
                load_low(low[1], 2 * i + 1);
            }
#pragma unroll
            for (int j = 0; j < keys; j++) {
                uint32_t b[4];
                qrn_ldmatrix4_transposed(b,
                                         place<BLOCK>(k, 32 * i + qrn_lane(), first_key / 8 + j));
                const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
                if constexpr (R == 16) qrn_mma_f16(d[j], low[0], first);
                qrn_mma_f16(c[j], q.high[2 * i], first);
                if constexpr (R == 16) qrn_mma_f16(d[j], low[1], second);
                qrn_mma_f16(c[j], q.high[2 * i + 1], second);
            }
        }
#pragma unroll
        for (int j = 0; j < keys; j++)
#pragma unroll
            for (int i = 0; i < 2 * H; i++) x[j][i] = c[j][i] + (R == 16 ? d[j][i] : c[j][i + 2]);
    }

    /* Products become scores in base 2, -infinity where nothing is attended to; the greatest of the
     * warp's keys, for all warps to see. */
    __device__ __forceinline__ void scores(float (&x)[keys][2 * H], int64_t block, int c,
                                           bool there)
    {
        const int at = first_key + qrn_lane() % 4 * 2;
#pragma unroll
        for (int h = 0; h < H; h++) {
            const int r = row_at(h);
            int begin = 0, end = BLOCK;
            if (c != 2) {
                begin = (int)max(s.row[r].begin - block * BLOCK, (int64_t)0);
                end = (int)min(s.row[r].end - block * BLOCK, (int64_t)BLOCK);
            }
            float most = QRN_MINUS_INFINITY;
#pragma unroll
            for (int i = 0; i < keys; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const int key = at + 8 * i + j;
                    float y = qrn_attention_score(p, x[i][2 * h + j] * q.inverse[h]);
                    if (!there) y = __uint_as_float(0x7fc00000u);
                    if (key < begin || key >= end) y = QRN_MINUS_INFINITY;
                    x[i][2 * h + j] = y * QRN_LOG2_E;
                    most = fmaxf(most, x[i][2 * h + j]);
                }
            most = fmaxf(most, __shfl_xor_sync(QRN_ALL_OF_WARP, most, 1));
            most = fmaxf(most, __shfl_xor_sync(QRN_ALL_OF_WARP, most, 2));
            if (qrn_lane() % 4 == 0) s.most[r][qrn_warp()] = most;
        }
    }

    /* Weights into shared memory; what has been added up so far shrinks. */
    __device__ __forceinline__ void weights(const float (&x)[keys][2 * H])
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            const int r = row_at(h);
            float most = m[h];
#pragma unroll
            for (int i = 0; i < WARPS; i++) most = fmaxf(most, s.most[r][i]);
            const float shrink = qrn_exp2_below(m[h], most);
            m[h] = most;
            l[h] *= shrink;
#pragma unroll
            for (int i = 0; i < dims; i++) {
                o[i][2 * h] *= shrink;
                o[i][2 * h + 1] *= shrink;
            }
#pragma unroll
            for (int i = 0; i < keys; i++) {
                const float a = qrn_exp2_below(x[i][2 * h], most),
                            b = qrn_exp2_below(x[i][2 * h + 1], most);
                uint32_t high, low;
                split(a, b, &high, &low);
                const int piece = first_key / 8 + i, at = qrn_lane() % 4 * 2;
                *(uint32_t *)(place<BLOCK>(s.p[0], r, piece) + at) = high;
                *(uint32_t *)(place<BLOCK>(s.p[1], r, piece) + at) = low;
                float sum = a + b;
                sum += __shfl_xor_sync(QRN_ALL_OF_WARP, sum, 1);
                sum += __shfl_xor_sync(QRN_ALL_OF_WARP, sum, 2);
                if (qrn_lane() % 4 == 0) s.sums[r][piece] = sum;
            }
        }
    }

    __device__ __forceinline__ void add_values(uint16_t *v)
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            const float *sums = s.sums[row_at(h)];
            float sum = sums[0];
#pragma unroll
            for (int i = 1; i < 8; i++) sum += sums[i];
            l[h] += sum;
        }
#pragma unroll
        for (int key = 0; key < BLOCK; key += 32) {
            uint32_t high[2][4], low[2][4];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                load_a<BLOCK>(high[k], s.p[0], 0, key / 8 + 2 * k);
                load_a<BLOCK>(low[k], s.p[1], 0, key / 8 + 2 * k);
            }
#pragma unroll
            for (int i = 0; i < dims; i++) {
                uint32_t b[4];
                qrn_ldmatrix4_transposed(b, place<D>(v, key + qrn_lane(), first_dim / 8 + i));
                multiply(o[i], high, low, b);
            }
        }
    }

    /* What remove_bad_values took out, for the rows that attend to it. */
    __device__ __forceinline__ void add_bad_values(const uint16_t *v, int begin, int end)
    {
#pragma unroll 1
        for (int key = begin; key < end; key++) {
            float w[H];
#pragma unroll
            for (int h = 0; h < H; h++)
                w[h] = unpack(place<BLOCK>(s.p[0], row_at(h), key / 8)[key % 8]) +
                       unpack(place<BLOCK>(s.p[1], row_at(h), key / 8)[key % 8]);
#pragma unroll
            for (int i = 0; i < dims; i++)
#pragma unroll
                for (int j = 0; j < 2 * H; j++) {
                    const int d = first_dim + 8 * i + qrn_lane() % 4 * 2 + j % 2;
                    const uint16_t bits = v[key * D + d];
                    if ((bits & 0x7c00) == 0x7c00 && w[j / 2] != 0.0f)
                        o[i][j] = fmaf(w[j / 2], unpack(bits), o[i][j]);
                }
        }
    }

    __device__ __forceinline__ void end_run(int run)
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            if constexpr (shares) {
                const qrn_attention_row &r = s.row[row_at(h)];
                if (row_at(h) >= t.n_rows || run < qrn_attention_first_run(r) ||
                    !qrn_attention_reaches(r, run))
                    continue;
                float *to = qrn_attention_partial(p, t, r, run);
                if (first_dim == 0 && qrn_lane() % 4 == 0) to[D] = m[h], to[D + 1] = l[h];
#pragma unroll
                for (int i = 0; i < dims; i++)
                    *(float2 *)(to + first_dim + 8 * i + qrn_lane() % 4 * 2) =
                        make_float2(o[i][2 * h], o[i][2 * h + 1]);
            } else {
                const qrn_attention_merge merge = qrn_attention_merging(total_m[h], m[h], l[h]);
                if (merge.empty) continue;
                total_m[h] = merge.m;
                total_l[h] = fmaf(l[h], merge.b, total_l[h] * merge.a);
#pragma unroll
                for (int i = 0; i < dims; i++)
#pragma unroll
                    for (int j = 2 * h; j < 2 * h + 2; j++)
                        total[i][j] = fmaf(o[i][j], merge.b, total[i][j] * merge.a);
            }
        }
        begin_run();
    }

    __device__ __forceinline__ void store_rows()
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            if (row_at(h) >= t.n_rows) continue;
            float *to = qrn_attention_out(p, t, s.row[row_at(h)]) + first_dim + qrn_lane() % 4 * 2;
            const float sum = total_l[h];
#pragma unroll
            for (int i = 0; i < dims; i++) {
                float2 y = sum == 0.0f
                               ? make_float2(0.0f, 0.0f)
                               : make_float2(total[i][2 * h] / sum, total[i][2 * h + 1] / sum);
                if (t.bad) y.x = y.y = __uint_as_float(0x7fc00000u);
                if (qrn_is_aligned(to, 8))
                    *(float2 *)(to + 8 * i) = y;
                else
                    to[8 * i] = y.x, to[8 * i + 1] = y.y;
            }
        }
    }

    __device__ __forceinline__ void range_in(int64_t block, int *begin, int *end)
    {
        *begin = (int)max(t.begin - block * BLOCK, (int64_t)0);
        *end = (int)min(t.end - block * BLOCK, (int64_t)BLOCK);
    }

    __device__ __forceinline__ void walk()
    {
        int64_t block, end;
        int begin_key, end_key, stage = 0;
        qrn_attention_share(t, &block, &end);
        int run = (int)QRN_ATTENTION_RUN_OF(block);
        source now = {nullptr, nullptr}, next = {nullptr, nullptr};
        if (block < end) {
            now = source_of<D, true>(p, t, kv_head, block);
            if (block + 1 < end) next = source_of<D, true>(p, t, kv_head, block + 1);
            range_in(block, &begin_key, &end_key);
        }
        qrn_grid_waits();
        if (block < end) {
            copy_keys(now.k, s.tiles[0]);
            copy_values(now.v, begin_key, end_key, s.tiles[1]);
            load_queries();
        }
        for (; block < end; block++) {
            /* stage has keys, the next one their values, the one after it what comes next. */
            uint16_t *const k = s.tiles[stage], *const v = s.tiles[(stage + 1) % STAGES],
                            *const after = s.tiles[(stage + 2) % STAGES];
            const bool more = block + 1 < end;
            const int c = qrn_attention_class(p, t, block);
            float x[keys][2 * H];
            qrn_copies_wait<1>();
            __syncthreads();
            if (threadIdx.x == 0) s.bad = 0;
            copy_keys(more ? next.k : nullptr, after);
            source then = {nullptr, nullptr};
            if (block + 2 < end) then = source_of<D, true>(p, t, kv_head, block + 2);
            products(x, k);
            scores(x, block, c, now.k != nullptr);
            __syncthreads();
            if (more) {
                range_in(block + 1, &begin_key, &end_key);
                copy_values(next.v, begin_key, end_key, k);
            } else {
                qrn_copies_commit();
            }
            weights(x);
            qrn_copies_wait<2>();
            if (c != 2) remove_bad_values<D, DECODE_THREADS>(v, &s.bad);
            __syncthreads();
            add_values(v);
            if (c != 2 && s.bad) {
                range_in(block, &begin_key, &end_key);
                add_bad_values(now.v, begin_key, end_key);
            }
            stage = (stage + 2) % STAGES;
            now = next;
            next = then;
            if (!more || QRN_ATTENTION_RUN_OF(block + 1) != run) end_run(run++);
        }
        if (!shares) store_rows();
    }
};

template <int D, int R, bool shares>
static __device__ __forceinline__ void attention_decode(const qrn_attention_params &p, void *memory)
{
    decode_shared<D, R> &s = *(decode_shared<D, R> *)memory;
    if (!p.numbers_stay) qrn_grid_waits();
    if (qrn_warp() == 0) {
        const int64_t nth = blockIdx.x, seq = qrn_attention_seq_by_warp(p, nth, R);
        const qrn_attention_tile t = qrn_attention_tile_of_seq(p, seq, nth, R);
        if (qrn_lane() < R)
            s.row[qrn_lane()] =
                qrn_attention_row_of(p, t, blockIdx.y, qrn_lane() < t.n_rows ? qrn_lane() : 0);
        if (qrn_lane() == 0) s.tile = t;
    }
    __syncthreads();
    if (s.tile.n_rows > 0) decode<D, R, shares>(p, s).walk();
    else qrn_grid_waits();
}

/* attention_cuda.c says how much shared memory there is. */
static_assert(sizeof(decode_shared<256, 16>) <= 416 * 256 + 5552, "");
static_assert(sizeof(decode_shared<64, 16>) <= 416 * 64 + 5552, "");
static_assert(sizeof(decode_shared<64, 8>) <= 416 * 64 + 5552, "");

#define DECODE(name, D, R, shares)                                                       \
    QRN_DEVICE_FUNCTION_EARLY(qrn_attention_decode_##name, 128, 2, qrn_attention_params) \
    {                                                                                    \
        QRN_DYNAMIC_SHARED(uint4, memory);                                               \
        attention_decode<D, R, shares>(p, memory);                                       \
    }

DECODE(8_64, 64, 8, false)
DECODE(8_128, 128, 8, false)
DECODE(8_256, 256, 8, false)
DECODE(16_64, 64, 16, false)
DECODE(16_128, 128, 16, false)
DECODE(16_256, 256, 16, false)
DECODE(shared_8_64, 64, 8, true)
DECODE(shared_8_128, 128, 8, true)
DECODE(shared_8_256, 256, 8, true)
DECODE(shared_16_64, 64, 16, true)
DECODE(shared_16_128, 128, 16, true)
DECODE(shared_16_256, 256, 16, true)
