/* SPDX-License-Identifier: MIT
 * Rows of tensors, four elements a lane: loads and stores of 16 bytes where they are aligned, of
 * single elements at ends and elsewhere; results rounded as cast rounds them. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ROWS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ROWS_CUH

#include <quern/dtype.h>
#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/rows_cuda.h"

enum { QRN_PIECE = 128 }; /* elements that a warp takes at once, and a block of Q8_ACT */

/* Where row r of a tensor is; NULL when the tensor is absent. */
static __device__ __forceinline__ char *qrn_row(const qrn_rows &t, const qrn_rows_shape &s,
                                                int64_t r)
{
    if (!t.data) return nullptr;
    int64_t at = r * t.stride[2];
    if (r >= s.n[2]) {
        const int64_t outer = r / s.n[2], i1 = outer % s.n[1];
        at = (r - outer * s.n[2]) * t.stride[2] + i1 * t.stride[1] + outer / s.n[1] * t.stride[0];
    }
    return (char *)(uintptr_t)t.data + at;
}

static __device__ __forceinline__ bool qrn_is_aligned(const void *p, unsigned n)
{
    return ((uintptr_t)p & (n - 1)) == 0;
}

/* Elements i .. i + 3 of a row of d floats; 0 beyond its end. */
static __device__ __forceinline__ void qrn_load4(const float *row, int64_t i, int64_t d,
                                                 float (&out)[4])
{
    if (i + 4 <= d && qrn_is_aligned(row + i, 16)) {
        const float4 v = *(const float4 *)(row + i);
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = i + j < d ? row[i + j] : 0.0f;
}

static __device__ __forceinline__ void qrn_store4(float *row, int64_t i, int64_t d,
                                                  const float (&x)[4])
{
    if (i + 4 <= d && qrn_is_aligned(row + i, 16)) {
        *(float4 *)(row + i) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (i + j < d) row[i + j] = x[j];
}

/* The same of 16-bit elements, as bits. */
static __device__ __forceinline__ void qrn_load4(const uint16_t *row, int64_t i, int64_t d,
                                                 uint16_t (&out)[4])
{
    if (i + 4 <= d && qrn_is_aligned(row + i, 8)) {
        const uint2 v = *(const uint2 *)(row + i);
        out[0] = (uint16_t)v.x, out[1] = (uint16_t)(v.x >> 16);
        out[2] = (uint16_t)v.y, out[3] = (uint16_t)(v.y >> 16);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = i + j < d ? row[i + j] : (uint16_t)0;
}

static __device__ __forceinline__ void qrn_store4(uint16_t *row, int64_t i, int64_t d,
                                                  const uint16_t (&x)[4])
{
    if (i + 4 <= d && qrn_is_aligned(row + i, 8)) {
        *(uint2 *)(row + i) = make_uint2(x[0] | (uint32_t)x[1] << 16, x[2] | (uint32_t)x[3] << 16);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (i + j < d) row[i + j] = x[j];
}

/* A block of Q8_ACT from the 128 values of a warp, to the bit of formats/q8_act.h. */
static __device__ __forceinline__ void qrn_store_q8_act(qrn_q8_act *block, const float (&x)[4])
{
    const int lane = qrn_lane();
    float most = 0.0f;
    bool finite = true;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float a = fabsf(x[j]);
        finite = finite && a <= 3.402823466e38f;
        most = fmaxf(most, a);
    }
    finite = __all_sync(QRN_ALL_OF_WARP, finite) != 0;
    most = qrn_warp_max(most);
    const float least = 1.17549435e-38f, quotient = most / 127.0f;
    const float d = quotient >= least ? quotient : 0.0f;
    const float inverse = finite && d > 0.0f ? 1.0f / d : 0.0f;
    int q[4], sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        q[j] = finite ? __float2int_rn(x[j] * inverse) : 0;
        sum += q[j];
    }
    sum += __shfl_xor_sync(QRN_ALL_OF_WARP, sum, 1);
    sum += __shfl_xor_sync(QRN_ALL_OF_WARP, sum, 2);
    if (lane == 0) block->d = finite ? d : __uint_as_float(0x7fc00000u);
    if (lane % 4 == 0) block->sum[lane / 4] = (int16_t)sum;
    *(uint32_t *)(block->q + 4 * lane) = (uint32_t)(q[0] & 255) | (uint32_t)(q[1] & 255) << 8 |
                                         (uint32_t)(q[2] & 255) << 16 |
                                         (uint32_t)(q[3] & 255) << 24;
}

/* Elements i .. i + 3 of a row of any type that results may have; i is 4 * lane into a piece, and
 * all lanes of the warp come here. */
static __device__ __forceinline__ void qrn_store4_as(int dtype, char *row, int64_t i, int64_t d,
                                                     const float (&x)[4])
{
    if (dtype == QRN_F32) {
        qrn_store4((float *)row, i, d, x);
    } else if (dtype == QRN_Q8_ACT) {
        qrn_store_q8_act((qrn_q8_act *)row + i / QRN_PIECE, x);
    } else {
        uint16_t h[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            h[j] = dtype == QRN_BF16 ? qrn_bf16_of_float(x[j]) : qrn_f16_of_float(x[j]);
        qrn_store4((uint16_t *)row, i, d, h);
    }
}

/* Elements i .. i + 3 of a row of f32, f16 or bf16, as floats; 0 beyond its end. */
static __device__ __forceinline__ void qrn_load4_of(int dtype, const char *row, int64_t i,
                                                    int64_t d, float (&out)[4])
{
    if (dtype == QRN_F32) {
        qrn_load4((const float *)row, i, d, out);
        return;
    }
    uint16_t h[4];
    qrn_load4((const uint16_t *)row, i, d, h);
#pragma unroll
    for (int j = 0; j < 4; j++)
        out[j] = dtype == QRN_BF16 ? qrn_float_of_bf16(h[j]) : qrn_float_of_f16(h[j]);
}

#endif
