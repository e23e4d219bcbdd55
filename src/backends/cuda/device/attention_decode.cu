/* SPDX-License-Identifier: MIT
 * attention_paged for few rows (attention_decode.cuh), by itself. */
#include "backends/cuda/device/attention_alone.cuh"
#include "backends/cuda/device/attention_decode.cuh"

template <int D, int R, bool shares>
static __device__ __forceinline__ void attention_decode(const qrn_attention_params &p, void *memory)
{
    decode_shared<D, R> &s = *(decode_shared<D, R> *)memory;
    if (!p.numbers_stay) qrn_grid_waits();
    if (qrn_warp() == 0) {
        const int64_t nth = blockIdx.x, seq = qrn_attention_seq_by_warp(p, nth, R);
        const qrn_attention_tile t = qrn_attention_tile_of_seq(p, seq, nth, R);
        if (qrn_lane() < R)
            s.row[qrn_lane()] =
                qrn_attention_row_of(p, t, blockIdx.y, qrn_lane() < t.n_rows ? qrn_lane() : 0);
        if (qrn_lane() == 0) s.tile = t;
    }
    __syncthreads();
    attention_alone<D, R, shares> steps = {p, s};
    if (s.tile.n_rows > 0) decode<D, R, attention_alone<D, R, shares>>(p, s, steps).walk();
    else qrn_grid_waits();
}

#define DECODE(name, D, R, shares)                                                       \
    QRN_DEVICE_FUNCTION_EARLY(qrn_attention_decode_##name, 128, 2, qrn_attention_params) \
    {                                                                                    \
        QRN_DYNAMIC_SHARED(uint4, memory);                                               \
        attention_decode<D, R, shares>(p, memory);                                       \
    }

DECODE(8_64, 64, 8, false)
DECODE(8_128, 128, 8, false)
DECODE(8_256, 256, 8, false)
DECODE(16_64, 64, 16, false)
DECODE(16_128, 128, 16, false)
DECODE(16_256, 256, 16, false)
DECODE(shared_8_64, 64, 8, true)
DECODE(shared_8_128, 128, 8, true)
DECODE(shared_8_256, 256, 8, true)
DECODE(shared_16_64, 64, 16, true)
DECODE(shared_16_128, 128, 16, true)
DECODE(shared_16_256, 256, 16, true)
