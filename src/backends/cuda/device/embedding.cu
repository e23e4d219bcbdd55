/* SPDX-License-Identifier: MIT
 * embedding of plain rows: a warp takes 128 elements.  An id outside of the table gives NaN. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/embedding_cuda.h"

QRN_DEVICE_FUNCTION(qrn_embedding, 256, qrn_embedding_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        const int32_t id = p.ids[row];
        const float nan = __uint_as_float(0x7fc00000u);
        float x[4] = {nan, nan, nan, nan};
        if (id >= 0 && id < p.n_vocab)
            qrn_load4_of(p.table_dtype, (const char *)(uintptr_t)p.table + id * p.table_stride, i,
                         p.shape.d, x);
        qrn_store4((float *)qrn_row(p.out, p.shape, row), i, p.shape.d, x);
    }
}
