/* SPDX-License-Identifier: MIT
 * What attention_wgmma_sm90a.cu stands on: its shared memory, its tiles and rows, how keys, values
 * and queries come to shared memory. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_CUH

#include "backends/cuda/attention_wgmma_cuda.h"
#include "backends/cuda/device/attention.cuh"
#include "backends/cuda/device/wgmma.cuh"

enum {
    ROWS = QRN_WGMMA_ROWS,
    GROUP_ROWS = 64, /* of a warpgroup */
    STAGES = QRN_WGMMA_STAGES,
    PRODUCERS = 128,
    CONSUMERS = 256,
    PAGE = QRN_PAGE
};

/* Who brings keys and values: bulk copies of tensors, or of pages, or threads those of pages. */
enum wg_source { TENSORS, PAGES, PAGES_BY_THREADS };

/* What a kernel is made for. */
template <int width, bool of_bf16, wg_source source> struct wg_kind {
    static const int D = width, N = QRN_WGMMA_KEYS(width);
    static const bool bf16 = of_bf16, paged = source != TENSORS;
    static const bool by_threads = source == PAGES_BY_THREADS;
};

/* Queries and values, and keys of plain buffers, are arrays of atoms for 64 elements each, a line a
 * row; keys of pages are arrays for 64 keys each, a line an element. */
template <typename kind> struct wg_shared {
    char q[2][GROUP_ROWS * kind::D * 2];
    char k[STAGES][kind::N * kind::D * 2], v[STAGES][kind::N * kind::D * 2];
    qrn_barrier k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    float factor[ROWS]; /* of products, to become scores in base 2 */
    qrn_attention_tile tile;
    int64_t kv_head;
    float pin[QRN_WGMMA_THREADS];
    int full_first, full_end; /* blocks of N keys that all rows attend to */
    int first, end;           /* blocks of N keys that any row attends to */
    int bad;                  /* values that are not finite were left out */
};

/* Two floats as 16-bit ones, the first in the lower half. */
template <bool bf16> static __device__ __forceinline__ uint32_t wg_pack(float a, float b)
{
#ifdef QRN_EMULATED
    if (bf16) return qrn_bf16_of_float(a) | (uint32_t)qrn_bf16_of_float(b) << 16;
    return qrn_f16_of_float(a) | (uint32_t)qrn_f16_of_float(b) << 16;
#else
    uint32_t h;
    if (bf16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(b), "f"(a));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(b), "f"(a));
    return h;
#endif
}

/* --- tiles and rows --- */

/* The tile of a block of threads: the last first, which see the most keys, of all kv heads.  Numbers of
 * blocks, heads and batches are below 2^31: divisions of 64 bits would take long. */
static __device__ qrn_attention_tile wg_tile(const qrn_attention_params &p, unsigned block,
                                             int64_t *kv_head)
{
    const unsigned n_heads = (unsigned)p.n_kv_heads, n_batch = (unsigned)p.n_batch,
                   group = (unsigned)p.group, at = gridDim.x - 1 - block, nth = at / n_heads;
    *kv_head = at - nth * n_heads;
    if (p.paged.pages) return qrn_attention_paged_tile(p, nth, ROWS);
    const unsigned tile = nth / n_batch, first_row = tile * ROWS,
                   left = (unsigned)p.n_tokens * group - first_row;
    qrn_attention_tile t = {};
    t.batch = nth - tile * n_batch;
    t.first_row = first_row;
    t.position = p.q_offset;
    t.n_kv = p.n_kv;
    t.n_rows = left < ROWS ? (int)left : (int)ROWS;
    t.first = first_row / group;
    t.last = (first_row + t.n_rows - 1) / group;
    qrn_attention_range(p, t.position + t.first, t.n_kv, &t.begin, &t.all_end);
    qrn_attention_range(p, t.position + t.last, t.n_kv, &t.all_begin, &t.end);
    return t;
}

/* Row r of the tile; those past its end are as its last. */
static __device__ __forceinline__ qrn_attention_row wg_row(const qrn_attention_params &p,
                                                           const qrn_attention_tile &t,
                                                           int64_t kv_head, int r)
{
    const int group = (int)p.group, nth = (int)t.first_row + (r < t.n_rows ? r : t.n_rows - 1);
    qrn_attention_row row;
    row.token = nth / group;
    row.head = kv_head * group + nth % group;
    qrn_attention_range(p, t.position + row.token, t.n_kv, &row.begin, &row.end);
    return row;
}

/* --- queries --- */

