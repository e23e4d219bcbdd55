/* SPDX-License-Identifier: MIT
 * Rows of x of a stream of packed weights (matmul_stream.cuh) on their way to shared memory.  One row lies there panel by
 * panel, codes where 16 bytes are loaded at once, d apart; several lie as in memory, p.x_pitch bytes from one
 * to the next, so that they are copied in 16 bytes a thread. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_X_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_X_CUH

#include "backends/cuda/device/matmul_stream_tiles.cuh"

static_assert(sizeof(qrn_q8_act) == QRN_STREAM_Q8 && offsetof(qrn_q8_act, sum) == QRN_STREAM_Q8_SUMS &&
                  offsetof(qrn_q8_act, q) == QRN_STREAM_Q8_CODES,
              "");

/* Where rows of x of a tile begin: lane r has row r's.  Worked out before a launch's turn where that can be. */
template <class Tiles>
static __device__ __forceinline__ uint64_t qrn_stream_x_rows(const Tiles &tiles, const qrn_tile &tile)
{
    return qrn_lane() < tile.n_rows ? (uint64_t)(uintptr_t)tiles.x_row(tile, qrn_lane()) : 0;
}
template <typename T> static __device__ __forceinline__ const T *qrn_stream_x_row(uint64_t rows, int r)
{
    return (const T *)(uintptr_t)__shfl_sync(QRN_ALL_OF_WARP, rows, r);
}

/* --- one row --- */

/* Sums of block j's halves, as a word, beside 128 k of x. */
template <int dtype>
static __device__ __forceinline__ void qrn_stream_put_sum(uint8_t *x, int j, uint32_t word)
{
    if (qrn_stream_splits_sums(qrn_form_of(dtype))) {
        const int sum = (int16_t)word + ((int)word >> 16), low = ((sum + 64) & 127) - 64;
        x[QRN_PANEL_K + j] = (uint8_t)low;
        x[QRN_PANEL_K + 4 + j] = (uint8_t)((sum - low) >> 7);
    } else {
        ((uint32_t *)(x + QRN_PANEL_K))[j] = word;
    }
}

/* A rounded one: a warp has 128 k, and then the next; all are under way at once. */
template <int dtype>
static __device__ __forceinline__ void qrn_stream_copy_row(const qrn_matmul_stream_params &p, const qrn_q8_act *row,
                                                           const qrn_stream_shared &s)
{
    enum { WORDS = sizeof(qrn_q8_act) / 4, CODES = WORDS - QRN_PANEL_K / 4 };
    const int lane = qrn_lane();
#pragma unroll 2
    for (int i = qrn_warp(); i < p.n_panels; i += QRN_STREAM_WARPS) {
        const uint32_t *from = (const uint32_t *)(row + i); /* d, sums, codes */
        uint32_t *to = (uint32_t *)(s.x + i * QRN_STREAM_X);
        qrn_copy4_async(to + lane, from + CODES + lane);
        if (lane < CODES) qrn_copy4_async(lane ? to + QRN_PANEL_K / 4 + lane - 1 : (uint32_t *)(s.d + i), from + lane);
    }
    qrn_copies_commit();
    qrn_copies_wait<0>();
    if (!qrn_stream_splits_sums(qrn_form_of(dtype))) return;
    __syncwarp();
#pragma unroll 1
    for (int first = qrn_warp(); first < p.n_panels; first += 8 * QRN_STREAM_WARPS) {
        const int i = first + lane / 4 * QRN_STREAM_WARPS;
        uint8_t *x = s.x + i * QRN_STREAM_X;
        const uint32_t word = i < p.n_panels ? ((const uint32_t *)(x + QRN_PANEL_K))[lane % 4] : 0;
        __syncwarp();
        if (i < p.n_panels) qrn_stream_put_sum<dtype>(x, lane % 4, word);
    }
}

/* --- several rows --- */

