/* SPDX-License-Identifier: MIT
 * attention and attention_paged with queries and weights of 16 bits, for prompts, on Hopper's tensor
 * cores.
 *
 * A tile has 128 rows, (token, head of the group) each, so that the keys and values it reads serve
 * all heads of a group and few tiles lie across the causal limit.  Blocks of threads stay and take
 * tiles in turn.  Four warps bring keys and values into two stages of shared memory each, and
 * queries; two warpgroups have 64 rows each: scores from shared memory, softmax and weights in
 * registers, out in registers (D 256: 128 a thread).  While a warpgroup works out the weights of a
 * block of keys, its products of the one before with the values run, and those of the other one,
 * with which it takes turns in beginning products (Shah et al., arXiv:2407.08608).  The next tile's
 * keys, values and queries come while this one's are multiplied: there is room for the queries of
 * three warpgroups, and a place is free when its last scores are there.
 *
 * Bounds, a multiprocessor and block of 64 keys at D 256: 2 x 2 x 64 x 64 x 256 products, at 2048 a
 * cycle 2048 cycles; 8192 exponentials, at 16 a cycle 512, beside them; shared memory, at 128 bytes a
 * cycle: for scores 64 x 16 of queries and of keys in 32 cycles, all of it (128 keys would take 3/4,
 * and have no room), for values half of it; a quarter is left for the copies on average.  D 128
 * takes 128 keys: 2048 cycles of products, 1024 of exponentials.
 *
 * Only blocks of keys across the begin or end of some row look at each key.  Their values that are not
 * finite are set to 0 by the warp that brings them, for a weight of 0 would make NaN of them, and are
 * added at the end where a row attends to them. */
#include "backends/cuda/device/attention_wgmma_copies.cuh"
#include "backends/cuda/device/attention_wgmma_queries.cuh"
#include "backends/cuda/device/attention_wgmma_results.cuh"

/* Weights are below 2^SLACK. */
enum { SLACK = 8 };
enum { TURN = 1 }; /* barriers, of each warpgroup */

template <typename kind> struct wg_consumer {
    static const int D = kind::D, N = kind::N;
    const qrn_attention_params &p;
    wg_shared<kind> &s;
    const int wg;
    qrn_ring<STAGES> keys, values;
    qrn_ring<ITEMS> item; /* its queries */
    wg_rows rows;
    float factor[2], sum[2], change[2];
    float base[2]; /* what scores are relative to: the greatest one so far, or up to SLACK less */
    int full_first, full_end;

    __device__ __forceinline__ wg_consumer(const qrn_attention_params &params, wg_shared<kind> &shared)
        : p(params), s(shared), wg(qrn_uniform(qrn_warp()) / 4 - PRODUCERS / 4)
    {
        if (wg == 1) item.next();
    }

    __device__ __forceinline__ bool is_full(int block) const
    {
        return block >= full_first && block < full_end;
    }

    /* Of its queries. */
    __device__ __forceinline__ int place() const
    {
        return item.stage % PLACES;
    }

    __device__ __forceinline__ void begin_rows(const wg_tile &t)
    {
        full_first = t.full_first;
        full_end = t.full_end;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            rows.find(p, t, wg, h);
            base[h] = QRN_MINUS_INFINITY;
            sum[h] = 0.0f;
        }
        qrn_barrier_wait(&s.q_full[item.stage], item.parity);
#pragma unroll
        for (int h = 0; h < 2; h++) factor[h] = s.factor[place()][wg_rows::of_group(h)];
    }

    /* Its queries are needed no more. */
    __device__ __forceinline__ void leave_queries()
    {
        qrn_barrier_arrive_warp(&s.q_empty[place()]);
        item.next();
        item.next();
    }

    /* x = q k, begun. */
    __device__ __forceinline__ void begin_scores(float (&x)[N / 2], int stage)
    {
        const uint64_t q = qrn_tile_by_k(s.q[place()]);
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
            const int from = rows.begin[h] - block * N, to = rows.end[h] - block * N;
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
        *(volatile uint16_t *)&s.pin[threadIdx.x - 32 * PRODUCERS] = (uint16_t)__float_as_uint(sum[0] + sum[1]);
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

    /* Turns: a warpgroup begins its products when the other one has begun its last, of the tile before at first. */
    __device__ __forceinline__ void first_turn()
    {
        if (wg == 1) qrn_arrive_some(TURN, 32 * CONSUMERS);
    }
    __device__ __forceinline__ void begin_turn()
    {
        qrn_sync_some(TURN + wg, 32 * CONSUMERS);
    }
    __device__ __forceinline__ void end_turn()
    {
        qrn_arrive_some(TURN + 1 - wg, 32 * CONSUMERS);
    }
    __device__ __forceinline__ void last_turn()
    {
        if (wg == 0) begin_turn();
    }

    __device__ __forceinline__ void end_scores(float (&x)[N / 2], bool is_last)
    {
        qrn_wgmma_hold(x);
        release(&s.k_empty[keys.stage]);
        keys.next();
        if (is_last) leave_queries();
    }
    __device__ __forceinline__ void end_values(float (&o)[D / 2])
    {
        qrn_wgmma_wait<0>();
        qrn_wgmma_hold(o);
        release(&s.v_empty[values.stage]);
        values.next();
    }

    /* Blocks first .. last of keys. */
    __device__ __forceinline__ void walk(float (&o)[D / 2], int first, int last)
    {
        float x[N / 2];
        uint32_t w[N / 16][4];
        qrn_barrier_wait(&s.k_full[keys.stage], keys.parity);
        qrn_wgmma_fence();
        begin_scores(x, keys.stage);
        qrn_wgmma_wait<0>();
        end_scores(x, first == last);
        mask(x, first);
        weights(x);
        pack(w, x);
#pragma unroll 1
        for (int block = first + 1; block <= last; block++) {
            qrn_barrier_wait(&s.k_full[keys.stage], keys.parity);
            begin_turn();
            qrn_wgmma_fence();
            begin_scores(x, keys.stage);
            qrn_barrier_wait(&s.v_full[values.stage], values.parity);
            qrn_wgmma_fence();
            begin_values(o, w, values.stage, block > first + 1);
            end_turn();
            qrn_wgmma_wait<1>();
            end_scores(x, block == last);
            mask(x, block);
            weights(x);
            pin();
            end_values(o);
            rescale(o);
            pack(w, x);
        }
        qrn_barrier_wait(&s.v_full[values.stage], values.parity);
        qrn_wgmma_fence();
        begin_values(o, w, values.stage, last > first);
        end_values(o);
    }

    __device__ __forceinline__ void run()
    {
        wg_tiles tiles;
        bool is_first = true;
        first_turn();
        while (const wg_tile *t = tiles.wait(s)) {
            float o[D / 2];
            if (is_first) wg_load_first(p, s, *t, wg);
            is_first = false;
            begin_rows(*t);
            const int first = qrn_uniform(t->first), end = qrn_uniform(t->end);
            if (first < end) {
                walk(o, first, end - 1);
            } else {
                leave_queries();
#pragma unroll
                for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
            }
            wg_result<kind>{p, *t, wg, rows, sum}.store(o);
            tiles.leave(s);
        }
        last_turn();
    }
};