/* A lane's pointer, for all lanes of the warp. */
template <typename T> static __device__ __forceinline__ T *wg_of_lane(T *pointer, int lane)
{
    return (T *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, (unsigned long long)(uintptr_t)pointer,
                                       lane);
}

/* This lane's n consecutive elements of a row. */
template <int n>
static __device__ __forceinline__ void wg_read(float (&x)[n], const float *from, bool in_pieces)
{
    const int step = n < 4 ? n : 4;
#pragma unroll
    for (int i = 0; i < n; i += step) {
        if (!in_pieces) {
#pragma unroll
            for (int j = 0; j < step; j++) x[i + j] = from[i + j];
        } else if (step == 2) {
            const float2 y = *(const float2 *)(from + i);
            x[i] = y.x, x[i + 1] = y.y;
        } else {
            const float4 y = *(const float4 *)(from + i);
            x[i] = y.x, x[i + 1] = y.y, x[i + 2] = y.z, x[i + 3] = y.w;
        }
    }
}

/* Row nth of the tile, scaled by a power of two to below 32, so that no query is too large for
 * halves; lane has x, the elements from `at` on. */
template <typename kind, int n>
static __device__ __forceinline__ void wg_place_query(const qrn_attention_params &p,
                                                      wg_shared<kind> &s, int nth,
                                                      const float (&x)[n], int at)
{
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    /* 2^-64 is small enough, and its inverse leaves room for scale. */
    const int biased =
        (int)(__reduce_max_sync(QRN_ALL_OF_WARP, (unsigned)__float_as_uint(most)) >> 23);
    const int exponent = biased < 67 ? 67 : biased > 254 ? 254 : biased;
    const float by = __uint_as_float((uint32_t)(258 - exponent) << 23),
                back = __uint_as_float((uint32_t)(exponent - 4) << 23);
    uint32_t h[n / 2];
#pragma unroll
    for (int i = 0; i < n / 2; i++) h[i] = wg_pack<kind::bf16>(x[2 * i] * by, x[2 * i + 1] * by);
    char *to = s.q[nth / GROUP_ROWS] + at / 64 * (GROUP_ROWS * QRN_LINE) +
               qrn_in_atom(nth % GROUP_ROWS, at % 64 * 2);
    if constexpr (n == 8)
        *(uint4 *)to = make_uint4(h[0], h[1], h[2], h[3]);
    else if constexpr (n == 4)
        *(uint2 *)to = make_uint2(h[0], h[1]);
    else
        *(uint32_t *)to = h[0];
    if (at == 0) s.factor[nth] = fmaxf(back * (p.scale * QRN_LOG2_E), 0x1p-120f);
}

/* A warp's 16 rows, all on their way at once; lane i knows where row i % 16 is. */
template <typename kind>
static __device__ __forceinline__ void wg_load_queries(const qrn_attention_params &p,
                                                       wg_shared<kind> &s, int wg)
{
    const int n = kind::D / 32, at = qrn_lane() * n, some = 16,
              nth = wg * GROUP_ROWS + qrn_warp() % 4 * some;
    const bool in_pieces = qrn_is_aligned(p.q, 16) && (p.q_batch | p.q_token | p.q_head) % 4 == 0;
    const float *const mine =
        qrn_attention_q(p, s.tile, wg_row(p, s.tile, s.kv_head, nth + qrn_lane() % some));
    const float *from[some];
    float x[some][n];
#pragma unroll
    for (int i = 0; i < some; i++) from[i] = at + wg_of_lane(mine, i);
    if (in_pieces) {
#pragma unroll
        for (int i = 0; i < some; i++) wg_read<n>(x[i], from[i], true);
    } else {
#pragma unroll
        for (int i = 0; i < some; i++) wg_read<n>(x[i], from[i], false);
    }
#pragma unroll
    for (int i = 0; i < some; i++) wg_place_query<kind, n>(p, s, nth + i, x[i], at);
}

/* Asks for the queries of the tile whose block of threads comes when this one is done; by a warp.  Tiles
 * with a window take as long as each other, and would all wait for the memory at once. */
template <typename kind>
static __device__ __forceinline__ void wg_ask_for_queries(const qrn_attention_params &p, int ahead)
{
    int64_t kv_head;
    if (ahead == 0 || blockIdx.x + ahead >= gridDim.x || (p.q_batch | p.q_token | p.q_head) % 4)
        return;
    const qrn_attention_tile t = wg_tile(p, blockIdx.x + ahead, &kv_head);
    if (!qrn_is_aligned(p.q, 16)) return;
#pragma unroll 1
    for (int r = qrn_lane(); r < t.n_rows; r += 32)
        qrn_prefetch_bulk(qrn_attention_q(p, t, wg_row(p, t, kv_head, r)), kind::D * 4);
}

