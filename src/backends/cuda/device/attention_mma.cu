/* SPDX-License-Identifier: MIT
 * attention and attention_paged on tensor cores: halves in the cache, heads of 64, 128 and 256.
 *
 * Prefill, 64 rows a tile, is bound by what tensor cores read from shared memory.  Few rows, 16 a tile,
 * are bound by the bytes of keys and values: blocks of threads are many, with 64 keys and values under
 * way in each by cp.async while the block before is worked on (of pages: attention_decode.cuh).  Queries
 * and weights are float32: each is taken as the sum of two halves, so that products keep 22 bits and
 * two mma stand for one.
 *
 * 8 warps are RG groups of 16 rows x CG groups, of keys for the scores and of dimensions for the
 * output. Each sum's order is that of its keys and dimensions whatever RG and CG are: rows have the
 * same bits in decode as in prefill. */
#include "backends/cuda/device/attention_mma.cuh"

/* What a thread has of its two rows: lane / 4 of the warp's 16, and 8 below. */
struct thread_rows {
    float m[2], l[2], total_m[2], total_l[2];
};

template <int D, int RG, int CG, bool paged> struct mma_attention {
    static const int keys = BLOCK / CG / 8, dims = D / CG / 8; /* tiles of 8 of a warp */
    typedef mma_shared<D, RG, CG> shared;

    const qrn_attention_params &p;
    const qrn_attention_tile &t; /* in shared memory, as are rows: registers are for sums */
    shared &s;
    int64_t kv_head;
    int row, first_key, first_dim; /* of the warp */
    thread_rows rows;
    float o[dims][4], total[dims][4];

    __device__ __forceinline__ mma_attention(const qrn_attention_params &params, shared &memory)
        : p(params), t(memory.tile), s(memory), kv_head(blockIdx.y)
    {
        row = qrn_warp() / CG * 16;
        first_key = qrn_warp() % CG * (BLOCK / CG);
        first_dim = qrn_warp() % CG * (D / CG);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rows.total_m[i] = QRN_MINUS_INFINITY;
            rows.total_l[i] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < dims; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) total[i][j] = 0.0f;
        begin_run();
    }

    __device__ __forceinline__ int row_at(int h) const
    {
        return row + qrn_lane() / 4 + 8 * h;
    }

    __device__ __forceinline__ void begin_run()
    {
#pragma unroll
        for (int i = 0; i < dims; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) o[i][j] = 0.0f;
        rows.m[0] = rows.m[1] = QRN_MINUS_INFINITY;
        rows.l[0] = rows.l[1] = 0.0f;
    }

    /* x = q k over D. */
    __device__ __forceinline__ void products(float (&x)[keys][4])
    {
        const int lane = qrn_lane();
#pragma unroll
        for (int i = 0; i < keys; i++) x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0.0f;
        float y[keys][4] = {};
#pragma unroll(D < 256 ? 2 : 1)
        for (int d = 0; d < D; d += 32) {
            uint32_t high[2][4], low[2][4];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                load_a<D>(high[k], s.q[0], row, d / 8 + 2 * k);
                load_a<D>(low[k], s.q[1], row, d / 8 + 2 * k);
            }
#pragma unroll
            for (int i = 0; i < keys; i++) {
                uint32_t b[4];
                const int key = first_key + 8 * i;
                if (paged)
                    qrn_ldmatrix4_transposed(b, place<BLOCK>(s.k, d + lane, key / 8));
                else
                    qrn_ldmatrix4(b, place<D>(s.k, key + lane % 8, d / 8 + lane / 8));
                multiply_apart(x[i], y[i], high, low, b);
            }
        }