template <typename kind> static __device__ __forceinline__ void wg_make_barriers(wg_shared<kind> &s)
{
    for (int i = 0; i < STAGES; i++) {
        qrn_barrier_init(&s.k_full[i], 1);
        qrn_barrier_init(&s.v_full[i], 1);
        qrn_barrier_init(&s.k_empty[i], CONSUMERS);
        qrn_barrier_init(&s.v_empty[i], CONSUMERS);
    }
    qrn_barrier_init(&s.v_come, 1);
    for (int i = 0; i < ITEMS; i++) qrn_barrier_init(&s.q_full[i], CONSUMERS / 2 * QRN_WARP_ARRIVALS);
    for (int i = 0; i < PLACES; i++) qrn_barrier_init(&s.q_empty[i], CONSUMERS / 2 * QRN_WARP_ARRIVALS);
    for (int i = 0; i < TILES; i++) {
        qrn_barrier_init(&s.tile_full[i], QRN_WARP_ARRIVALS);
        qrn_barrier_init(&s.tile_empty[i], (PRODUCERS + CONSUMERS) * QRN_WARP_ARRIVALS);
    }
    qrn_barriers_are_ready();
}

template <typename kind>
static __device__ __forceinline__ void wg_attention(const qrn_attention_wgmma_params &p,
                                                    char *memory)
{
    wg_shared<kind> &s = *(wg_shared<kind> *)qrn_align_shared(memory, QRN_ATOM);
    if (threadIdx.x == 0) wg_make_barriers<kind>(s);
    __syncthreads();
    if (qrn_warp() < PRODUCERS) {
        qrn_registers_fewer<88>();
        if (qrn_warp() == 0)
            wg_produce_keys<kind>(p, s);
        else if (qrn_warp() == 1)
            wg_produce_values<kind>(p, s);
        else
            wg_produce_queries<kind>(p.a, s, qrn_warp() - 2);
    } else {
        qrn_registers_more<208>();
        wg_consumer<kind>(p.a, s).run();
    }
}

static_assert(sizeof(wg_shared<wg_kind<256, false, true>>) <= QRN_WGMMA_SHARED(256) - 1024, "");
static_assert(sizeof(wg_shared<wg_kind<128, false, true>>) <= QRN_WGMMA_SHARED(128) - 1024, "");
static_assert(sizeof(wg_shared<wg_kind<64, false, true>>) <= QRN_WGMMA_SHARED(64) - 1024, "");

#define ATTENTION(name, D, bf16, in_pages)                                \
    QRN_DEVICE_FUNCTION(qrn_attention_wgmma_##name, QRN_WGMMA_THREADS, 1, \
                        qrn_attention_wgmma_params)                       \
    {                                                                     \
        QRN_DYNAMIC_SHARED(char, memory);                                 \
        wg_attention<wg_kind<D, bf16, in_pages>>(p, memory);              \
    }

ATTENTION(f16_64, 64, false, false)
ATTENTION(f16_128, 128, false, false)
ATTENTION(f16_256, 256, false, false)
ATTENTION(bf16_64, 64, true, false)
ATTENTION(bf16_128, 128, true, false)
ATTENTION(bf16_256, 256, true, false)
ATTENTION(paged_64, 64, false, true)
ATTENTION(paged_128, 128, false, true)
ATTENTION(paged_256, 256, false, true)
