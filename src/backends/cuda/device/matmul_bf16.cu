/* SPDX-License-Identifier: MIT
 * Products of bf16 weights in rows with activations rounded to bf16, any number of rows of x.
 *
 * A block has 32 rows of a matrix and up to 32 of x; its warps take 128 k in turn.  Weights go from
 * memory straight into the fragments of mma: a lane reads 8 bytes of a row, four lanes 32 that lie
 * together, all of 8 KiB a warp before the first is used; which of 16 k stand where in a fragment is free, as
 * long as x agrees.  So one row of x is bound by memory, and up to 32 cost the same; more of them read
 * weights again, from the second cache.
 *
 * An output is acc += e over the 128 k in ascending order, where e is what the 8 mma of them make
 * from 0: the same bits whatever else is in the call. */
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/x_bf16.cuh"

enum { WARPS = 8 };

/* Of x a row's pairs of pieces of 16 bytes lie elsewhere in each of four rows: what sixteen lanes read, a pair of four
 * rows, falls into different banks. */
struct warp_memory {
    uint8_t x[32][256];
    float p[32][36]; /* [row of x][row of weights] */
};

static __device__ __forceinline__ uint8_t *piece_of(warp_memory &s, int row, int piece)
{
    return s.x[row] + 16 * (piece ^ (row & 3) << 1);
}

/* Elements k .. k + 3 of a row of d; 0 beyond. */
static __device__ __forceinline__ uint2 load4(const uint16_t *row, int64_t k, int64_t d)
{
    if (k + 4 <= d && qrn_is_aligned(row + k, 8)) return __ldg((const uint2 *)(row + k));
    uint32_t v[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t low = k + 2 * i < d ? row[k + 2 * i] : 0, high = k + 2 * i + 1 < d ? row[k + 2 * i + 1] : 0;
        v[i] = low | high << 16;
    }
    return make_uint2(v[0], v[1]);
}

/* Of four rows four of each 16 elements from k on; without a branch between the loads where rows are
 * aligned and long enough. */
static __device__ __forceinline__ void load_weights(const uint16_t *const (&rows)[4], int64_t k, int64_t d,
                                                    uint2 (&w)[4][8])
{
    const bool aligned = qrn_is_aligned(rows[0], 8) && qrn_is_aligned(rows[1], 8) &&
                         qrn_is_aligned(rows[2], 8) && qrn_is_aligned(rows[3], 8);
    if (aligned && k + 116 <= d) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) w[i][j] = __ldg((const uint2 *)(rows[i] + k) + 4 * j);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) w[i][j] = load4(rows[i], k + 16 * j, d);
    }
}

/* 128 k of a row of x. */
static __device__ __forceinline__ void load_x(const qrn_matmul_params &p, const char *row, int64_t k,
                                              warp_memory &s, int r)
{
    const int lane = qrn_lane();
    *(uint2 *)(piece_of(s, r, lane / 2) + lane % 2 * 8) = qrn_four_of_x(p, row, k + 4 * lane);
}

/* 32 rows of weights and n_columns times 8 of x, 128 k. */
static __device__ __forceinline__ void multiply(const uint2 (&w)[4][8], int n_columns, warp_memory &s)
{
    const int lane = qrn_lane();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float e[4][4];
#pragma unroll
        for (int n = 0; n < 16; n++) e[n / 4][n % 4] = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const uint2 &up = w[2 * i][j], &down = w[2 * i + 1][j];
            const uint32_t a[4] = {up.x, down.x, up.y, down.y};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (c >= n_columns) break;
                const uint2 x = *(const uint2 *)(piece_of(s, 8 * c + lane / 4, 2 * j + lane % 4 / 2) + lane % 2 * 8);
                const uint32_t b[2] = {x.x, x.y};
                qrn_mma_bf16(e[c], a, b);
            }
        }
#pragma unroll
        for (int c = 0; c < 4; c++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                if (c < n_columns)
                    s.p[8 * c + 2 * (lane % 4) + n % 2][16 * i + lane / 4 + 8 * (n / 2)] = e[c][n];
    }
}

QRN_DEVICE_FUNCTION(qrn_matmul_bf16, 256, 2, qrn_matmul_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    warp_memory *all = (warp_memory *)memory;
    const int warp = qrn_warp(), lane = qrn_lane();
    warp_memory &own = all[warp];
    __shared__ uint64_t x_rows[32];
    const int64_t group = blockIdx.x / p.n_tiles, n = group * 32 + lane;
    const qrn_tile tile = qrn_tile_at(p, blockIdx.x - group * p.n_tiles);
    if (tile.n_rows == 0) return;
    if (tile.matrix == p.n_matrices) {
        for (int r = warp; r < tile.n_rows && n < p.w.n; r += WARPS)
            qrn_out_row(p, qrn_row_of_tile(p, tile, r).i_out)[n] = __uint_as_float(0x7fc00000u);
        return;
    }
    const int n_columns = (tile.n_rows + 7) / 8;
    const uint16_t *rows[4]; /* past the last: that again, its results are nobody's */
#pragma unroll
    for (int i = 0; i < 4; i++)
        rows[i] = (const uint16_t *)qrn_row_of_weights(p.w, p.w2, tile.matrix,
                                                       min(group * 32 + 8 * i + lane / 4, p.w.n - 1)).blocks;
    if (warp == 0 && lane < tile.n_rows)
        x_rows[lane] = (uint64_t)(uintptr_t)qrn_x_row(p, qrn_row_of_tile(p, tile, lane).i_x);
    __syncthreads();
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int64_t n_panels = (p.w.k + 127) / 128;
    for (int64_t first = 0; first < n_panels; first += WARPS) {
        const int64_t k = (first + warp) * 128;
        if (k < p.w.k) {
            uint2 w[4][8];
            load_weights(rows, k + 4 * (lane % 4), p.w.k, w);
#pragma unroll 4
            for (int r = 0; r < tile.n_rows; r++)
                load_x(p, (const char *)(uintptr_t)x_rows[r], k, own, r);
            for (int r = tile.n_rows; r < 8 * n_columns; r++) *(uint2 *)(own.x[r] + 8 * lane) = make_uint2(0, 0);
            __syncwarp();
            multiply(w, n_columns, own);
        }
        __syncthreads();
        const int n_here = (int)min(n_panels - first, (int64_t)WARPS);
        for (int i = 0; i < n_here; i++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                if (warp + 8 * r < tile.n_rows) acc[r] += all[i].p[warp + 8 * r][lane];
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
        if (warp + 8 * r < tile.n_rows && n < p.w.n)
            qrn_out_row(p, qrn_row_of_tile(p, tile, warp + 8 * r).i_out)[n] = acc[r];
}
