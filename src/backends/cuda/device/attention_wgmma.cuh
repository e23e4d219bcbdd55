/* SPDX-License-Identifier: MIT
 * What attention_wgmma_sm90a.cu stands on: its shared memory, its tiles and rows, how queries come to
 * shared memory and results leave it. */
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

/* --- results --- */

/* Where four floats of half a row of D from column c on stand in a warp's 16. */
template <int D> static __device__ __forceinline__ int wg_place_of(int row, int c)
{
    const int n_groups = D / 16, turn = row % (n_groups < 8 ? n_groups : 8);
    return row * (D / 2) + ((c / 8 ^ turn) * 8 + c % 8);
}

/* Half of a warp's 16 rows of D from shared memory, whole lines at once; lane i knows where row i % 16
 * goes, NULL: nowhere. */
template <int D, bool in_pieces>
static __device__ __forceinline__ void wg_store_lines(const float *part, float *out)
{
    const int of_row = D / 8, rows = 32 / of_row, n = 16 / rows, some = n < 8 ? n : 8;
    const int first = qrn_lane() / of_row, c = qrn_lane() % of_row * 4;
#pragma unroll
    for (int i = 0; i < n; i += some) {
        float4 y[some];
#pragma unroll
        for (int j = 0; j < some; j++)
            y[j] = *(const float4 *)&part[wg_place_of<D>(first + (i + j) * rows, c)];
#pragma unroll
        for (int j = 0; j < some; j++) {
            float *const to = wg_of_lane(out, first + (i + j) * rows);
            if (!to) continue;
            if (in_pieces)
                *(float4 *)(to + c) = y[j];
            else
                to[c] = y[j].x, to[c + 1] = y[j].y, to[c + 2] = y[j].z, to[c + 3] = y[j].w;
        }
    }
}

#endif