/* Rounded ones: a bulk copy each, or words of all threads where they begin elsewhere.  x_parity: of the next time. */
static __device__ __forceinline__ void qrn_stream_copy_rows(const qrn_matmul_stream_params &p, uint64_t rows, int n_rows,
                                                            const qrn_stream_shared &s, int &x_parity)
{
    const int n_bytes = p.n_panels * QRN_STREAM_Q8, lane = qrn_lane();
    if (n_bytes % 16 == 0 && __all_sync(QRN_ALL_OF_WARP, rows % 16 == 0)) {
        if (qrn_warp() == 0) {
            if (lane == 0) qrn_barrier_arrive_expecting(s.x_there, n_rows * n_bytes);
            qrn_fence_async();
            __syncwarp();
            if (lane < n_rows) qrn_bulk_copy(s.x + lane * p.x_pitch, (const void *)(uintptr_t)rows, n_bytes, s.x_there);
        }
        qrn_barrier_wait(s.x_there, x_parity);
        x_parity ^= 1;
        return;
    }
    for (int r = 0; r < n_rows; r++) {
        const char *from = qrn_stream_x_row<char>(rows, r);
        for (int i = 4 * (int)threadIdx.x; i < n_bytes; i += 4 * 32 * QRN_STREAM_WARPS)
            qrn_copy4_async(s.x + r * p.x_pitch + i, from + i);
    }
    qrn_copies_commit();
    qrn_copies_wait<0>();
}

/* --- floats --- */

/* Rows that are rounded here: a warp has 128 k of a row, three of them under way, if registers are left for that. */
template <int dtype, int COLUMNS>
static __device__ __forceinline__ void qrn_stream_round_x(const qrn_matmul_stream_params &p, uint64_t rows, int n_rows,
                                                          const qrn_stream_shared &s)
{
    enum { MANY = qrn_form_of(dtype).bits == 8 ? 1 : 3 };
    const int lane = qrn_lane(), n = n_rows * p.n_panels;
    qrn_q8_act *own = s.own + qrn_warp();
    for (int first = qrn_warp(); first < n; first += MANY * QRN_STREAM_WARPS) {
        float v[MANY][4];
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i = min(first + j * QRN_STREAM_WARPS, n - 1), r = i / p.n_panels;
            qrn_load4(qrn_stream_x_row<float>(rows, r), (int64_t)(i - r * p.n_panels) * QRN_PIECE + 4 * lane, p.job.w.k,
                      v[j]);
        }
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i = first + j * QRN_STREAM_WARPS, r = i / p.n_panels;
            if (i >= n) break;
            if (COLUMNS > 1) {
                qrn_store_q8_act((qrn_q8_act *)(s.x + r * p.x_pitch) + i - r * p.n_panels, v[j]);
                continue;
            }
            uint8_t *to = s.x + i * QRN_STREAM_X;
            __syncwarp();
            qrn_store_q8_act(own, v[j]);
            __syncwarp();
            ((uint32_t *)to)[lane] = ((const uint32_t *)own->q)[lane];
            if (lane < 4) qrn_stream_put_sum<dtype>(to, lane, ((const uint32_t *)own->sum)[lane]);
            if (lane == 0) s.d[i] = own->d;
        }
    }
}

/* Rows of a tile are there when all warps that multiply have come here. */
template <int dtype, int COLUMNS>
static __device__ __forceinline__ void qrn_stream_take_x(const qrn_matmul_stream_params &p, uint64_t rows, int n_rows,
                                                         const qrn_stream_shared &s, int &x_parity)
{
    qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
    if (p.job.x_dtype != QRN_Q8_ACT) qrn_stream_round_x<dtype, COLUMNS>(p, rows, n_rows, s);
    else if (COLUMNS > 1) qrn_stream_copy_rows(p, rows, n_rows, s, x_parity);
    else qrn_stream_copy_row<dtype>(p, qrn_stream_x_row<qrn_q8_act>(rows, 0), s);
    qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
}

#endif
