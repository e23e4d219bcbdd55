/* SPDX-License-Identifier: MIT
 * The gated norm behind gdn_open_chunk, whose rows are heads of tokens, d 128. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_NORM_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_NORM_CUH

#include "backends/cuda/device/gdn_open_token.cuh"
#include "backends/cuda/device/norm_row.cuh"

/* In place of a norm's parameters: there is none. */
struct gdn_no_norm {};
template <class Norm> inline constexpr bool gdn_has_norm = true;
template <> inline constexpr bool gdn_has_norm<gdn_no_norm> = false;

static __device__ __forceinline__ norm_row gdn_row_to_norm(const qrn_rms_norm_params &p, int64_t t, int h)
{
    return norm_row(p, qrn_row_place{{0, t, h}});
}

/* Rows of n tokens and heads, when they are in memory; by all threads of a block. */
static __device__ __noinline__ void gdn_norm_others(const qrn_rms_norm_params &p, int64_t begin, int n, int first_head,
                                                    int n_heads)
{
    for (int i = qrn_warp(); i < n * n_heads; i += (int)blockDim.x / 32) {
        const norm_row row = gdn_row_to_norm(p, begin + i / n_heads, first_head + i % n_heads);
        norm_part<1, 1> s, weight, gate;
        s.load(row.x, TOKEN_D);
        if (p.weight) weight.load((const float *)(uintptr_t)p.weight, TOKEN_D);
        if (row.gate) gate.load(row.gate, TOKEN_D);
        norm_whole_row<false>(p, row, TOKEN_D, s, weight, gate, nullptr);
    }
}

#endif
