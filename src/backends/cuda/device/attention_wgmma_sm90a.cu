/* SPDX-License-Identifier: MIT
 * attention and attention_paged with queries and weights of 16 bits, for prompts, on Hopper's tensor
 * cores.
 *
 * A block has 128 rows, (token, head of the group) each, so that the keys and values it reads serve
 * all heads of a group and few tiles lie across the causal limit.  One warpgroup brings keys and
 * values into two stages of shared memory each; two have 64 rows each: scores from shared memory,
 * softmax and weights in registers, out in registers (D 256: 128 a thread).  While a warpgroup works
 * out the weights of a block of keys, its products of the one before with the values run, and those
 * of the other one, with which it takes turns in beginning products (Shah et al., arXiv:2407.08608).
 *
 * Bounds, a multiprocessor and block of 64 keys at D 256: 2 x 2 x 64 x 64 x 256 products, at 2048 a
 * cycle 2048 cycles; 8192 exponentials, at 16 a cycle 512, beside them; shared memory, at 128 bytes a
 * cycle: for scores 64 x 16 of queries and of keys in 32 cycles, all of it (128 keys would take 3/4,
 * and have no room), for values half of it; a quarter is left for the copies on average.  D 128
 * takes 128 keys: 2048 cycles of products, 1024 of exponentials.
 *
 * Only blocks of keys across the begin or end of some row look at each key.  Their values that are not
 * finite are set to 0, which a weight of 0 would make NaN of, and are added at the end where a row
 * attends to them. */
#include "backends/cuda/device/attention_wgmma_copies.cuh"

/* Weights are below 2^SLACK. */
enum { SLACK = 8 };
enum { OWN = 1, ALL_CONSUMERS = 3, TURN = 4 }; /* barriers; the first and last for each warpgroup */