/* --- keys and values of plain buffers --- */

/* A block's keys or values; by one thread. */
template <typename kind>
static __device__ __forceinline__ void wg_copy_box(char *to, const qrn_tensor_map &map, int key,
                                                   int matrix, qrn_barrier *full)
{
    const int D = kind::D, N = kind::N;
    qrn_barrier_arrive_expecting(full, N * D * 2);
#pragma unroll
    for (int i = 0; i < D / 64; i++)
        qrn_tensor_copy(to + i * N * QRN_LINE, &map, i * 64, key, matrix, full);
}

/* --- keys and values in pages --- */

/* Pages of a block: where this kv head's keys begin.  Of those that hold nothing to attend to
 * `exists` is false; NULL: the table has none, and what is attended to there is NaN. */
template <typename kind> struct wg_pages {
    static const int n = kind::N / PAGE;
    const char *keys[n];
    bool exists[n], lacks; /* lacks: one that should exist does not */

    __device__ __forceinline__ void look_up(const qrn_attention_params &p, const wg_shared<kind> &s,
                                            int block)
    {
        lacks = false;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const int64_t nth = (int64_t)block * n + i;
            exists[i] = block < s.end && nth * PAGE < s.tile.end && (nth + 1) * PAGE > s.tile.begin;
            keys[i] = exists[i] ? qrn_paged_page(p.paged, s.tile.batch, nth) : nullptr;
            if (keys[i]) keys[i] += s.kv_head * (PAGE * kind::D * 2);
            lacks = lacks || (exists[i] && !keys[i]);
        }
    }
};

/* A warpgroup's copies: 16 bytes a thread of 16 lines, lines 16 apart: the place within an atom stays. */
static __device__ __forceinline__ void wg_copy_piece(const qrn_attention_params &p, char *to,
                                                     const char *from, bool reads)
{
    const void *somewhere = (const void *)((uintptr_t)p.q & ~(uintptr_t)15);
    qrn_copy16_async(to, reads ? (const void *)from : somewhere, reads ? 16 : 0);
}

/* Ends a thread's part of a stage. */
static __device__ __forceinline__ void wg_arrive(qrn_barrier *full, bool has_stored)
{
    if (!has_stored) {
        qrn_barrier_arrive_after_copies(full);
        return;
    }
    qrn_copies_commit();
    qrn_copies_wait<0>();
    qrn_fence_async();
    qrn_barrier_arrive(full);
}

/* [D][64] of each page; NaN for pages that are missing. */
template <typename kind>
static __device__ __forceinline__ void wg_copy_keys(const qrn_attention_params &p,
                                                    const wg_pages<kind> &pages, char *to,
                                                    qrn_barrier *full)
{
    const int line = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8 * 16;
    to += qrn_in_atom(line, x);
#pragma unroll
    for (int i = 0; i < pages.n; i++) {
        const char *from = pages.keys[i] + line * (PAGE * 2) + x;
#pragma unroll 4
        for (int d = 0; d < kind::D; d += 16) {
            char *place = to + (i * kind::D + d) * QRN_LINE;
            if (pages.exists[i] && !pages.keys[i])
                *(uint4 *)place = make_uint4(~0u, ~0u, ~0u, ~0u);
            else
                wg_copy_piece(p, place, from + d * (PAGE * 2), pages.exists[i]);
        }
    }
    wg_arrive(full, pages.lacks);
}

/* [64][D] of each page; zeros for keys that no row attends to. */
template <typename kind>
static __device__ __forceinline__ void
wg_copy_values(const qrn_attention_params &p, const wg_shared<kind> &s, const wg_pages<kind> &pages,
               int block, char *to, qrn_barrier *full)
{
    const int D = kind::D, line = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8 * 16;
    const int begin = (int)s.tile.begin - block * kind::N, end = (int)s.tile.end - block * kind::N;
    to += qrn_in_atom(line, x);
#pragma unroll
    for (int i = 0; i < pages.n; i++) {
        const char *from = pages.keys[i] + p.n_kv_heads * (PAGE * D * 2) + line * (D * 2) + x;
#pragma unroll
        for (int n = 0; n < PAGE; n += 16) {
            const int key = i * PAGE + n + line;
            const bool reads = pages.keys[i] && key >= begin && key < end;
#pragma unroll
            for (int d = 0; d < D / 64; d++)
                wg_copy_piece(p, to + (d * kind::N + i * PAGE + n) * QRN_LINE,
                              from + n * (D * 2) + d * QRN_LINE, reads);
        }
    }
    wg_arrive(full, false);
}

