/* SPDX-License-Identifier: MIT
 * ssm_conv and ssm_conv_history with any number of taps and any alignment.  A thread walks a tile
 * of tokens with a vector of channels; of a row's taps all but one come from a cache.  The first
 * tile of a sequence alone reads its state and writes the new one, after it has read the old. */
#include "backends/cuda/device/ssm_conv.cuh"

template <class F> static __device__ __forceinline__ void convolve(const qrn_ssm_conv_params &p)
{
    const int64_t index = blockIdx.x / p.n_channel_blocks, block = blockIdx.x % p.n_channel_blocks;
    const qrn_tile t = tile_number(p, index);
    if (!t.exists) return;
    const place<F> at(p, t, (block * QRN_CONV_THREADS + threadIdx.x) * F::V);
    if (at.c >= p.n_channels) return;
    for (int64_t row = t.first; row < t.first + t.n; row++) {
        const typename F::words now = at.row_at(p, t, row);
        float y[F::V];
        for (int k = 0; k < (int)p.n_taps; k++) {
            const typename F::words v = k < p.n_taps - 1 ? at.row_at(p, t, row + k - (p.n_taps - 1)) : now;
#pragma unroll
            for (int j = 0; j < F::V; j++) {
                const float e = F::get(F::at(v, j)), w = weight_at(p, at.c + j, k);
                y[j] = k == 0 ? w * e : fmaf(w, e, y[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < F::V; j++)
            y[j] = at.unknown ? __uint_as_float(0x7fc00000u) : F::silu(y[j]);
        store_words<F>(at.out + row * p.out_stride[1], at.c, p.n_channels, F::put_all(y));
        if (p.history) at.keep(p, t, row, now);
    }
    if (t.first == 0) at.finish(p, t);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv_f32, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_f32>(p);
}

QRN_DEVICE_FUNCTION(qrn_ssm_conv_bf16, 128, 4, qrn_ssm_conv_params)
{
    convolve<of_bf16>(p);
}
