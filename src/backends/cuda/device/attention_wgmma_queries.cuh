/* SPDX-License-Identifier: MIT
 * How queries come to the shared memory of attention_wgmma_sm90a.cu: by two warps, which load the next
 * tile's while this one's are multiplied. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_QUERIES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_QUERIES_CUH

#include "backends/cuda/device/attention_wgmma.cuh"

/* Rows that a warp of queries asks for at once, of which it has twice as many registers. */
template <typename kind> static constexpr int wg_at_once = kind::D == 256 ? 3 : kind::D == 128 ? 4 : 8;

/* A lane's pointer, for all lanes of the warp. */
template <typename T> static __device__ __forceinline__ T *wg_of_lane(T *pointer, int lane)
{
    return (T *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, (unsigned long long)(uintptr_t)pointer,
                                       lane);
}

/* Whether rows can be read in pieces of 16 bytes. */
static __device__ __forceinline__ bool wg_in_pieces(const qrn_attention_params &p)
{
    return qrn_is_aligned(p.q, 16) && (p.q_batch | p.q_token | p.q_head) % 4 == 0;
}

/* Of a row of D floats a lane has pieces of four (two), one every 128: a warp reads whole lines. */
template <int D> struct wg_query {
    static const int PIECE = D < 128 ? D / 32 : 4, N = D / 32 / PIECE, STEP = 32 * PIECE;
    float x[N][PIECE];

    template <bool in_pieces> __device__ __forceinline__ void read(const float *row)
    {
        const float *from = row + qrn_lane() * PIECE;
#pragma unroll
        for (int i = 0; i < N; i++, from += STEP) {
            if constexpr (!in_pieces) {
#pragma unroll
                for (int j = 0; j < PIECE; j++) x[i][j] = from[j];
            } else if constexpr (PIECE == 2) {
                const float2 y = *(const float2 *)from;
                x[i][0] = y.x, x[i][1] = y.y;
            } else {
                const float4 y = *(const float4 *)from;
                x[i][0] = y.x, x[i][1] = y.y, x[i][2] = y.z, x[i][3] = y.w;
            }
        }
    }

    __device__ __forceinline__ float most() const
    {
        float m = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 32; i++) m = fmaxf(m, fabsf(x[i / PIECE][i % PIECE]));
        return m;
    }

    /* To row `row` of a warpgroup's, multiplied. */
    template <bool bf16> __device__ __forceinline__ void place(char *q, int row, float by) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int at = i * STEP + qrn_lane() * PIECE;
            char *const to = q + at / 64 * (GROUP_ROWS * QRN_LINE) + qrn_in_atom(row, at % 64 * 2);
            const uint32_t h = wg_pack<bf16>(x[i][0] * by, x[i][1] * by);
            if constexpr (PIECE == 2)
                *(uint32_t *)to = h;
            else
                *(uint2 *)to = make_uint2(h, wg_pack<bf16>(x[i][2] * by, x[i][3] * by));
        }
    }
};

