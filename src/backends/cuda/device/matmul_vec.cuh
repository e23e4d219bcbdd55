/* SPDX-License-Identifier: MIT
 * Products of packed weights with few rows of x, for each type a function of its own, on any GPU; Hopper
 * has matmul_stream.cuh.
 *
 * Bound by reading weights once.  A block has 32 rows of a matrix, a lane a row; its warps take panels
 * of 128 k in turn, so that several thousand bytes are under way in each multiprocessor; x lies in
 * shared memory, and all lanes read the same of it.  What a panel adds to an output waits there too,
 * until one warp adds it up, k ascending: the order that products of many rows have. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_VEC_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_VEC_CUH

#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/panels.cuh"
#include "backends/cuda/device/products.cuh"

/* Panels that are in shared memory at once, for ROWS rows of x. */
template <int ROWS> struct qrn_vec_shared {
    static constexpr int N = ROWS == 1 ? 64 : 32;
    uint4 q[ROWS][N][8];
    uint32_t sums[ROWS][N][4]; /* pairs: of each 16 */
    float d[ROWS][N];
    float p[N][ROWS][32];
};

/* A panel of a row of x: as rounded already, or rounded here. */
template <int ROWS>
static __device__ __forceinline__ void qrn_vec_load_x(const qrn_matmul_params &p, const char *x,
                                                      int64_t panel, qrn_q8_act *own,
                                                      qrn_vec_shared<ROWS> &s, int r, int at)
{
    const int lane = qrn_lane();
    const qrn_q8_act *from = (const qrn_q8_act *)x + panel;
    if (p.x_dtype != QRN_Q8_ACT) {
        float v[4];
        qrn_load4((const float *)x, panel * QRN_PIECE + 4 * lane, p.w.k, v);
        __syncwarp();
        qrn_store_q8_act(own, v);
        __syncwarp();
        from = own;
    }
    ((uint32_t *)s.q[r][at])[lane] = ((const uint32_t *)from->q)[lane];
    if (lane < 4) s.sums[r][at][lane] = ((const uint32_t *)from->sum)[lane];
    if (lane == 0) s.d[r][at] = from->d;
}

/* What a panel adds to outputs of the lane's row. */
template <int ROWS>
static __device__ __forceinline__ void qrn_vec_panel(const qrn_panel_form &form, const uint8_t *panel,
                                                     qrn_vec_shared<ROWS> &s, int at)
{
    qrn_run_sums of_run[ROWS];
    float sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) of_run[r].isum = of_run[r].tsum = 0, sums[r] = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        qrn_block b;
        qrn_panel_block(form, panel, qrn_lane(), j, b);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const uint4 q0 = s.q[r][at][2 * j], q1 = s.q[r][at][2 * j + 1];
            const uint32_t x[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w}, two = s.sums[r][at][j];
            qrn_add_block(form.f, b, x, (int16_t)two, (int)two >> 16, of_run[r]);
            if ((j + 1) % form.run == 0) qrn_end_run(form.f, b.d, b.m, of_run[r], sums[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) s.p[at][r][qrn_lane()] = sums[r];
}

/* Asks for the block's first weights while what was launched before ends, where they are known by then. */
static __device__ __forceinline__ void qrn_vec_prefetch(const qrn_matmul_params &p)
{
    enum { AHEAD = 64 * 1024 };
    if (threadIdx.x || p.ids) return;
    const int64_t group = blockIdx.x / p.n_tiles;
    const int64_t matrix = qrn_tile_at(p, blockIdx.x - group * p.n_tiles).matrix;
    qrn_prefetch_bulk(qrn_panel_at(p.w, matrix, group, 0), (int)min(p.w.group_bytes / 16 * 16, (int64_t)AHEAD));
}

template <int dtype, int ROWS, int WARPS>
static __device__ __forceinline__ void qrn_matmul_vec(const qrn_matmul_params &p)
{
    qrn_vec_prefetch(p);
    qrn_grid_waits();
    typedef qrn_vec_shared<ROWS> shared;
    QRN_DYNAMIC_SHARED(char, memory);
    shared &s = *(shared *)memory;
    __shared__ qrn_q8_act own[WARPS];
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.w);
    const int warp = qrn_warp(), lane = qrn_lane();
    /* Tiles of the same weights are neighbours: the second cache has them. */
    const int64_t group = blockIdx.x / p.n_tiles;
    const qrn_tile tile = qrn_tile_at(p, blockIdx.x - group * p.n_tiles);
    const int64_t n = group * QRN_PANEL_ROWS + lane, n_panels = (p.w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
    if (tile.matrix == p.n_matrices) {
        if (warp < tile.n_rows && n < p.w.n)
            qrn_out_row(p, qrn_row_of_tile(p, tile, warp).i_out)[n] = __uint_as_float(0x7fc00000u);
        return;
    }
    const uint8_t *weights = qrn_panel_at(p.w, tile.matrix, group, 0);
    if (warp < n_panels)
        for (int at = 128 * lane; at < p.w.panel_bytes; at += 4096)
            qrn_prefetch(weights + warp * p.w.panel_bytes + at);
    float acc = 0.0f;
    for (int64_t first = 0; first < n_panels; first += shared::N) {
        const int n_here = (int)min(n_panels - first, (int64_t)shared::N);
        if (first) __syncthreads();
        for (int i = warp; i < n_here * tile.n_rows; i += WARPS) {
            const int r = i / n_here;
            qrn_vec_load_x<ROWS>(p, qrn_x_row(p, qrn_row_of_tile(p, tile, r).i_x), first + i - r * n_here,
                                 &own[warp], s, r, i - r * n_here);
        }
        __syncthreads();
        for (int at = warp; at < n_here; at += WARPS)
            qrn_vec_panel<ROWS>(form, weights + (first + at) * p.w.panel_bytes, s, at);
        __syncthreads();
        if (warp < tile.n_rows)
            for (int at = 0; at < n_here; at++) acc = fmaf(s.p[at][warp][lane], s.d[warp][at], acc);
    }
    if (warp < tile.n_rows && n < p.w.n) qrn_out_row(p, qrn_row_of_tile(p, tile, warp).i_out)[n] = acc;
}

/* One block may have all registers of a multiprocessor: none go to memory. */
#define QRN_MATMUL_VEC(NAME)                                                       \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_vec1_##NAME, 512, 1, qrn_matmul_params)   \
    {                                                                              \
        qrn_matmul_vec<QRN_##NAME, 1, 16>(p);                                      \
    }                                                                              \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_vec4_##NAME, 512, 1, qrn_matmul_params)   \
    {                                                                              \
        qrn_matmul_vec<QRN_##NAME, 4, 16>(p);                                      \
    }

#endif
