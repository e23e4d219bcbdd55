/* SPDX-License-Identifier: MIT
 * embedding: a warp takes 128 elements.  An id outside of the table gives NaN. */
#include "backends/cuda/device/any_rows.cuh"
#include "backends/cuda/embedding_cuda.h"

static __device__ __forceinline__ float plain_value(int dtype, const char *row, int64_t i)
{
    if (dtype == QRN_F32) return ((const float *)row)[i];
    const uint16_t h = ((const uint16_t *)row)[i];
    return dtype == QRN_BF16 ? qrn_float_of_bf16(h) : qrn_float_of_f16(h);
}

/* Elements i .. i + 3 of row id of MLX codes: a stream of numbers, the lowest bits first, eight in
 * as many bytes as a number has bits.  Four elements have one scale. */
static __device__ __forceinline__ void load4_codes(const qrn_embedding_params &p, int32_t id,
                                                   int64_t i, float (&out)[4])
{
    const uint32_t n_bits = (uint32_t)p.table_type.block_bytes / 4;
    const uint8_t *row = (const uint8_t *)(uintptr_t)p.table + id * p.table_stride;
    const int64_t at = i / p.group;
    const float scale = plain_value(p.scales_dtype,
                                    (const char *)(uintptr_t)p.scales + id * p.scales_stride, at),
                bias = plain_value(p.biases_dtype,
                                   (const char *)(uintptr_t)p.biases + id * p.biases_stride, at);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int64_t bit = (i + j) * n_bits;
        const uint8_t *byte = row + bit / 8;
        const uint32_t shift = (uint32_t)(bit % 8);
        /* The second byte only if the number reaches into it: it may be the end of memory. */
        const uint32_t two = byte[0] | (shift + n_bits > 8 ? (uint32_t)byte[1] << 8 : 0u);
        out[j] = scale * (float)(two >> shift & ((1u << n_bits) - 1)) + bias;
    }
}

QRN_DEVICE_FUNCTION(qrn_embedding, 256, 4, qrn_embedding_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        const int32_t id = p.ids[row];
        const float nan = __uint_as_float(0x7fc00000u);
        float x[4] = {nan, nan, nan, nan};
        if (id >= 0 && id < p.n_vocab && i < p.shape.d) {
            if (p.group)
                load4_codes(p, id, i, x);
            else
                qrn_load4_any(p.table_type, (const char *)(uintptr_t)p.table + id * p.table_stride,
                              i, p.shape.d, x);
        }
        qrn_store4((float *)qrn_row(p.out, p.shape, row), i, p.shape.d, x);
    }
}
