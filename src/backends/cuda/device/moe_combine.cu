/* SPDX-License-Identifier: MIT
 * moe_combine: bound by memory; a warp takes 128 elements of a token's row, 16 bytes a lane of each
 * expert's. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/moe_combine_cuda.h"

enum { AT_ONCE = 8 }; /* rows of experts on their way */

QRN_DEVICE_FUNCTION(qrn_moe_combine, 256, 2, qrn_moe_combine_params)
{
    const int64_t pieces = (p.d + QRN_PIECE - 1) / QRN_PIECE, step = (int64_t)gridDim.x * 8;
    for (int64_t i = (int64_t)blockIdx.x * 8 + qrn_warp(); i < p.n_tokens * pieces; i += step) {
        const int64_t t = i / pieces, at = i % pieces * QRN_PIECE + 4 * qrn_lane();
        const float *experts = p.experts + t * p.experts_token,
                    *w = p.weights + t * p.weights_stride;
        float y[4] = {0.0f, 0.0f, 0.0f, 0.0f}, shared[4], gate = 0.0f;
        if (p.shared) { /* on its way with the others */
            if (p.gate) gate = p.gate[t * p.gate_stride];
            qrn_load4(p.shared + t * p.shared_stride, at, p.d, shared);
        }
        for (int64_t k0 = 0; k0 < p.k; k0 += AT_ONCE) {
            float x[AT_ONCE][4], weight[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (k0 + k >= p.k) break;
                weight[k] = w[k0 + k];
                qrn_load4(experts + (k0 + k) * p.experts_rank, at, p.d, x[k]);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (k0 + k >= p.k) break;
#pragma unroll
                for (int j = 0; j < 4; j++) y[j] = fmaf(weight[k], x[k][j], y[j]);
            }
        }
        if (p.shared) {
            const float factor = p.gate ? qrn_sigmoid(gate) : 1.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) y[j] = fmaf(factor, shared[j], y[j]);
        }
        qrn_store4(p.out + t * p.out_stride, at, p.d, y);
    }
}
