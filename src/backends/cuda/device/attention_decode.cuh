/* SPDX-License-Identifier: MIT
 * What attention_paged does for few rows: sequences that grow by a token or some, halves in the cache, heads of
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
 * Each of 4 warps has 16 keys of the scores, then D / 4 dimensions of the output; queries lie in
 * shared memory.  Of 8 rows, the lower half of a fragment are what the upper one left over when it was
 * rounded to halves (attention_mma.cu): one mma does for both; of 16 rows, the upper halves stay in
 * registers, for want of room.  The bits are those of attention_mma.cu. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_DECODE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_DECODE_CUH

#include "backends/cuda/device/attention_decode_shared.cuh"

/* Steps: what a launch does beside it (attention_alone.cuh says what that is). */
template <int D, int R, class Steps> struct decode {
    static const int H = R / 8, keys = WARP_KEYS / 8,
                     dims = D / WARPS / 8; /* tiles of 8 of a warp */

    const qrn_attention_params &p;
    decode_shared<D, R> &s;
    const qrn_attention_tile &t;
    Steps &steps;
    uint32_t high[R == 16 ? D / 16 : 1][4]; /* of 16 queries */
    int64_t kv_head;
    int first_key, first_dim; /* of the warp */
    int block = 0, end = 0,
        stage = 0; /* of keys, this block's that are left; where the first one is */
    source now = {nullptr, nullptr}, next = {nullptr, nullptr};
    float m[H], l[H], total_m[H], total_l[H];
    float o[dims][4], total[Steps::MERGES ? dims : 1][4];

    __device__ __forceinline__ decode(const qrn_attention_params &params,
                                      decode_shared<D, R> &shared, Steps &around)
        : p(params), s(shared), t(shared.tile), steps(around), kv_head(blockIdx.y)
    {
        first_key = qrn_warp() * WARP_KEYS;
        first_dim = qrn_warp() * (D / WARPS);
#pragma unroll
        for (int h = 0; h < H; h++) {
            total_m[h] = QRN_MINUS_INFINITY;
            total_l[h] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < (Steps::MERGES ? dims : 1); i++)
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

    /* Of 16 queries. */
    __device__ __forceinline__ void load_queries()
    {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < D / 16; i++) load_a<D>(high[i], s.tiles[2], 0, 2 * i);
        for (int i = qrn_warp(); i < D / 16; i += WARPS) {
            uint32_t low[4];
            load_a<D>(low, s.tiles[2] + R * D, 0, 2 * i);
            s.low[i][qrn_lane()] = make_uint4(low[0], low[1], low[2], low[3]);
        }
    }

    /* Weights of rows that there are not. */
    __device__ __forceinline__ void clear_weights()
    {
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

    /* [64][D] of a page, block nth; zeros for keys that the tile does not attend to. */
    __device__ __forceinline__ void copy_values(const uint16_t *from, int nth, uint16_t *to)
    {
        const int begin = first_in(nth), end = last_in(nth);
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
#pragma unroll(R == 8 ? 4 : D / 32)
        for (int i = 0; i < D / 32; i++) {
            uint32_t low[2][4], of_8[2][4];
            if constexpr (R == 16) {
                load_low(low[0], 2 * i);
                load_low(low[1], 2 * i + 1);
            } else {
                load_a<D>(of_8[0], s.q, 0, 4 * i);
                load_a<D>(of_8[1], s.q, 0, 4 * i + 2);
            }
#pragma unroll
            for (int j = 0; j < keys; j++) {
                uint32_t b[4];
                qrn_ldmatrix4_transposed(b,
                                         place<BLOCK>(k, 32 * i + qrn_lane(), first_key / 8 + j));
                const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
                if constexpr (R == 16) {
                    qrn_mma_f16(d[j], low[0], first);
                    qrn_mma_f16(c[j], high[2 * i], first);
                    qrn_mma_f16(d[j], low[1], second);
                    qrn_mma_f16(c[j], high[2 * i + 1], second);
                } else {
                    qrn_mma_f16(c[j], of_8[0], first);
                    qrn_mma_f16(c[j], of_8[1], second);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < keys; j++)
#pragma unroll
            for (int i = 0; i < 2 * H; i++) x[j][i] = c[j][i] + (R == 16 ? d[j][i] : c[j][i + 2]);
    }

    __device__ __forceinline__ void cap(float (&x)[keys][2 * H], int h) const
    {
#pragma unroll
        for (int i = 0; i < keys; i++)
#pragma unroll
            for (int j = 2 * h; j < 2 * h + 2; j++)
                x[i][j] = p.softcap * tanhf(x[i][j] / p.softcap);
    }

    /* Products become scores in base 2, -infinity where nothing is attended to; the greatest of the
     * warp's keys, for all warps to see. */
    __device__ __forceinline__ void scores(float (&x)[keys][2 * H], int block, bool whole,
                                           bool there)
    {
        const int at = first_key + qrn_lane() % 4 * 2;
#pragma unroll
        for (int h = 0; h < H; h++) {
            const int r = row_at(h);
            int begin = 0, end = BLOCK;
            if (!whole) {
                begin = (int)max(s.row[r].begin - (int64_t)block * BLOCK, (int64_t)0);
                end = (int)min(s.row[r].end - (int64_t)block * BLOCK, (int64_t)BLOCK);
            }
            float most = QRN_MINUS_INFINITY;
            const float inverse = s.inverse[r];
#pragma unroll
            for (int i = 0; i < keys; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) x[i][2 * h + j] = x[i][2 * h + j] * inverse * p.scale;
            if (p.softcap != 0.0f) cap(x, h);
#pragma unroll
            for (int i = 0; i < keys; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const int key = at + 8 * i + j;
                    float y = x[i][2 * h + j];
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
            for (int i = 0; i < keys; i++)
                put_weights(x[i][2 * h], x[i][2 * h + 1], most, r, first_key / 8 + i, s.p, s.sums[r]);
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

    /* The run's partial of row h, for whoever merges. */
    __device__ __forceinline__ void hand_over(int h, int run)
    {
        float *to = steps.partial(row_at(h), run);
        if (!to) return;
        if (first_dim == 0 && qrn_lane() % 4 == 0) to[D] = m[h], to[D + 1] = l[h];
#pragma unroll
        for (int i = 0; i < dims; i++)
            *(float2 *)(to + first_dim + 8 * i + qrn_lane() % 4 * 2) =
                make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }

    __device__ __forceinline__ void merge(int h)
    {
        const qrn_attention_merge merge = qrn_attention_merging(total_m[h], m[h], l[h]);
        if (merge.empty) return;
        total_m[h] = merge.m;
        total_l[h] = fmaf(l[h], merge.b, total_l[h] * merge.a);
#pragma unroll
        for (int i = 0; i < dims; i++)
#pragma unroll
            for (int j = 2 * h; j < 2 * h + 2; j++)
                total[i][j] = fmaf(o[i][j], merge.b, total[i][j] * merge.a);
    }

    __device__ __forceinline__ void end_run(int run)
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            if constexpr (Steps::MERGES)
                merge(h);
            else
                hand_over(h, run);
        }
        begin_run();
    }

    __device__ __forceinline__ void store_rows()
    {
#pragma unroll
        for (int h = 0; h < H; h++) {
            if (row_at(h) >= t.n_rows) continue;
            const float sum = total_l[h];
#pragma unroll
            for (int i = 0; i < dims; i++) {
                float2 y = sum == 0.0f
                               ? make_float2(0.0f, 0.0f)
                               : make_float2(total[i][2 * h] / sum, total[i][2 * h + 1] / sum);
                if (t.bad) y.x = y.y = __uint_as_float(0x7fc00000u);
                steps.store(row_at(h), first_dim + 8 * i + qrn_lane() % 4 * 2, y);
            }
        }
    }

    /* Which keys of a block the tile attends to: from one to before the other. */
    __device__ __forceinline__ int first_in(int nth) const
    {
        return (int)max(t.begin - (int64_t)nth * BLOCK, (int64_t)0);
    }
    __device__ __forceinline__ int last_in(int nth) const
    {
        return (int)min(t.end - (int64_t)nth * BLOCK, (int64_t)BLOCK);
    }

    /* Whether all rows attend to all keys of a block. */
    __device__ __forceinline__ bool is_whole(int block) const
    {
        return t.all_begin <= (int64_t)block * BLOCK && t.all_end >= ((int64_t)block + 1) * BLOCK;
    }

    /* A block of keys: stage has them, the next one their values, the one after it what comes next. */
    __device__ __forceinline__ void add_block()
    {
        uint16_t *const k = s.tiles[stage], *const v = s.tiles[(stage + 1) % STAGES];
        const bool more = block + 1 < end, whole = is_whole(block);
        float x[keys][2 * H];
        source then = {nullptr, nullptr};
        qrn_copies_wait<1>();
        steps.have_keys(k, block);
        Steps::sync();
        if (threadIdx.x == 0) s.bad = 0;
        copy_keys(more ? next.k : nullptr, s.tiles[(stage + 2) % STAGES]);
        if (block + 2 < end) then = source_of<D, true>(p, t, kv_head, block + 2);
        products(x, k);
        scores(x, block, whole, now.k != nullptr);
        Steps::sync();
        if (more)
            copy_values(next.v, block + 1, k);
        else
            qrn_copies_commit();
        weights(x);
        qrn_copies_wait<2>();
        steps.have_values(v, block);
        if (!whole) remove_bad_values<D, DECODE_THREADS>(v, &s.bad, last_in(block));
        Steps::sync();
        add_values(v);
        if (!whole && s.bad) add_bad_values(now.v, first_in(block), last_in(block));
        stage = (stage + 2) % STAGES;
        now = next;
        next = then;
    }

    /* What is before the first block. */
    __device__ __forceinline__ void start()
    {
        steps.share(&block, &end);
        if (block < end) {
            now = source_of<D, true>(p, t, kv_head, block);
            if (block + 1 < end) next = source_of<D, true>(p, t, kv_head, block + 1);
            steps.ask(now);
        }
        qrn_grid_waits();
        if (block < end) {
            copy_keys(now.k, s.tiles[0]);
            copy_values(now.v, block, s.tiles[1]);
        }
        if (block < end || Steps::BEGINS_ANYWAY) steps.begin();
        if (R == 16 && block < end) load_queries();
    }

    __device__ __forceinline__ void walk()
    {
        if (R == 8) clear_weights();
        start();
        int run = QRN_ATTENTION_RUN_OF(block);
        while (block < end) {
            add_block();
            block++;
            if (block == end || QRN_ATTENTION_RUN_OF(block) != run) end_run(run++);
        }
        if constexpr (Steps::MERGES) store_rows();
    }
};

#endif
