/* SPDX-License-Identifier: MIT
 * Rows of the product of floats that gates are made of, by a warp each. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_GATE_ROWS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_GATE_ROWS_CUH

#include "backends/cuda/device/float_dots.cuh"
#include "backends/cuda/device/gdn_inputs.cuh"

static __device__ __forceinline__ const uint8_t *gdn_gate_weights(const qrn_gdn_gate_rows &p, int row)
{
    return (const uint8_t *)(uintptr_t)(p.w + (uint64_t)(row * p.w_row));
}

/* Asks for a row's weights. */
static __device__ __forceinline__ void gdn_ask_gate_weights(const qrn_gdn_gate_rows &p, int row)
{
    for (int64_t at = 128 * qrn_lane(); at < p.w_row; at += 128 * 32) qrn_prefetch(gdn_gate_weights(p, row) + at);
}

static __device__ __forceinline__ void gdn_store_gate_row(const qrn_gdn_gate_rows &p, int64_t t, int row, float x)
{
    if (qrn_lane() == 0) ((float *)(uintptr_t)(p.out + (uint64_t)(t * p.out_row)))[row] = x;
}

/* Element `row` of token t of the product; AHEAD loads are on their way at a time. */
template <int AHEAD>
static __device__ __forceinline__ float gdn_gate_dot(const qrn_gdn_gate_rows &p, int64_t t, int row)
{
    const qrn_weight_row w = {gdn_gate_weights(p, row), nullptr, nullptr, p.dtype};
    const float *const x[1] = {(const float *)(uintptr_t)(p.x + (uint64_t)(t * p.x_row))};
    float acc[1] = {0.0f};
    float_dots<1, AHEAD>(w, x, 1, p.k, acc);
    return acc[0];
}

#endif
