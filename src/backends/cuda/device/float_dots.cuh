/* SPDX-License-Identifier: MIT
 * Rows of plain floats times rows of x, by a warp.  Weights 4 lane + 128 i + j of a row, and those of x,
 * are lane's, which adds them in that order; then the lanes' sums are added as qrn_warp_sum does. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_FLOAT_DOTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_FLOAT_DOTS_CUH

#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/device/weights_float.cuh"

/* Four weights of a row; 0 past its end. */
static __device__ __forceinline__ void load_weights(const qrn_weight_row &w, int64_t k, int64_t d,
                                                    float (&out)[4])
{
    if (w.dtype == QRN_F32 || w.dtype == QRN_F16 || w.dtype == QRN_BF16)
        qrn_load4_of(w.dtype, (const char *)w.blocks, k, d, out);
    else
        for (int j = 0; j < 4; j++) out[j] = k + j < d ? qrn_float_at(w.dtype, w.blocks, k + j) : 0.0f;
}

static __device__ __forceinline__ void add_four(const float (&w)[4], const float (&x)[4], int64_t n, float &acc)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (j < n) acc = fmaf(w[j], x[j], acc);
}

/* Four weights that lie together, from 16 bytes of floats or 8 of 16-bit ones. */
template <int dtype> static __device__ __forceinline__ void load_whole(const uint8_t *row, int at, uint4 &out)
{
    if (dtype == QRN_F32) {
        out = *(const uint4 *)(row + 4 * (int64_t)at);
    } else {
        const uint2 v = *(const uint2 *)(row + 2 * (int64_t)at);
        out.x = v.x, out.y = v.y;
    }
}

template <int dtype> static __device__ __forceinline__ void floats_of(const uint4 &w, float (&out)[4])
{
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint16_t half = (uint16_t)(words[j / 2] >> 16 * (j % 2));
        out[j] = dtype == QRN_F32    ? __uint_as_float(words[j])
                 : dtype == QRN_BF16 ? qrn_float_of_bf16(half)
                                     : qrn_float_of_f16(half);
    }
}

template <int dtype, int ROWS, int AHEAD>
static __device__ __forceinline__ void add_pieces_of(const qrn_weight_row &w, const float *const (&x)[ROWS],
                                                     int n_rows, int n_pieces, float (&acc)[ROWS])
{
    const int own = 4 * qrn_lane();
#pragma unroll 1
    for (int first = 0; first < n_pieces; first += AHEAD) {
        uint4 v[AHEAD];
        float y[AHEAD][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load_whole<dtype>(w.blocks, min(first + i, n_pieces - 1) * QRN_PIECE + own, v[i]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= n_rows) break;
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const float4 four = *(const float4 *)(x[r] + min(first + i, n_pieces - 1) * QRN_PIECE + own);
                y[i][0] = four.x, y[i][1] = four.y, y[i][2] = four.z, y[i][3] = four.w;
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                float f[4];
                floats_of<dtype>(v[i], f);
                if (first + i < n_pieces) add_four(f, y[i], 4, acc[r]);
            }
        }
    }
}

/* The first n_pieces pieces of 128, all whole and aligned, of F32, BF16 or F16; AHEAD loads are on their way at a time.
 * Code for each type: numbers of one are never looked at as if they were of another. */
template <int ROWS, int AHEAD>
static __device__ __forceinline__ void add_pieces(const qrn_weight_row &w, const float *const (&x)[ROWS],
                                                  int n_rows, int n_pieces, float (&acc)[ROWS])
{
    if (w.dtype == QRN_F32) add_pieces_of<QRN_F32, ROWS, AHEAD>(w, x, n_rows, n_pieces, acc);
    else if (w.dtype == QRN_BF16) add_pieces_of<QRN_BF16, ROWS, AHEAD>(w, x, n_rows, n_pieces, acc);
    else add_pieces_of<QRN_F16, ROWS, AHEAD>(w, x, n_rows, n_pieces, acc);
}

/* Pieces from k on, of any type and alignment. */
template <int ROWS>
static __device__ __noinline__ void add_others(const qrn_weight_row &w, const float *const (&x)[ROWS],
                                               int n_rows, int64_t k, int64_t d, float (&acc)[ROWS])
{
    for (int64_t at = k + 4 * qrn_lane(); at < d; at += QRN_PIECE) {
        float v[4], y[4];
        load_weights(w, at, d, v);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= n_rows) break;
            qrn_load4(x[r], at, d, y);
            add_four(v, y, d - at, acc[r]);
        }
    }
}

/* acc += a row of k weights times the first n_rows of ROWS rows of x. */
template <int ROWS, int AHEAD>
static __device__ __forceinline__ void float_dots(const qrn_weight_row &w, const float *const (&x)[ROWS],
                                                  int n_rows, int64_t k, float (&acc)[ROWS])
{
    const bool is_f32 = w.dtype == QRN_F32, is_half = w.dtype == QRN_F16 || w.dtype == QRN_BF16;
    bool together = (is_f32 || is_half) && qrn_is_aligned(w.blocks, is_f32 ? 16 : 8);
#pragma unroll
    for (int r = 0; r < ROWS; r++) together = together && (r >= n_rows || qrn_is_aligned(x[r], 16));
    const int n_pieces = together ? (int)(k / QRN_PIECE) : 0;
    add_pieces<ROWS, AHEAD>(w, x, n_rows, n_pieces, acc);
    if ((int64_t)n_pieces * QRN_PIECE < k) add_others<ROWS>(w, x, n_rows, (int64_t)n_pieces * QRN_PIECE, k, acc);
#pragma unroll
    for (int r = 0; r < ROWS; r++) acc[r] = qrn_warp_sum(acc[r]);
}

#endif
