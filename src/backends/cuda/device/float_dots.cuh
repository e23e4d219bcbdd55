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

/* acc += a row of k weights times the first n_rows of ROWS rows of x; AHEAD loads of 16 bytes are on their
 * way at a time. */
template <int ROWS, int AHEAD>
static __device__ __forceinline__ void float_dots(const qrn_weight_row &w, const float *const (&x)[ROWS],
                                                  int n_rows, int64_t k, float (&acc)[ROWS])
{
    for (int64_t first = 4 * qrn_lane(); first < k; first += AHEAD * QRN_PIECE) {
        float v[AHEAD][4], y[AHEAD][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) load_weights(w, first + i * QRN_PIECE, k, v[i]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= n_rows) break;
#pragma unroll
            for (int i = 0; i < AHEAD; i++) qrn_load4(x[r], first + i * QRN_PIECE, k, y[i]);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) add_four(v[i], y[i], k - first - i * QRN_PIECE, acc[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) acc[r] = qrn_warp_sum(acc[r]);
}

#endif
