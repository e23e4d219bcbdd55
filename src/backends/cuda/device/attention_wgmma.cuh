/* SPDX-License-Identifier: MIT
 * What attention_wgmma_sm90a.cu stands on: its shared memory, tiles and rows, and how blocks of
 * threads come to tiles. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_CUH

#include "backends/cuda/attention_wgmma_cuda.h"
#include "backends/cuda/device/attention.cuh"
#include "backends/cuda/device/wgmma.cuh"

enum {
    ROWS = QRN_WGMMA_ROWS,
    GROUP_ROWS = ROWS / 2, /* of a warpgroup */
    PLACES = QRN_WGMMA_PLACES,
    ITEMS = 2 * PLACES, /* a warpgroup's queries of a tile; every second one is of the same warpgroup, every third
                           one in the same place: a barrier of its own for each is always waited for in turn */
    STAGES = QRN_WGMMA_STAGES,
    TILES = 3,     /* whose results are stored, whose keys are multiplied, whose queries come */
    PRODUCERS = 4, /* warps: of keys and tiles, of values, two of queries */
    QUERY_WARPS = 2,
    CONSUMERS = 8, /* warps, a warpgroup's first half of a tile's rows and the second one's other half */
    PAGE = QRN_PAGE
};

/* What a kernel is made for; keys and values are tensors or in pages. */
template <int width, bool of_bf16, bool in_pages> struct wg_kind {
    static const int D = width, N = QRN_WGMMA_KEYS(width);
    static const bool bf16 = of_bf16, paged = in_pages;
};

/* A tile that a block has taken; the same for all of its threads. */
struct wg_tile {
    qrn_attention_tile of;
    int kv_head;
    int full_first, full_end; /* blocks of N keys that all rows attend to */
    int first, end;           /* blocks of N keys that any row attends to */
    int bad;                  /* values that are not finite were left out */
    int is_none;              /* there are no more tiles */

    __device__ __forceinline__ bool is_full(int block) const { return block >= full_first && block < full_end; }
};

/* Queries and values, and keys of plain buffers, are arrays of atoms for 64 elements each, a line a
 * row; keys of pages are arrays for 64 keys each, a line an element. */
template <typename kind> struct wg_shared {
    char q[PLACES][GROUP_ROWS * kind::D * 2]; /* of warpgroup 0, of 1, of the next tile's 0 ... in turn */
    char k[STAGES][kind::N * kind::D * 2], v[STAGES][kind::N * kind::D * 2];
    qrn_barrier k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES], v_come;
    qrn_barrier q_full[ITEMS], q_empty[PLACES], tile_full[TILES], tile_empty[TILES];
    wg_tile tile[TILES];
    float factor[PLACES][GROUP_ROWS]; /* of products, to become scores in base 2 */
    uint16_t pin[32 * CONSUMERS];
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

/* Tile nth of all: the last first, which see the most keys, of all kv heads.  Numbers of tiles, heads and batches are
 * below 2^31: divisions of 64 bits would take long. */
static __device__ qrn_attention_tile wg_find_tile(const qrn_attention_wgmma_params &w, unsigned number, int *kv_head)
{
    const qrn_attention_params &p = w.a;
    const unsigned n_heads = (unsigned)p.n_kv_heads, n_batch = (unsigned)p.n_batch, group = (unsigned)p.group,
                   at = (unsigned)w.n_tiles - 1 - number, nth = at / n_heads;
    *kv_head = (int)(at - nth * n_heads);
    if (p.paged.pages) return qrn_attention_paged_tile(p, nth, ROWS);
    const unsigned tile = nth / n_batch, first_row = tile * ROWS, left = (unsigned)p.n_tokens * group - first_row;
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
static __device__ __forceinline__ qrn_attention_row wg_row(const qrn_attention_params &p, const wg_tile &t, int r)
{
    const int group = (int)p.group, nth = (int)t.of.first_row + (r < t.of.n_rows ? r : t.of.n_rows - 1);
    qrn_attention_row row;
    row.token = nth / group;
    row.head = (int64_t)t.kv_head * group + nth % group;
    qrn_attention_range(p, t.of.position + row.token, t.of.n_kv, &row.begin, &row.end);
    return row;
}

/* A thread's two rows of a warpgroup's, of which it has columns 2 (lane % 4) and the next of each eight. */
struct wg_rows {
    int begin[2], end[2]; /* their keys, less the thread's first column */

    static __device__ __forceinline__ int of_group(int half)
    {
        return qrn_warp() % 4 * 16 + qrn_lane() / 4 + 8 * half;
    }
    __device__ __forceinline__ void find(const qrn_attention_params &p, const wg_tile &t, int wg, int half)
    {
        const qrn_attention_row row = wg_row(p, t, wg * GROUP_ROWS + of_group(half));
        begin[half] = (int)row.begin - qrn_lane() % 4 * 2;
        end[half] = (int)row.end - qrn_lane() % 4 * 2;
    }
};

/* The number of a tile that no block has taken.  The last one that is taken sets the count back for the next launch. */
static __device__ __forceinline__ unsigned wg_take(const qrn_attention_wgmma_params &p)
{
    return gridDim.x + atomicInc((unsigned *)p.n_taken, (unsigned)p.n_tiles - 1);
}

/* Tells all of the block its next tile, one that has rows; by one thread.  Each block's first one has its number. */
template <typename kind>
static __device__ void wg_next_tile(const qrn_attention_wgmma_params &p, wg_tile &t, bool is_first)
{
    const unsigned n_tiles = (unsigned)p.n_tiles;
    t.is_none = 0;
    do {
        const unsigned number = is_first ? blockIdx.x : wg_take(p);
        is_first = false;
        if (number >= n_tiles) {
            t.is_none = 1;
            return;
        }
        t.of = wg_find_tile(p, number, &t.kv_head);
    } while (t.of.n_rows <= 0);
    t.first = (int)(t.of.begin / kind::N);
    t.end = t.of.end > t.of.begin ? (int)((t.of.end + kind::N - 1) / kind::N) : t.first;
    t.full_first = (int)((t.of.all_begin + kind::N - 1) / kind::N);
    t.full_end = (int)(t.of.all_end / kind::N);
    t.bad = 0;
}

/* The tiles of a block as each warp comes to them. */
struct wg_tiles {
    qrn_ring<TILES> ring;

    template <typename kind> __device__ __forceinline__ wg_tile *wait(wg_shared<kind> &s)
    {
        qrn_barrier_wait(&s.tile_full[ring.stage], ring.parity);
        wg_tile *t = &s.tile[ring.stage];
        return qrn_uniform(t->is_none) ? nullptr : t;
    }
    /* This warp is done with it. */
    template <typename kind> __device__ __forceinline__ void leave(wg_shared<kind> &s)
    {
        qrn_barrier_arrive_warp(&s.tile_empty[ring.stage]);
        ring.next();
    }
};

#endif
