/* SPDX-License-Identifier: MIT
 * A joint: rms_norm, and one or two products of few rows of floats with what it makes: routers and gates of
 * mixtures of experts.  Each block makes all rows of x, while lines of its weights come; then a warp has a
 * row of weights. */
#include "backends/cuda/device/float_dots.cuh"
#include "backends/cuda/device/x_maker.cuh"
#include "backends/cuda/norm_floats_cuda.h"

enum { WARPS = QRN_NORM_FLOATS_WARPS };

template <int ROWS, int AHEAD>
static __device__ __forceinline__ void norm_floats(const qrn_norm_floats_params &p)
{
    QRN_DYNAMIC_SHARED(float, x);
    __shared__ float squares[QRN_NORM_FLOATS_ROWS][X_NORM_WARPS];
    const int nth = (int)blockIdx.x * WARPS + qrn_warp(), d = p.n_pieces * QRN_PIECE;
    const bool first = nth < p.side[0].n;
    const qrn_norm_floats_side &side = first ? p.side[0] : p.side[1];
    const int row = first ? nth : nth - p.side[0].n;
    const uint8_t *weights = (const uint8_t *)(uintptr_t)(side.w + (uint64_t)(row * side.w_row));
    for (int64_t at = 128 * qrn_lane(); row < side.n && at < side.w_row; at += 128 * 32)
        qrn_prefetch(weights + at);
    x_add_squares(p.maker, p.n_rows, p.n_pieces, WARPS, squares);
    __syncthreads();
    x_make<4>(p.maker, p.n_rows, p.n_pieces, qrn_warp(), WARPS, squares,
              [&](int r, int i, const float(&v)[4]) {
                  const int at = i * QRN_PIECE + 4 * qrn_lane();
                  qrn_store4(x + r * d, at, d, v);
                  if (blockIdx.x || !p.maker.rounded.data) return;
                  qrn_store4_as(p.rounded_dtype,
                                (char *)(uintptr_t)(p.maker.rounded.data +
                                                    (uint64_t)(r * p.maker.rounded.row)),
                                at, d, v);
              });
    __syncthreads();
    if (row >= side.n) return;
    const float *rows[ROWS];
    float acc[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        rows[r] = x + (r < p.n_rows ? r : 0) * d;
        acc[r] = 0.0f;
    }
    const qrn_weight_row w = {weights, nullptr, nullptr, side.dtype};
    float_dots<ROWS, AHEAD>(w, rows, p.n_rows, d, acc);
    if (qrn_lane()) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < p.n_rows)
            ((float *)(uintptr_t)(side.out + (uint64_t)(r * side.out_row)))[row] = acc[r];
}

QRN_DEVICE_FUNCTION(qrn_norm_floats_1, 128, 4, qrn_norm_floats_params)
{
    norm_floats<1, 8>(p);
}

QRN_DEVICE_FUNCTION(qrn_norm_floats_4, 128, 3, qrn_norm_floats_params)
{
    norm_floats<QRN_NORM_FLOATS_ROWS, 4>(p);
}
