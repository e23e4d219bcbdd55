/* SPDX-License-Identifier: MIT
 * cast: a warp takes 128 elements of a row at a time; copy: a thread takes 16 bytes. */
#include "backends/cuda/cast_cuda.h"
#include "backends/cuda/device/rows.cuh"

/* 1-4-3 bits, bias 7, no infinities; all ones below the sign is NaN. */
static __device__ __forceinline__ float float_of_e4m3(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80) << 24, exponent = (x >> 3) & 15, mantissa = x & 7;
    if ((x & 0x7f) == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
    if (exponent) return __uint_as_float(sign | (exponent + 120) << 23 | mantissa << 20);
    const float magnitude = (float)mantissa * 0x1p-9f;
    return sign ? -magnitude : magnitude;
}

/* 2^(x - 127): 0 is a subnormal, which is kept. */
static __device__ __forceinline__ float float_of_e8m0(uint8_t x)
{
    if (x == 255) return __uint_as_float(0x7fc00000u);
    return __uint_as_float(x ? (uint32_t)x << 23 : 0x400000u);
}

static __device__ __forceinline__ float plain_element(int dtype, const char *row, int64_t i)
{
    switch (dtype) {
    case QRN_F64: return (float)((const double *)row)[i];
    case QRN_F8_E4M3: return float_of_e4m3(((const uint8_t *)row)[i]);
    case QRN_F8_E5M2: return qrn_float_of_f16((uint16_t)(((const uint8_t *)row)[i] << 8));
    default: return float_of_e8m0(((const uint8_t *)row)[i]);
    }
}

static __device__ __forceinline__ void load4_plain(int dtype, const char *row, int64_t i, int64_t d,
                                                   float (&out)[4])
{
    if (dtype == QRN_F32 || dtype == QRN_F16 || dtype == QRN_BF16) {
        qrn_load4_of(dtype, row, i, d, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = i + j < d ? plain_element(dtype, row, i + j) : 0.0f;
}

QRN_DEVICE_FUNCTION(qrn_cast, 256, qrn_cast_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        float x[4];
        load4_plain(p.x_dtype, qrn_row(p.x, p.shape, row), i, p.shape.d, x);
        qrn_store4_as(p.out_dtype, qrn_row(p.out, p.shape, row), i, p.shape.d, x);
    }
}

QRN_DEVICE_FUNCTION(qrn_copy, 256, qrn_copy_params)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t piece = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row, i = (piece - row * p.pieces_per_row) * 16;
        const char *x = qrn_row(p.x, p.shape, row) + i;
        char *out = qrn_row(p.out, p.shape, row) + i;
        const int64_t n = p.shape.d - i < 16 ? p.shape.d - i : 16;
        if (n == 16 && qrn_is_aligned(x, 16) && qrn_is_aligned(out, 16))
            *(uint4 *)out = *(const uint4 *)x;
        else
            for (int64_t j = 0; j < n; j++) out[j] = x[j];
    }
}