template <typename kind> struct wg_consumer {
    static const int D = kind::D, N = kind::N;
    const qrn_attention_params &p;
    wg_shared<kind> &s;
    int wg, begin[2], end[2]; /* keys of this thread's two rows, less its first column */
    float factor[2], sum[2], change[2];
    float base[2]; /* what scores are relative to: the greatest one so far, or up to SLACK less */
    const int full_first, full_end; /* blocks of keys that all rows attend to */

    __device__ __forceinline__ wg_consumer(const qrn_attention_params &params,
                                           wg_shared<kind> &shared)
        : p(params), s(shared), wg((int)threadIdx.x / 128 - 1), full_first(shared.full_first),
          full_end(shared.full_end)
    {
    }

    __device__ __forceinline__ bool is_full(int block) const
    {
        return block >= full_first && block < full_end;
    }

    __device__ __forceinline__ int row_of(int half)
    {
        return wg * GROUP_ROWS + qrn_warp() % 4 * 16 + qrn_lane() / 4 + 8 * half;
    }

    __device__ __forceinline__ void begin_rows()
    {
        wg_load_queries<kind>(p, s, wg);
        qrn_fence_async();
        qrn_sync_some(OWN + wg, 128);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const qrn_attention_row row = wg_row(p, s.tile, s.kv_head, row_of(h));
            begin[h] = (int)row.begin - qrn_lane() % 4 * 2;
            end[h] = (int)row.end - qrn_lane() % 4 * 2;
            factor[h] = s.factor[row_of(h)];
            base[h] = QRN_MINUS_INFINITY;
            sum[h] = 0.0f;
        }
    }

    /* x = q k, begun. */
    __device__ __forceinline__ void begin_scores(float (&x)[N / 2], int stage)
    {
        const uint64_t q = qrn_tile_by_k(s.q[wg]);
        const uint64_t k =
            kind::paged ? qrn_tile_by_rows(s.k[stage], D * QRN_LINE) : qrn_tile_by_k(s.k[stage]);
        const int way = kind::paged ? QRN_BY_ROWS : QRN_BY_K;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const int step = kind::paged ? i * 16 * QRN_LINE : i / 4 * (N * QRN_LINE) + i % 4 * 32;
            const uint64_t a = qrn_tile_moved(q, i / 4 * (GROUP_ROWS * QRN_LINE) + i % 4 * 32),
                           b = qrn_tile_moved(k, step);
            if constexpr (kind::bf16)
                qrn_wgmma_bf16<N, QRN_BY_K, way>(x, a, b, i > 0);
            else
                qrn_wgmma_f16<N, QRN_BY_K, way>(x, a, b, i > 0);
        }
        qrn_wgmma_commit();
    }

    /* o += w v (adds; else o = w v), begun. */
    __device__ __forceinline__ void begin_values(float (&o)[D / 2], const uint32_t (&w)[N / 16][4],
                                                 int stage, int adds)
    {
        const uint64_t v = qrn_tile_by_rows(s.v[stage], N * QRN_LINE);
#pragma unroll
        for (int i = 0; i < N / 16; i++) {
            const uint64_t b = qrn_tile_moved(v, i * 16 * QRN_LINE);
            if constexpr (kind::bf16)
                qrn_wgmma_bf16<D, QRN_BY_ROWS>(o, w[i], b, i > 0 || adds);
            else
                qrn_wgmma_f16<D, QRN_BY_ROWS>(o, w[i], b, i > 0 || adds);
        }
        qrn_wgmma_commit();
    }

    /* Copies of 16 bytes are ordinary writes, of which wgmma must be told. */
    __device__ __forceinline__ void wait_full(qrn_barrier *full, int parity)
    {
        qrn_barrier_wait(full, parity);
        if (kind::by_threads) qrn_fence_async();
    }

    __device__ __forceinline__ void release(qrn_barrier *empty)
    {
        if (qrn_lane() == 0) qrn_barrier_arrive(empty);
        __syncwarp();
    }

    /* The score is -infinity where a row does not attend. */
    __device__ __forceinline__ void mask(float (&x)[N / 2], int block)
    {
        if (is_full(block)) return;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int from = begin[h] - block * N, to = end[h] - block * N;
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (8 * j + i < from || 8 * j + i >= to)
                        x[4 * j + 2 * h + i] = QRN_MINUS_INFINITY;
        }
    }

    /* The greatest product of each row in a block; both rows' shuffles are under way at once. */
    __device__ __forceinline__ void find_most(float (&m)[2], const float (&x)[N / 2])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m1 = QRN_MINUS_INFINITY;
            m[h] = QRN_MINUS_INFINITY;
#pragma unroll
            for (int j = 0; j < N / 8; j++) {
                m[h] = fmaxf(m[h], x[4 * j + 2 * h]);
                m1 = fmaxf(m1, x[4 * j + 2 * h + 1]);
            }
            m[h] = fmaxf(m[h], m1);
        }
