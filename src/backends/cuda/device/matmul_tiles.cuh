/* SPDX-License-Identifier: MIT
 * Products of packed weights with more rows of x, for each type a function of its own: tensor cores of
 * bytes, to the bit what matmul_vec.cuh gives.
 *
 * A block has 32 rows of a matrix and 32 of x.  Each of its warps takes panels of 128 k in turn, on its
 * own until the end of one: it asks for 32 x 128 codes of x, unpacks as many of weights meanwhile, and
 * multiplies; what its panel adds to the 1024 outputs lies in shared memory until the block adds up
 * those of all warps, k ascending.  So few rows of x keep memory as busy as one does, and weights are
 * read once for 32; with more rows arithmetic bounds it: of a panel's 32 products of tiles each needs
 * about ten instructions beside, which scale exact sums. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_TILES_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_TILES_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/panels.cuh"
#include "backends/cuda/device/products.cuh"

enum {
    QRN_TILE_WARPS = 8,
    QRN_TILE_ROW = 144 /* bytes between rows: their 16-byte pieces fall into different banks */
};

/* What a warp has in shared memory. */
struct qrn_tile_warp {
    union {
        uint8_t w[32][QRN_TILE_ROW];
        float p[32][36]; /* [row of x][row of weights], after the product */
    };
    uint8_t x[32][QRN_TILE_ROW]; /* codes, then the eight sums */
    float d[32];
};

/* The scales of a lane's row of weights. */
struct qrn_tile_scales {
    float d[4], m[4];
    uint32_t subs[4]; /* bytes s0 s1 t0 t1 */
};

/* Begins to copy a panel of 32 rows of x, zeros past the last. */
static __device__ __forceinline__ void qrn_tile_copy_x(const qrn_matmul_params &p, const int32_t *i_x,
                                                       int n_rows, int64_t panel, qrn_tile_warp &s)
{
    const int lane = qrn_lane();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int r = 4 * i + lane / 8;
        const int64_t block = (int64_t)i_x[r] * p.acts_at.n_blocks + panel;
        qrn_copy16_async(s.x[r] + 16 * (lane % 8),
                         (const char *)p.acts_at.q + block * QRN_PANEL_K + 16 * (lane % 8),
                         r < n_rows ? 16 : 0);
    }
    const int64_t own = (int64_t)i_x[lane] * p.acts_at.n_blocks + panel;
    qrn_copy16_async(s.x[lane] + QRN_PANEL_K, (const char *)p.acts_at.sums + 16 * own,
                     lane < n_rows ? 16 : 0);
    qrn_copies_commit();
    s.d[lane] = ((const float *)p.acts_at.d)[own];
}

/* A panel of the lane's row of weights. */
static __device__ __forceinline__ void qrn_tile_unpack(const qrn_panel_form &form, const uint8_t *panel,
                                                       qrn_tile_warp &s, qrn_tile_scales &scales)
{
    uint4 *to = (uint4 *)s.w[qrn_lane()];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        qrn_block b;
        qrn_panel_block(form, panel, qrn_lane(), j, b);
        to[2 * j] = make_uint4(b.q[0], b.q[1], b.q[2], b.q[3]);
        to[2 * j + 1] = make_uint4(b.q[4], b.q[5], b.q[6], b.q[7]);
        scales.d[j] = b.d;
        scales.m[j] = b.m;
        scales.subs[j] = (uint32_t)(b.s[0] & 255) | (uint32_t)(b.s[1] & 255) << 8 |
                         (uint32_t)b.t[0] << 16 | (uint32_t)b.t[1] << 24;
    }
}

/* The sums of x of block j, of columns 2t and 2t + 1 of tile c: pairs of 16 bits. */
static __device__ __forceinline__ uint32_t qrn_tile_x_sums(const qrn_tile_warp &s, int c, int e, int j)
{
    return ((const uint32_t *)(s.x[8 * c + 2 * (qrn_lane() % 4) + e] + QRN_PANEL_K))[j];
}

