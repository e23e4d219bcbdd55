/* SPDX-License-Identifier: MIT
 * kv_append: a warp takes 128 elements of a row.  From a position that is negative or too far nothing
 * is stored outside of the cache. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/kv_append_cuda.h"

QRN_DEVICE_FUNCTION(qrn_kv_append, 256, 4, qrn_kv_append_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32), position = *p.position;
    for (int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); piece < p.n_pieces;
         piece += step) {
        const int64_t row = piece / p.pieces_per_row, token = p.first + row / p.n_heads,
                      head = row % p.n_heads;
        const int64_t i = (piece - row * p.pieces_per_row) * QRN_PIECE + 4 * qrn_lane();
        const int64_t slot = p.ring ? (position + token) % p.capacity : position + token;
        if (position < 0 || slot >= p.capacity) continue;
        float x[4];
        qrn_load4((const float *)((const char *)(uintptr_t)p.x.data + token * p.x.stride[1] +
                                  head * p.x.stride[2]),
                  i, p.d, x);
        qrn_store4_as(p.cache_dtype,
                      (char *)(uintptr_t)p.cache.data + head * p.cache.stride[1] +
                          slot * p.cache.stride[2],
                      i, p.d, x);
    }
}