#pragma unroll
        for (int step = 1; step <= 2; step++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                m[h] = fmaxf(m[h], __shfl_xor_sync(QRN_ALL_OF_WARP, m[h], step));
    }

    /* x = 2^(score - base); change: what earlier sums are multiplied by.  Greater scores change the base
     * only where weights would be above 2^SLACK: sums need not be multiplied for every small step of the
     * greatest score. */
    __device__ __forceinline__ void weights(float (&x)[N / 2])
    {
        float m[2];
        find_most(m, x);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float greatest = m[h] * factor[h];
            const float now_base = greatest > base[h] + SLACK ? greatest : base[h];
            const float below = now_base == QRN_MINUS_INFINITY ? 0.0f : -now_base;
            change[h] = qrn_exp2(base[h] + below); /* 1 while the base stays */
            base[h] = now_base;
            float now = 0.0f, now1 = 0.0f;
#pragma unroll
            for (int j = 0; j < N / 8; j++) {
                const int i = 4 * j + 2 * h;
                x[i] = qrn_exp2(fmaf(x[i], factor[h], below));
                x[i + 1] = qrn_exp2(fmaf(x[i + 1], factor[h], below));
                now += x[i];
                now1 += x[i + 1];
            }
            sum[h] = fmaf(sum[h], change[h], now + now1);
        }
    }

    /* The compiler would wait for the products with the values first, and work out weights after
     * them: a store of what comes of them keeps its place before the wait. */
    __device__ __forceinline__ void pin()
    {
        *(volatile float *)&s.pin[threadIdx.x] = sum[0] + sum[1];
    }

    /* As rows of a: the columns that a lane has of c are those that it has of a. */
    __device__ __forceinline__ void pack(uint32_t (&w)[N / 16][4], const float (&x)[N / 2])
    {
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            w[i / 4][i % 4] = wg_pack<kind::bf16>(x[2 * i], x[2 * i + 1]);
    }

    /* Often nothing changes after the first blocks. */
    __device__ __forceinline__ void rescale(float (&o)[D / 2])
    {
        if (!__any_sync(QRN_ALL_OF_WARP, change[0] != 1.0f || change[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= change[i / 2 % 2];
    }

    /* A block's values that are not finite become 0, and those of keys that no row attends to; by both
     * warpgroups.  It is waited for here. */
    __device__ __forceinline__ void clean(const qrn_ring<STAGES> &ring, int block)
    {
        if (is_full(block)) return;
        const uint32_t all = kind::bf16 ? 0x7f807f80u : 0x7c007c00u;
        wait_full(&s.v_full[ring.stage], ring.parity);
        uint4 *at = (uint4 *)s.v[ring.stage];
        const int from = (int)s.tile.begin - block * N, to = (int)s.tile.end - block * N;
#pragma unroll 4
        for (int i = (int)threadIdx.x - PRODUCERS; i < N * D / 8; i += CONSUMERS) {
            const int line = i / 8 % N;
            if (line < from || line >= to) {
                at[i] = make_uint4(0, 0, 0, 0);
                continue;
            }
            const uint4 v = at[i];
            uint32_t words[4] = {v.x, v.y, v.z, v.w}, bad = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if ((words[j] & all & 0xffffu) == (all & 0xffffu)) words[j] &= 0xffff0000u, bad = 1;
                if ((words[j] & all & ~0xffffu) == (all & ~0xffffu)) words[j] &= 0xffffu, bad = 1;
            }
            if (!bad) continue;
            at[i] = make_uint4(words[0], words[1], words[2], words[3]);
            s.bad = 1;
        }
        qrn_fence_async();
        qrn_sync_some(ALL_CONSUMERS, CONSUMERS);
    }

    /* Turns: a warpgroup begins its products when the other one has begun its last. */
    __device__ __forceinline__ void first_turn()
    {
        if (wg == 1) qrn_arrive_some(TURN, CONSUMERS);
    }
    __device__ __forceinline__ void begin_turn()
    {
        qrn_sync_some(TURN + wg, CONSUMERS);
    }
    __device__ __forceinline__ void end_turn(bool is_last)
    {
        if (!(wg == 1 && is_last)) qrn_arrive_some(TURN + 1 - wg, CONSUMERS);
    }

    __device__ __forceinline__ void walk(float (&o)[D / 2])
    {
        float x[N / 2];
        uint32_t w[N / 16][4];
        qrn_ring<STAGES> keys, values;
        const int first = s.first, last = s.end - 1;
        if (first < last) first_turn();
        wait_full(&s.k_full[0], 0);
        qrn_wgmma_fence();
        begin_scores(x, 0);
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(x);
        release(&s.k_empty[0]);
        mask(x, first);
        weights(x);
        pack(w, x);
#pragma unroll 1
        for (int block = first + 1; block <= last; block++, values.next()) {
            keys.next();
            clean(values, block - 1);
            wait_full(&s.k_full[keys.stage], keys.parity);
            begin_turn();
            qrn_wgmma_fence();
            begin_scores(x, keys.stage);
            wait_full(&s.v_full[values.stage], values.parity);
            qrn_wgmma_fence();
            begin_values(o, w, values.stage, block > first + 1);
            end_turn(block == last);
            qrn_wgmma_wait<1>();
            qrn_wgmma_hold(x);
            release(&s.k_empty[keys.stage]);
            mask(x, block);
            weights(x);
            pin();
            qrn_wgmma_wait<0>();
            qrn_wgmma_hold(o);
            release(&s.v_empty[values.stage]);
            rescale(o);
            pack(w, x);
        }
        clean(values, last);
        wait_full(&s.v_full[values.stage], values.parity);
        qrn_wgmma_fence();
        begin_values(o, w, values.stage, last > first);
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(o);
    }

    /* Where the values of a key are; NULL: nowhere. */
    __device__ __forceinline__ const uint16_t *value_of(int64_t key)
    {
        if (!kind::paged)
            return (const uint16_t *)p.v + s.tile.batch * p.v_batch + key * p.v_token +
                   s.kv_head * p.v_head;
        const char *page = qrn_paged_page(p.paged, s.tile.batch, key / PAGE);
        if (!page) return nullptr;
        return (const uint16_t *)page + (p.n_kv_heads + s.kv_head) * (PAGE * D) + key % PAGE * D;
    }

    /* Values that were left out and a row attends to: its out is not finite there. */
    __device__ __forceinline__ void add_bad_values(float (&o)[D / 2])
    {
        const int column = qrn_lane() % 4 * 2;
#pragma unroll 1
        for (int block = s.first; block < s.end; block++) {
            if (is_full(block)) continue;
#pragma unroll 1
            for (int i = 0; i < N; i++) {
                const int key = block * N + i;
                const bool attends[2] = {key - column >= begin[0] && key - column < end[0],
                                         key - column >= begin[1] && key - column < end[1]};
                if (!attends[0] && !attends[1]) continue;
                const uint16_t *v = value_of(key);
                if (!v) continue;
#pragma unroll
                for (int j = 0; j < D / 2; j++) {
                    const uint16_t h = v[j / 4 * 8 + column + j % 2];
                    const float y = kind::bf16 ? qrn_float_of_bf16(h) : qrn_float_of_f16(h);
                    if (attends[j / 2 % 2] && !(fabsf(y) <= 3.4e38f)) o[j] += y;
                }
            }
        }
    }

    /* A warp's 16 rows go, half of their columns at a time, through the place of its queries, which its
     * warpgroup needs no more. */
    __device__ __forceinline__ void store(const float (&o)[D / 2])
    {
        const int lane = qrn_lane(), warp = qrn_warp() % 4;
        const int mine = wg * GROUP_ROWS + warp * 16 + lane % 16;
        const bool in_pieces =
            qrn_is_aligned(p.out, 16) && (p.out_batch | p.out_token | p.out_head) % 4 == 0;
        float *const part = (float *)(s.q[wg] + warp * (16 * D * 2));
        float *out = qrn_attention_out(p, s.tile, wg_row(p, s.tile, s.kv_head, mine));
        if (mine >= s.tile.n_rows) out = nullptr;
        qrn_sync_some(OWN + wg, 128);
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int j = 0; j < D / 16; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int i = half * (D / 4) + 4 * j + 2 * h;
                    *(float2 *)&part[wg_place_of<D>(lane / 4 + 8 * h, 8 * j + lane % 4 * 2)] =
                        make_float2(o[i], o[i + 1]);
                }
            __syncwarp();
            if (in_pieces)
                wg_store_lines<D, true>(part, out);
            else
                wg_store_lines<D, false>(part, out);
            if (out) out += D / 2;
            __syncwarp();
        }
    }

    __device__ __forceinline__ void run()
    {
        float o[D / 2], inverse[2];
        begin_rows();
        if (s.first < s.end) {
            walk(o);
        } else {
#pragma unroll
            for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float l = sum[h];
            l += __shfl_xor_sync(QRN_ALL_OF_WARP, l, 1);
            l += __shfl_xor_sync(QRN_ALL_OF_WARP, l, 2);
            inverse[h] = s.tile.bad ? __uint_as_float(0x7fc00000u) : l == 0.0f ? 0.0f : 1.0f / l;
        }
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= inverse[i / 2 % 2];
        if (s.bad) add_bad_values(o);
        store(o);
    }
};