#pragma unroll
        for (int i = 0; i < keys; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) x[i][j] += y[i][j];
    }

    /* What is added to scores, into the place of the weights to come, which are as large. */
    __device__ __forceinline__ void load_mask(int64_t block)
    {
        float *mask = (float *)s.p;
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < t.n_rows * BLOCK; i += THREADS)
            mask[i] = qrn_attention_mask_at(p, t, s.row[i / BLOCK], block * BLOCK + i % BLOCK);
    }

    /* Products of block become scores in base 2, -infinity where nothing is attended to. */
    __device__ __forceinline__ void scores(float (&x)[keys][4], int block, int c, bool masked,
                                           bool there)
    {
        const int at = first_key + qrn_lane() % 4 * 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = row_at(h);
            const float inverse = s.inverse[r];
            const float2 *mask = (const float2 *)((const float *)s.p + r * BLOCK + at);
            int begin = 0, end = BLOCK;
            if (c != 2) {
                begin = (int)max(s.row[r].begin - (int64_t)block * BLOCK, (int64_t)0);
                end = (int)min(s.row[r].end - (int64_t)block * BLOCK, (int64_t)BLOCK);
            }
#pragma unroll
            for (int i = 0; i < keys; i++) {
                float2 add = make_float2(0.0f, 0.0f);
                if (masked && r < t.n_rows) add = mask[4 * i];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const int key = at + 8 * i + j;
                    const float more = j ? add.y : add.x;
                    float y = qrn_attention_score(p, x[i][2 * h + j] * inverse) + more;
                    if (!there) y = __uint_as_float(0x7fc00000u);
                    if (key < begin || key >= end || more == QRN_MINUS_INFINITY)
                        y = QRN_MINUS_INFINITY;
                    x[i][2 * h + j] = y * QRN_LOG2_E;
                }
            }
        }
    }

    /* The greatest of the warp's keys, for all warps to see. */
    __device__ __forceinline__ void share_most(const float (&x)[keys][4])
    {
        const int lane = qrn_lane();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = QRN_MINUS_INFINITY;
#pragma unroll
            for (int i = 0; i < keys; i++) most = fmaxf(most, fmaxf(x[i][2 * h], x[i][2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(QRN_ALL_OF_WARP, most, 1));
            most = fmaxf(most, __shfl_xor_sync(QRN_ALL_OF_WARP, most, 2));
            if (lane % 4 == 0) s.most[row_at(h)][qrn_warp() % CG] = most;
        }
    }

    /* Weights into shared memory; what has been added up so far shrinks. */
    __device__ __forceinline__ void weights(float (&x)[keys][4])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = row_at(h);
            float most = rows.m[h];
#pragma unroll
            for (int i = 0; i < CG; i++) most = fmaxf(most, s.most[r][i]);
            const float shrink = qrn_exp2_below(rows.m[h], most);
            rows.m[h] = most;
            rows.l[h] *= shrink;
#pragma unroll
            for (int i = 0; i < dims; i++) {
                o[i][2 * h] *= shrink;
                o[i][2 * h + 1] *= shrink;
            }
#pragma unroll
            for (int i = 0; i < keys; i++)
                put_weights(x[i][2 * h], x[i][2 * h + 1], most, r, first_key / 8 + i, s.p, s.sums[r]);
        }
    }

    __device__ __forceinline__ void add_values()
    {
        const int lane = qrn_lane();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *sums = s.sums[row_at(h)];
            float sum = sums[0];
#pragma unroll
            for (int i = 1; i < 8; i++) sum += sums[i];
            rows.l[h] += sum;
        }
#pragma unroll
        for (int key = 0; key < BLOCK; key += 32) {
            uint32_t high[2][4], low[2][4];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                load_a<BLOCK>(high[k], s.p[0], row, key / 8 + 2 * k);
                load_a<BLOCK>(low[k], s.p[1], row, key / 8 + 2 * k);
            }
