/* SPDX-License-Identifier: MIT
 * How keys and values come to the shared memory of attention_wgmma_sm90a.cu. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_COPIES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_COPIES_CUH

#include "backends/cuda/device/attention_wgmma.cuh"

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
        if (!pages.keys[i]) continue;
        const char *const values = pages.keys[i] + p.a.n_kv_heads * page_bytes;
        if (of_keys) qrn_tensor_copy_at(to + i * D * QRN_LINE, &p.k, 0, 0, pages.keys[i], full);
#pragma unroll
        for (int d = 0; !of_keys && d < D / 64; d++)
            qrn_tensor_copy_at(to + (d * N + i * PAGE) * QRN_LINE, &p.v, d * 64, 0, values, full);
    }
}

/* --- bulk copies --- */

/* All keys or all values, by a warp each: keys are wanted again before the values of the block before,
 * and would wait for the place of those. */
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