template <typename kind>
static __device__ __forceinline__ void wg_begin(const qrn_attention_params &p, wg_shared<kind> &s)
{
    s.tile = wg_tile(p, blockIdx.x, &s.kv_head);
    s.first = (int)(s.tile.begin / kind::N);
    s.end = s.tile.end > s.tile.begin ? (int)((s.tile.end + kind::N - 1) / kind::N) : s.first;
    s.full_first = (int)((s.tile.all_begin + kind::N - 1) / kind::N);
    s.full_end = (int)(s.tile.all_end / kind::N);
    s.bad = 0;
    for (int i = 0; i < STAGES; i++) {
        qrn_barrier_init(&s.k_full[i], kind::by_threads ? PRODUCERS : 1);
        qrn_barrier_init(&s.v_full[i], kind::by_threads ? PRODUCERS : 1);
        qrn_barrier_init(&s.k_empty[i], CONSUMERS / 32);
        qrn_barrier_init(&s.v_empty[i], CONSUMERS / 32);
    }
    qrn_barriers_are_ready();
}

template <typename kind>
static __device__ __forceinline__ void wg_attention(const qrn_attention_wgmma_params &p,
                                                    char *memory)
{
    wg_shared<kind> &s = *(wg_shared<kind> *)qrn_align_shared(memory, QRN_ATOM);
    if (threadIdx.x == 0) wg_begin<kind>(p.a, s);
    __syncthreads();
    if (s.tile.n_rows <= 0) return;
    if (threadIdx.x < PRODUCERS) {
        qrn_registers_fewer<40>();
        if constexpr (kind::by_threads)
            wg_produce_paged_by_threads<kind>(p.a, s);
        else if (qrn_warp() == 0)
            wg_produce<kind, true>(p, s);
        else if (qrn_warp() == 1)
            wg_produce<kind, false>(p, s);
        else if (qrn_warp() == 2)
            wg_ask_for_queries<kind>(p.a, p.ahead);
    } else {
        qrn_registers_more<232>();
        wg_consumer<kind>(p.a, s).run();
    }
}