/* Integer sums of the block's 32 k are added to isum: rows 16 i + group and 8 below. */
static __device__ __forceinline__ void qrn_tile_block(const qrn_form &f, const uint32_t (&a)[4],
                                                      const uint32_t (&b)[2], const uint32_t (&two)[2],
                                                      const uint32_t (&subs)[2], int (&isum)[4])
{
    const int low0 = f.base * (int16_t)two[0], high0 = f.base * ((int)two[0] >> 16),
              low1 = f.base * (int16_t)two[1], high1 = f.base * ((int)two[1] >> 16);
    if (f.sub == QRN_SUB_NONE) {
        isum[0] += low0 + high0, isum[2] += low0 + high0;
        isum[1] += low1 + high1, isum[3] += low1 + high1;
        qrn_mma_s8(isum, a, b);
    } else if (f.sub == QRN_SUB_SCALE || f.sub == QRN_SUB_SCALE_MIN) {
        int c[4] = {low0 + high0, low1 + high1, low0 + high0, low1 + high1};
        qrn_mma_s8(c, a, b);
#pragma unroll
        for (int i = 0; i < 4; i++) isum[i] += (int8_t)subs[i / 2] * c[i];
    } else {
        const uint32_t first[4] = {a[0], a[1], 0, 0}, second[4] = {0, 0, a[2], a[3]};
        int c[4] = {low0, low1, low0, low1}, e[4] = {high0, high1, high0, high1};
        qrn_mma_s8(c, first, b);
        qrn_mma_s8(e, second, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            isum[i] += (int8_t)subs[i / 2] * c[i] + (int8_t)(subs[i / 2] >> 8) * e[i];
    }
}

/* tsum += what block j adds. */
static __device__ __forceinline__ void qrn_tile_t(const qrn_form &f, const uint32_t (&two)[2],
                                                  const uint32_t (&subs)[2], int (&tsum)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int low = (int16_t)two[i % 2], high = (int)two[i % 2] >> 16;
        const int t0 = (int)(subs[i / 2] >> 16 & 255u), t1 = (int)(subs[i / 2] >> 24);
        if (f.sub == QRN_SUB_NONE)
            tsum[i] += low + high;
        else if (f.sub == QRN_SUB_SCALE_MIN)
            tsum[i] += t0 * (low + high);
        else
            tsum[i] += t0 * low + t1 * high;
    }
}

/* Block j ends a run: sums of it, in integers, join those of 16 rows of weights from 16 i on. */
static __device__ __forceinline__ void qrn_tile_end_run(const qrn_panel_form &form, int n_columns, int i,
                                                        int j, const qrn_tile_scales &scales,
                                                        const qrn_tile_warp &s, int (&isum)[4][4],
                                                        float (&sums)[4][4])
{
    const int row = 16 * i + qrn_lane() / 4;
    const bool has_min = qrn_has_min(form.f);
    float d[2], m[2];
    uint32_t subs[4][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        d[h] = __shfl_sync(QRN_ALL_OF_WARP, scales.d[j], row + 8 * h);
        m[h] = has_min ? __shfl_sync(QRN_ALL_OF_WARP, scales.m[j], row + 8 * h) : 0.0f;
#pragma unroll
        for (int of = 0; of < 4; of++)
            subs[of][h] = has_min && form.f.sub != QRN_SUB_NONE
                              ? __shfl_sync(QRN_ALL_OF_WARP, scales.subs[of], row + 8 * h)
                              : 0;
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
        if (c >= n_columns) break;
        int tsum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int of = 0; of < 4; of++) {
            if (!has_min || of > j || of <= j - form.run) continue;
            const uint32_t two[2] = {qrn_tile_x_sums(s, c, 0, of), qrn_tile_x_sums(s, c, 1, of)};
            qrn_tile_t(form.f, two, subs[of], tsum);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            qrn_run_sums of_run = {isum[c][e], tsum[e]};
            qrn_end_run(form.f, d[e / 2], m[e / 2], of_run, sums[c][e]);
            isum[c][e] = 0;
        }
    }
}

/* What a panel adds to outputs, to shared memory in place of weights.  Columns of x in eights: n_columns
 * of them. */
