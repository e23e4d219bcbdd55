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

    __device__ __forceinline__ void look_up(const qrn_attention_params &p, const wg_tile &t, int block)
    {
        lacks = false;
#pragma unroll
        for (int i = 0; i < n; i++) {
            const int64_t nth = (int64_t)block * n + i;
            exists[i] = block < t.end && nth * PAGE < t.of.end && (nth + 1) * PAGE > t.of.begin;
            keys[i] = exists[i] ? qrn_paged_page(p.paged, t.of.batch, nth) : nullptr;
            if (keys[i]) keys[i] += t.kv_head * (PAGE * kind::D * 2);
            lacks = lacks || (exists[i] && !keys[i]);
        }
    }
};

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

/* --- the warps that copy --- */

/* Whether all of a block's values are finite; by a warp.  An exponent of all ones becomes one bit more. */
template <typename kind> static __device__ __forceinline__ bool wg_is_finite(const char *values)
{
    const uint32_t one = kind::bf16 ? 0x00800080u : 0x04000400u;
    const uint4 *at = (const uint4 *)values + qrn_lane();
    uint32_t any = 0;
#pragma unroll 8
    for (int i = 0; i < kind::N * kind::D / 8 / 32; i++) {
        const uint4 v = at[32 * i];
        any |= ((v.x & 0x7fff7fffu) + one) | ((v.y & 0x7fff7fffu) + one) | ((v.z & 0x7fff7fffu) + one) |
               ((v.w & 0x7fff7fffu) + one);
    }
    return !__any_sync(QRN_ALL_OF_WARP, any & 0x80008000u);
}

/* A block's values that are not finite become 0, and with them those of keys that no row attends to; by a warp. */
template <typename kind> static __device__ __forceinline__ void wg_clean(wg_tile &t, char *values, int block)
{
    const uint32_t all = kind::bf16 ? 0x7f807f80u : 0x7c007c00u;
    uint4 *at = (uint4 *)values;
    const int from = (int)t.of.begin - block * kind::N, to = (int)t.of.end - block * kind::N;
    bool any = false;
#pragma unroll 1
    for (int i = qrn_lane(); i < kind::N * kind::D / 8; i += 32) {
        const int line = i / 8 % kind::N;
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
        any = true;
    }
    any = __any_sync(QRN_ALL_OF_WARP, any);
    if (any && qrn_lane() == 0) t.bad = 1;
    qrn_fence_async();
}

/* All keys or all values, by a warp each: keys are wanted again before the values of the block before,
 * and would wait for the place of those. */
template <typename kind, bool of_keys> struct wg_copier {
    const qrn_attention_wgmma_params &p;
    wg_shared<kind> &s;
    qrn_ring<STAGES> ring;
    int n_cleaned;

    __device__ __forceinline__ wg_copier(const qrn_attention_wgmma_params &params, wg_shared<kind> &shared)
        : p(params), s(shared), n_cleaned(0)
    {
    }

    __device__ __forceinline__ void copy(const wg_tile &t, const wg_pages<kind> &pages, int block, qrn_barrier *full)
    {
        char *const to = of_keys ? s.k[ring.stage] : s.v[ring.stage];
        const int matrix = (int)t.of.batch * (int)p.a.n_kv_heads + t.kv_head;
        if (kind::paged)
            wg_copy_pages<kind, of_keys>(p, pages, to, full);
        else if (qrn_lane() == 0)
            wg_copy_box<kind>(to, of_keys ? p.k : p.v, block * kind::N, matrix, full);
        __syncwarp();
    }

    /* Values of a block that rows attend to in part come to consumers when they are clean. */
    __device__ __forceinline__ void copy_cleaned(wg_tile &t, const wg_pages<kind> &pages, int block)
    {
        copy(t, pages, block, &s.v_come);
        qrn_barrier_wait(&s.v_come, n_cleaned++ & 1);
        if (!wg_is_finite<kind>(s.v[ring.stage])) wg_clean<kind>(t, s.v[ring.stage], block);
        __syncwarp();
        if (qrn_lane() == 0) qrn_barrier_arrive(&s.v_full[ring.stage]);
    }

    /* Blocks of a tile; before(block) is called ahead of each. */
    template <class Before> __device__ __forceinline__ void blocks(wg_tile &t, const Before &before)
    {
        wg_pages<kind> now, next;
        if (kind::paged) now.look_up(p.a, t, t.first);
        for (int block = t.first; block < t.end; block++, ring.next()) {
            before(block);
            if (kind::paged) next.look_up(p.a, t, block + 1);
            qrn_barrier_wait(of_keys ? &s.k_empty[ring.stage] : &s.v_empty[ring.stage], ring.parity ^ 1);
            if (of_keys || t.is_full(block))
                copy(t, now, block, of_keys ? &s.k_full[ring.stage] : &s.v_full[ring.stage]);
            else
                copy_cleaned(t, now, block);
            now = next;
        }
    }
};

/* Keys; and the block's tiles, of which the next one is known some blocks before this one's end, when its queries still
 * have time to come: sooner, it may be one that others would have come to first. */
template <typename kind>
static __device__ __forceinline__ void wg_produce_keys(const qrn_attention_wgmma_params &p, wg_shared<kind> &s)
{
    const int ahead = 14;
    wg_copier<kind, true> copier(p, s);
    qrn_ring<TILES> next;
    const auto tell_next = [&](bool is_first) {
        if (qrn_lane() == 0) {
            qrn_barrier_wait(&s.tile_empty[next.stage], next.parity ^ 1);
            wg_next_tile<kind>(p, s.tile[next.stage], is_first);
        }
        qrn_barrier_arrive_warp(&s.tile_full[next.stage]);
        next.next();
    };
    wg_tiles tiles;
    tell_next(true);
    while (wg_tile *t = tiles.wait(s)) {
        const int told_at = max(t->first + STAGES, t->end - ahead);
        copier.blocks(*t, [&](int block) {
            if (block == told_at) tell_next(false);
        });
        if (told_at >= t->end) tell_next(false);
        tiles.leave(s);
    }
}

template <typename kind>
static __device__ __forceinline__ void wg_produce_values(const qrn_attention_wgmma_params &p, wg_shared<kind> &s)
{
    wg_copier<kind, false> copier(p, s);
    wg_tiles tiles;
    while (wg_tile *t = tiles.wait(s)) {
        copier.blocks(*t, [](int) {});
        tiles.leave(s);
    }
}

#endif
