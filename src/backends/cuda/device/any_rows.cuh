/* SPDX-License-Identifier: MIT
 * Rows of any type, four elements a lane, as floats. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ANY_ROWS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ANY_ROWS_CUH

#include "backends/cuda/device/blocks.cuh"
#include "backends/cuda/device/rows.cuh"

/* Elements i .. i + 3 of a row, i a multiple of 4; 0 beyond its end. */
static __device__ __forceinline__ void qrn_load4_any(const qrn_row_type &type, const char *row,
                                                     int64_t i, int64_t d, float (&out)[4])
{
    if (type.dtype == QRN_F32 || type.dtype == QRN_F16 || type.dtype == QRN_BF16) {
        qrn_load4_of(type.dtype, row, i, d, out);
        return;
    }
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int j = 0; j < 4; j++) {
        if (i + j >= d) break;
        const float value =
            qrn_any_value(type.dtype, type.block_shift, type.block_bytes, row, i + j);
        if (j == 0) x[0] = value; /* an index that changes would put them in memory */
        if (j == 1) x[1] = value;
        if (j == 2) x[2] = value;
        if (j == 3) x[3] = value;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = x[j];
}

#endif
