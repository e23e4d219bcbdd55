/* SPDX-License-Identifier: MIT
 * ssm_conv and ssm_conv_history with four taps and aligned rows: bound by memory, which brings and
 * takes 18 bytes a clock and multiprocessor, so that 4.6 numbers of bf16 have to be made in a
 * clock.  Blocks are short, and read all that they read before they write: where blocks stay, and reading and writing take turns
 * everywhere at once, memory moves a tenth less, copied by threads or by bulk copies.
 *
 * Blocks that follow each other take neighbouring channels, so that whole rows move together.  A call of few tokens is bound by latency: whatever says where
 * things are is asked for at once, then all that is computed with, and weights are on their way
 * before the launch before this one has ended. */
#include "backends/cuda/device/ssm_conv4.cuh"

template <class F> static __device__ __forceinline__ void with_states(const qrn_ssm_conv_params &p)
{
    const int64_t c = begin<F>(p);
    const qrn_tile t = tile_number(p, blockIdx.x / (unsigned)p.n_channel_blocks);
    if (!t.exists || c >= p.n_channels) return;
    convolve<F>(p, t, c, states<F>{p, t, c}, as_it_is());
}

QRN_DEVICE_FUNCTION_EARLY(qrn_ssm_conv4_f32, 128, 6, qrn_ssm_conv_params)
{
    with_states<of_f32>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_ssm_conv4_bf16, 128, 8, qrn_ssm_conv_params)
{
    with_states<of_bf16>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_ssm_conv4_history, 128, 6, qrn_ssm_conv_params)
{
    with_rings(p, [](int64_t, const qrn_tile &) { return as_it_is(); });
}