#pragma unroll
            for (int i = 0; i < dims; i++) {
                uint32_t b[4];
                qrn_ldmatrix4_transposed(b, place<D>(s.v, key + lane, first_dim / 8 + i));
                multiply(o[i], high, low, b);
            }
        }
    }

    /* What remove_bad_values took out, for the rows that attend to it. */
    __device__ void add_bad_values(const uint16_t *v, int begin, int end)
    {
        const int64_t stride = paged ? D : p.v_token;
#pragma unroll 1
        for (int key = begin; key < end; key++) {
            float w[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int r = row_at(h);
                w[h] = unpack(place<BLOCK>(s.p[0], r, key / 8)[key % 8]) +
                       unpack(place<BLOCK>(s.p[1], r, key / 8)[key % 8]);
            }
#pragma unroll
            for (int i = 0; i < dims; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int d = first_dim + 8 * i + qrn_lane() % 4 * 2 + j % 2;
                    const uint16_t bits = v[key * stride + d];
                    if ((bits & 0x7c00) == 0x7c00 && w[j / 2] != 0.0f)
                        o[i][j] = fmaf(w[j / 2], unpack(bits), o[i][j]);
                }
        }
    }

    __device__ __forceinline__ void end_run(int run)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (p.partial) {
                const qrn_attention_row &r = s.row[row_at(h)];
                if (row_at(h) >= t.n_rows || run < qrn_attention_first_run(r) ||
                    !qrn_attention_reaches(r, run))
                    continue;
                float *to = qrn_attention_partial(p, t, r, run);
                if (first_dim == 0 && qrn_lane() % 4 == 0) to[D] = rows.m[h], to[D + 1] = rows.l[h];
#pragma unroll
                for (int i = 0; i < dims; i++)
                    *(float2 *)(to + first_dim + 8 * i + qrn_lane() % 4 * 2) =
                        make_float2(o[i][2 * h], o[i][2 * h + 1]);
                continue;
            }
            const qrn_attention_merge merge =
                qrn_attention_merging(rows.total_m[h], rows.m[h], rows.l[h]);
            if (merge.empty) continue;
            rows.total_m[h] = merge.m;
            rows.total_l[h] = fmaf(rows.l[h], merge.b, rows.total_l[h] * merge.a);
#pragma unroll
            for (int i = 0; i < dims; i++)
#pragma unroll
                for (int j = 2 * h; j < 2 * h + 2; j++)
                    total[i][j] = fmaf(o[i][j], merge.b, total[i][j] * merge.a);
        }
        begin_run();
    }

    __device__ __forceinline__ void store_rows()
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row_at(h) >= t.n_rows) continue;
            float *to = qrn_attention_out(p, t, s.row[row_at(h)]) + first_dim + qrn_lane() % 4 * 2;
            const float l = rows.total_l[h];
#pragma unroll
            for (int i = 0; i < dims; i++) {
                float2 y = l == 0.0f ? make_float2(0.0f, 0.0f)
                                     : make_float2(total[i][2 * h] / l, total[i][2 * h + 1] / l);
                if (t.bad) y.x = y.y = __uint_as_float(0x7fc00000u);
                if (qrn_is_aligned(to, 8))
                    *(float2 *)(to + 8 * i) = y;
                else
                    to[8 * i] = y.x, to[8 * i + 1] = y.y;
            }
        }
    }

    /* The block after `block` that has something to attend to, or end. */
    __device__ __forceinline__ int next_block(int block, int end, int *c)
    {
        for (block++; block < end; block++) {
            *c = qrn_attention_class(p, t, block);
            if (*c) return block;
        }
        return end;
    }

    __device__ __forceinline__ void range_in(int block, int *begin, int *end)
    {
        *begin = (int)max(t.begin - (int64_t)block * BLOCK, (int64_t)0);
        *end = (int)min(t.end - (int64_t)block * BLOCK, (int64_t)BLOCK);
    }

    __device__ __forceinline__ void walk()
    {
        int64_t first_block, last_block;
        qrn_attention_share(t, &first_block, &last_block);
        const int first = (int)first_block, end = (int)last_block;
        int run = QRN_ATTENTION_RUN_OF(first);
        int c = 0, next_c = 0, begin_key, end_key;
        int block = next_block(first - 1, end, &c);
        source now = {nullptr, nullptr}, next = {nullptr, nullptr};
        if (block < end) {
            now = source_of<D, paged>(p, t, kv_head, block);
            range_in(block, &begin_key, &end_key);
            copy_keys<D, paged>(p, now.k, begin_key, end_key, s.k);
        }
        load_queries<D, RG, CG>(p, t, s);
        while (block < end) {
            float x[keys][4];
            const int after = next_block(block, end, &next_c);
            if (paged && after < end) next = source_of<D, paged>(p, t, kv_head, after);
            for (; run != QRN_ATTENTION_RUN_OF(block); run++) end_run(run);
            range_in(block, &begin_key, &end_key);
            /* Where plain buffers have a block is worked out again rather than kept. */
            if (!paged) now = source_of<D, paged>(p, t, kv_head, block);
            copy_values<D, paged>(p, now.v, begin_key, end_key, s.v);
            const bool masked = c != 2 && (p.mask || p.classes);
            if (masked) load_mask(block);
            qrn_copies_wait<1>();
            __syncthreads();
            if (threadIdx.x == 0) s.bad = 0;
            products(x);
            scores(x, block, c, masked, !paged || now.v != nullptr);
            share_most(x);
            __syncthreads();
            if (after < end) {
                int next_begin, next_end;
                if (!paged) next = source_of<D, paged>(p, t, kv_head, after);
                range_in(after, &next_begin, &next_end);
                copy_keys<D, paged>(p, next.k, next_begin, next_end, s.k);
            } else {
                qrn_copies_commit();
            }
            weights(x);
            qrn_copies_wait<1>();
            if (c != 2) remove_bad_values<D>(s.v, &s.bad);
            __syncthreads();
            add_values();
            if (c != 2 && s.bad) {
                if (!paged) now = source_of<D, paged>(p, t, kv_head, block);
                add_bad_values(now.v, begin_key, end_key);
            }
            __syncthreads();
            block = after;
            if (paged) now = next;
            c = next_c;
        }
        if (first < end)
            for (; run <= QRN_ATTENTION_RUN_OF(end - 1); run++) end_run(run);
        if (!p.partial) store_rows();
    }
};

