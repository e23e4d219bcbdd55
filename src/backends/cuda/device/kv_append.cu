/* SPDX-License-Identifier: MIT
 * kv_append and kv_append_paged: copies, bound by memory.  Pages hold keys transposed: 32 tokens x
 * 32 dimensions of them go through shared memory, so that both sides are read and written in
 * lines. */
#include "backends/cuda/device/kv_append.cuh"
#include "backends/cuda/device/rows.cuh"

/* A warp takes 128 elements of a row; blockIdx.y is the head, z keys or values. */
QRN_DEVICE_FUNCTION(qrn_kv_append, 256, 2, qrn_kv_append_params)
{
    const qrn_kv_append_side &s = p.side[blockIdx.z];
    const int64_t position = *p.position, pieces = (s.d + QRN_PIECE - 1) / QRN_PIECE;
    const int64_t kept = p.n_tokens < p.capacity ? p.n_tokens : p.capacity;
    if (position < 0 || (!p.ring && p.n_tokens > p.capacity - position)) return;
    const int64_t step = (int64_t)gridDim.x * 8;
    for (int64_t i = (int64_t)blockIdx.x * 8 + qrn_warp(); i < kept * pieces; i += step) {
        const int64_t t = p.n_tokens - kept + i / pieces;
        const int64_t at = i % pieces * QRN_PIECE + 4 * qrn_lane();
        const char *from = (const char *)(uintptr_t)s.x + t * s.x_token + blockIdx.y * s.x_head;
        char *to = (char *)(uintptr_t)s.cache + blockIdx.y * s.cache_head +
                   (position + t) % p.capacity * s.cache_slot;
        float x[4];
        qrn_load4((const float *)from, at, s.d, x);
        qrn_store4_as(s.dtype, to, at, s.d, x);
    }
}

enum { TILE = 32, TILE_ROWS = 8 };

/* A block takes 32 tokens x 32 dimensions of head blockIdx.y, of keys (z 0) or values. */
QRN_DEVICE_FUNCTION(qrn_kv_append_paged, 256, 2, qrn_kv_append_paged_params)
{
    __shared__ float tile[TILE][TILE + 1];
    __shared__ char *heads[TILE]; /* where the head of a token's page is; NULL: nowhere */
    __shared__ int slots[TILE];
    const bool values = blockIdx.z != 0;
    const int64_t d = p.paged.head_dim, tiles = (d + TILE - 1) / TILE;
    const int64_t first = blockIdx.x / tiles * TILE, at = blockIdx.x % tiles * TILE;
    const int lane = qrn_lane(), warp = qrn_warp();
    /* Rows are on their way while warp 0 finds out where they go. */
    const float *x = values ? p.v + blockIdx.y * p.v_head : p.k + blockIdx.y * p.k_head;
    const int64_t stride = values ? p.v_token : p.k_token;
    float rows[TILE / TILE_ROWS];
#pragma unroll
    for (int i = 0; i < TILE / TILE_ROWS; i++) {
        const int64_t t = first + warp + i * TILE_ROWS;
        rows[i] = t < p.paged.n_tokens && at + lane < d ? x[t * stride + at + lane] : 0.0f;
    }
    if (warp == 0) {
        const int64_t t = first + lane;
        char *head = t < p.paged.n_tokens ? qrn_paged_page_of(p.paged, t, &slots[lane]) : nullptr;
        const int64_t nth = (values ? p.paged.n_kv_heads : 0) + blockIdx.y;
        heads[lane] = head ? head + nth * QRN_PAGE * d * (p.half ? 2 : 4) : nullptr;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < TILE / TILE_ROWS; n++) {
        const int i = warp + n * TILE_ROWS;
        if (!heads[i] || at + lane >= d) continue;
        if (values)
            qrn_paged_put(heads[i], p.half, slots[i] * d + at + lane, rows[n]);
        else
            tile[i][lane] = rows[n];
    }
    if (values) return;
    __syncthreads();
    for (int i = warp; i < TILE; i += TILE_ROWS)
        if (heads[lane] && at + i < d)
            qrn_paged_put(heads[lane], p.half, (at + i) * QRN_PAGE + slots[lane], tile[lane][i]);
}