static __device__ __forceinline__ void qrn_tile_panel(const qrn_panel_form &form, int n_columns,
                                                      const qrn_tile_scales &scales, qrn_tile_warp &s)
{
    const int lane = qrn_lane(), group = lane / 4;
    float sums[2][4][4];
    /* 16 rows of weights after the other: fewer sums are under way, which is worth loading x twice. */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int isum[4][4];
#pragma unroll
        for (int n = 0; n < 16; n++) sums[i][n / 4][n % 4] = 0.0f, isum[n / 4][n % 4] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t a[4], x[2][4];
            qrn_ldmatrix4(a, s.w[16 * i + lane % 16] + 32 * j + 16 * (lane / 16));
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (2 * h < n_columns)
                    qrn_ldmatrix4(x[h], s.x[16 * h + lane % 8 + 8 * (lane / 16)] + 32 * j + 16 * (lane / 8 % 2));
            const uint32_t subs[2] = {__shfl_sync(QRN_ALL_OF_WARP, scales.subs[j], 16 * i + group),
                                      __shfl_sync(QRN_ALL_OF_WARP, scales.subs[j], 16 * i + 8 + group)};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (c >= n_columns) break;
                const uint32_t b[2] = {x[c / 2][2 * (c % 2)], x[c / 2][2 * (c % 2) + 1]};
                uint32_t two[2] = {0, 0};
                if (form.f.base) two[0] = qrn_tile_x_sums(s, c, 0, j), two[1] = qrn_tile_x_sums(s, c, 1, j);
                qrn_tile_block(form.f, a, b, two, subs, isum[c]);
            }
            if ((j + 1) % form.run == 0) qrn_tile_end_run(form, n_columns, i, j, scales, s, isum, sums[i]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (c < n_columns)
                    s.p[8 * c + 2 * (lane % 4) + e % 2][16 * i + group + 8 * (e / 2)] = sums[i][c][e];
}

template <int dtype> static __device__ __forceinline__ void qrn_matmul_tiles(const qrn_matmul_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    qrn_tile_warp *all = (qrn_tile_warp *)memory;
    __shared__ int32_t i_x[32];
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.w);
    const int warp = qrn_warp(), lane = qrn_lane();
    qrn_tile_warp &own = all[warp];
    const int64_t group = blockIdx.x / p.n_tiles, n_panels = p.acts_at.n_blocks;
    const qrn_tile tile = qrn_tile_at(p, blockIdx.x - group * p.n_tiles);
    const int64_t n = group * QRN_PANEL_ROWS + lane;
    if (tile.n_rows == 0) return;
    if (tile.matrix == p.n_matrices) {
        for (int r = warp; r < tile.n_rows && n < p.w.n; r += QRN_TILE_WARPS)
            qrn_out_row(p, qrn_row_of_tile(p, tile, r).i_out)[n] = __uint_as_float(0x7fc00000u);
        return;
    }
    const uint8_t *weights = qrn_panel_at(p.w, tile.matrix, group, 0);
    if (warp == 0) i_x[lane] = (int32_t)qrn_row_of_tile(p, tile, lane < tile.n_rows ? lane : 0).i_x;
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t first = 0; first < n_panels; first += QRN_TILE_WARPS) {
        __syncthreads();
        if (first + warp < n_panels) {
            qrn_tile_scales scales;
            qrn_tile_copy_x(p, i_x, tile.n_rows, first + warp, own);
            qrn_tile_unpack(form, weights + (first + warp) * p.w.panel_bytes, own, scales);
            qrn_copies_wait<0>();
            __syncwarp();
            qrn_tile_panel(form, (tile.n_rows + 7) / 8, scales, own);
        }
        __syncthreads();
        const int n_here = (int)min(n_panels - first, (int64_t)QRN_TILE_WARPS);
        for (int i = 0; i < n_here; i++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                if (warp + 8 * r < tile.n_rows)
                    acc[r] = fmaf(all[i].p[warp + 8 * r][lane], all[i].d[warp + 8 * r], acc[r]);
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
        if (warp + 8 * r < tile.n_rows && n < p.w.n)
            qrn_out_row(p, qrn_row_of_tile(p, tile, warp + 8 * r).i_out)[n] = acc[r];
}

#define QRN_MATMUL_TILES(NAME)                                                       \
    QRN_DEVICE_FUNCTION(qrn_matmul_tiles_##NAME, 256, 2, qrn_matmul_params)          \
    {                                                                                \
        qrn_matmul_tiles<QRN_##NAME>(p);                                             \
    }

#endif