template <int D, int RG, int CG, bool paged>
static __device__ __forceinline__ void attention(const qrn_attention_params &p, void *memory)
{
    mma_shared<D, RG, CG> &s = *(mma_shared<D, RG, CG> *)memory;
    if (threadIdx.x == 0) s.tile = qrn_attention_tile_of(p, 16 * RG);
    __syncthreads();
    if (s.tile.n_rows <= 0) return;
    if (threadIdx.x < 16 * RG) {
        const int r = (int)threadIdx.x < s.tile.n_rows ? (int)threadIdx.x : 0;
        s.row[threadIdx.x] = qrn_attention_row_of(p, s.tile, blockIdx.y, r);
    }
    __syncthreads();
    mma_attention<D, RG, CG, paged>(p, s).walk();
}

/* attention_cuda.c says how much shared memory there is. */
static_assert(sizeof(mma_shared<256, 4, 2>) <=
                  4 * 64 * 256 + 256 * 256 + 256 * 64 + 64 * 4 * 11 + 32 * 64 + 160,
              "");
static_assert(sizeof(mma_shared<64, 1, 8>) <=
                  4 * 16 * 64 + 256 * 64 + 256 * 16 + 16 * 4 * 17 + 32 * 16 + 160,
              "");

#define ATTENTION(name, D, RG, CG, n_blocks, paged)                                    \
    QRN_DEVICE_FUNCTION(qrn_attention_mma_##name, 256, n_blocks, qrn_attention_params) \
    {                                                                                  \
        QRN_DYNAMIC_SHARED(uint4, memory);                                             \
        attention<D, RG, CG, paged>(p, memory);                                        \
    }

ATTENTION(few_64, 64, 1, 8, 2, false)
ATTENTION(few_128, 128, 1, 8, 2, false)
ATTENTION(few_256, 256, 1, 8, 2, false)
ATTENTION(many_64, 64, 4, 2, 1, false)
ATTENTION(many_128, 128, 4, 2, 1, false)
ATTENTION(many_256, 256, 4, 2, 1, false)
ATTENTION(paged_many_64, 64, 4, 2, 1, true)
ATTENTION(paged_many_128, 128, 4, 2, 1, true)
ATTENTION(paged_many_256, 256, 4, 2, 1, true)