/* n of a warpgroup's rows, `first` and on; lane i knows where row i of them is. */
template <typename kind, int n, bool in_pieces> struct wg_mover {
    char *q;
    float *factor, scale;
    const float *mine;
    int first;

    /* Rows `row` and on; those past the end are the last one. */
    template <int count> __device__ __forceinline__ void read(wg_query<kind::D> (&x)[count], int row) const
    {
#pragma unroll
        for (int i = 0; i < count; i++) x[i].template read<in_pieces>(wg_of_lane(mine, min(row + i, n - 1)));
    }

    template <int count> __device__ __forceinline__ void place(const wg_query<kind::D> (&x)[count], int row) const
    {
        unsigned most[count];
#pragma unroll
        for (int i = 0; i < count; i++) most[i] = __float_as_uint(x[i].most());
#pragma unroll
        for (int i = 0; i < count; i++) most[i] = __reduce_max_sync(QRN_ALL_OF_WARP, most[i]);
#pragma unroll
        for (int i = 0; i < count; i++) {
            /* By a power of two to below 32, so that no query is too large for halves; 2^-64 is small enough, and its
             * inverse leaves room for scale. */
            const int biased = (int)(most[i] >> 23), exponent = biased < 67 ? 67 : biased > 254 ? 254 : biased;
            const int to = first + min(row + i, n - 1);
            x[i].template place<kind::bf16>(q, to, __uint_as_float((uint32_t)(258 - exponent) << 23));
            const float back = __uint_as_float((uint32_t)(exponent - 4) << 23);
            if (qrn_lane() == 0) factor[to] = fmaxf(back * scale, 0x1p-120f);
        }
    }

    /* Two groups of `count` rows in turn: one is on its way while the other is placed.  may_place() is called before
     * anything is.  A compiler would move the loads up, and have no registers left: it moves nothing across a
     * __syncwarp(). */
    template <int count, class When> __device__ __forceinline__ void move(const When &may_place) const
    {
        wg_query<kind::D> x[2][count];
        read(x[0], 0);
        may_place();
#pragma unroll 1
        for (int row = 0; row < n; row += 2 * count) {
            read(x[1], row + count);
            place(x[0], row);
            __syncwarp();
            read(x[0], row + 2 * count);
            place(x[1], row + count);
            __syncwarp();
        }
    }
};

template <typename kind, int n, int count, class When>
static __device__ __forceinline__ void wg_load_rows(const qrn_attention_params &p, char *q, float *factor,
                                                    const float *mine, int first, const When &may_place)
{
    const float scale = p.scale * QRN_LOG2_E;
    if (wg_in_pieces(p))
        wg_mover<kind, n, true>{q, factor, scale, mine, first}.template move<count>(may_place);
    else
        wg_mover<kind, n, false>{q, factor, scale, mine, first}.template move<2>(may_place);
    qrn_fence_async();
}

/* Of a block's first tile, for which all of its warps wait: a consumer's 16 rows, at once. */
template <typename kind>
static __device__ __forceinline__ void wg_load_first(const qrn_attention_params &p, wg_shared<kind> &s,
                                                     const wg_tile &t, int wg)
{
    const int n = 16, first = qrn_warp() % 4 * n;
    const float *const mine = qrn_attention_q(p, t.of, wg_row(p, t, wg * GROUP_ROWS + first + qrn_lane() % n));
    if (wg_in_pieces(p)) qrn_prefetch_bulk(mine, kind::D * 4);
    wg_load_rows<kind, n, n / 4>(p, s.q[wg], s.factor[wg], mine, first, [] {});
    qrn_barrier_arrive_warp(&s.q_full[wg]);
}

/* Those of all others; by the warps of queries, which have half of a warpgroup's rows each. */
template <typename kind>
static __device__ __forceinline__ void wg_produce_queries(const qrn_attention_params &p, wg_shared<kind> &s, int nth)
{
    const int n = GROUP_ROWS / QUERY_WARPS, first = nth * n;
    static_assert(n == 32, "");
    wg_tiles tiles;
    qrn_ring<ITEMS> item;
    if (!tiles.wait(s)) return; /* consumers load the first tile's */
    tiles.leave(s);
    item.next();
    item.next();
    while (const wg_tile *t = tiles.wait(s)) {
        const auto row = [&](int wg) {
            return qrn_attention_q(p, t->of, wg_row(p, *t, wg * GROUP_ROWS + first + qrn_lane()));
        };
        for (int wg = 0; wg < 2; wg++)
            if (wg_in_pieces(p)) qrn_prefetch_bulk(row(wg), kind::D * 4);
#pragma unroll 1
        for (int wg = 0; wg < 2; wg++, item.next()) {
            const int place = item.stage % PLACES, round = item.stage / PLACES;
            wg_load_rows<kind, n, wg_at_once<kind>>(p, s.q[place], s.factor[place], row(wg), first,
                                                    [&] { qrn_barrier_wait(&s.q_empty[place], round ^ 1); });
            for (int i = 0; i < CONSUMERS / 2 / QUERY_WARPS; i++) qrn_barrier_arrive_warp(&s.q_full[item.stage]);
        }
        tiles.leave(s);
    }
}

#endif