static_assert(sizeof(wg_shared<wg_kind<256, false, PAGES>>) <= QRN_WGMMA_SHARED(256) - 1024, "");
static_assert(sizeof(wg_shared<wg_kind<128, false, PAGES>>) <= QRN_WGMMA_SHARED(128) - 1024, "");
static_assert(sizeof(wg_shared<wg_kind<64, false, PAGES>>) <= QRN_WGMMA_SHARED(64) - 1024, "");

#define ATTENTION(name, D, bf16, source)                                  \
    QRN_DEVICE_FUNCTION(qrn_attention_wgmma_##name, QRN_WGMMA_THREADS, 1, \
                        qrn_attention_wgmma_params)                       \
    {                                                                     \
        QRN_DYNAMIC_SHARED(char, memory);                                 \
        wg_attention<wg_kind<D, bf16, source>>(p, memory);                \
    }

ATTENTION(f16_64, 64, false, TENSORS)
ATTENTION(f16_128, 128, false, TENSORS)
ATTENTION(f16_256, 256, false, TENSORS)
ATTENTION(bf16_64, 64, true, TENSORS)
ATTENTION(bf16_128, 128, true, TENSORS)
ATTENTION(bf16_256, 256, true, TENSORS)
ATTENTION(paged_64, 64, false, PAGES)
ATTENTION(paged_128, 128, false, PAGES)
ATTENTION(paged_256, 256, false, PAGES)
ATTENTION(by_threads_64, 64, false, PAGES_BY_THREADS)
ATTENTION(by_threads_128, 128, false, PAGES_BY_THREADS)
ATTENTION(by_threads_256, 256, false, PAGES_BY_THREADS)