template <typename kind>
static __device__ __forceinline__ void wg_produce_paged_by_threads(const qrn_attention_params &p,
                                                                   wg_shared<kind> &s)
{
    qrn_ring<STAGES> ring;
    wg_pages<kind> now, next;
    now.look_up(p, s, s.first);
    for (int block = s.first; block < s.end; block++, ring.next()) {
        next.look_up(p, s, block + 1);
        qrn_barrier_wait(&s.k_empty[ring.stage], ring.parity ^ 1);
        wg_copy_keys<kind>(p, now, s.k[ring.stage], &s.k_full[ring.stage]);
        qrn_barrier_wait(&s.v_empty[ring.stage], ring.parity ^ 1);
        wg_copy_values<kind>(p, s, now, block, s.v[ring.stage], &s.v_full[ring.stage]);
        now = next;
    }
}

/* Keys that are not there are NaN; by all lanes of a warp. */
template <typename kind>
static __device__ __forceinline__ void wg_store_missing(const wg_pages<kind> &pages, char *to)
{
#pragma unroll
    for (int i = 0; i < pages.n; i++)
#pragma unroll 1
        for (int x = qrn_lane() * 16; x < kind::D * QRN_LINE; x += 32 * 16)
            if (pages.exists[i] && !pages.keys[i])
                *(uint4 *)(to + i * kind::D * QRN_LINE + x) = make_uint4(~0u, ~0u, ~0u, ~0u);
    qrn_fence_async();
}

/* One a page of keys, D / 64 of values.  What is not copied has keys that no row attends to, or that are
 * NaN: whatever the values are.  By a warp. */
template <typename kind, bool of_keys>
static __device__ __forceinline__ void wg_copy_pages(const qrn_attention_wgmma_params &p,
                                                     const wg_pages<kind> &pages, char *to,
                                                     qrn_barrier *full)
{
    const int D = kind::D, N = kind::N, page_bytes = PAGE * D * 2;
    if (of_keys && pages.lacks) wg_store_missing<kind>(pages, to);
    __syncwarp();
    if (qrn_lane()) return;
    int n_bytes = 0;
#pragma unroll
    for (int i = 0; i < pages.n; i++) n_bytes += pages.keys[i] ? page_bytes : 0;
    qrn_barrier_arrive_expecting(full, n_bytes);
#pragma unroll
    for (int i = 0; i < pages.n; i++) {
        const char *const values = pages.keys[i] + p.a.n_kv_heads * page_bytes;
        if (!pages.keys[i]) continue;
        if (of_keys) qrn_tensor_copy_at(to + i * D * QRN_LINE, &p.k, 0, 0, pages.keys[i], full);
#pragma unroll
        for (int d = 0; !of_keys && d < D / 64; d++)
            qrn_tensor_copy_at(to + (d * N + i * PAGE) * QRN_LINE, &p.v, d * 64, 0, values, full);
    }
}

/* --- bulk copies --- */

/* All keys or all values, by a warp each: keys are wanted again before the values of the block before, and
 * would wait for the place of those. */
template <typename kind, bool of_keys>
static __device__ __forceinline__ void wg_produce(const qrn_attention_wgmma_params &p,
                                                  wg_shared<kind> &s)
{
    const int matrix = (int)(s.tile.batch * p.a.n_kv_heads + s.kv_head);
    qrn_barrier *const full = of_keys ? s.k_full : s.v_full;
    qrn_barrier *const empty = of_keys ? s.k_empty : s.v_empty;
    qrn_ring<STAGES> ring;
    wg_pages<kind> now, next;
    if (kind::paged) now.look_up(p.a, s, s.first);
    for (int block = s.first; block < s.end; block++, ring.next()) {
        char *const to = of_keys ? s.k[ring.stage] : s.v[ring.stage];
        if (kind::paged) next.look_up(p.a, s, block + 1);
        qrn_barrier_wait(&empty[ring.stage], ring.parity ^ 1);
        if (kind::paged)
            wg_copy_pages<kind, of_keys>(p, now, to, &full[ring.stage]);
        else if (qrn_lane() == 0)
            wg_copy_box<kind>(to, of_keys ? p.k : p.v, block * kind::N, matrix, &full[ring.stage]);
        __syncwarp();
        now = next;
    }
}

#endif
