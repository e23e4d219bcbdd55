/* SPDX-License-Identifier: MIT
 * A joint: ssm_conv_history, l2_norm of q and k, gdn_gates, of few tokens.  Blocks go through channels as
 * in ssm_conv4.cu, or, of single tokens, in ssm_conv_token.cuh; warps have whole heads.  A few more have the gates. */
#include "backends/cuda/device/gdn_inputs.cuh"
#include "backends/cuda/device/ssm_conv_token.cuh"

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_inputs, 128, 4, qrn_gdn_inputs_params)
{
    if ((int)blockIdx.x < p.n_conv_blocks)
        with_rings(p.conv, [&](int64_t c, const qrn_tile &) { return gdn_normed(p, c); });
    else
        gdn_gates_of_block(p);
}

/* No more tokens than sequences.  Of many sequences a block has some: then all blocks have room at once, beside those of the
 * product before and some of the gated delta rule behind. */
template <int TOGETHER> static __device__ __forceinline__ void inputs_of_tokens(const qrn_gdn_inputs_params &p)
{
    if ((int)blockIdx.x < p.n_conv_blocks)
        with_tokens<TOGETHER>(p.conv, p.numbers_stay, [&](int64_t c) { return gdn_normed(p, c); });
    else
        gdn_gates_of_block(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_inputs_token, 128, 6, qrn_gdn_inputs_params)
{
    inputs_of_tokens<1>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_inputs_tokens, 128, 4, qrn_gdn_inputs_params)
{
    inputs_of_tokens<QRN_GDN_INPUTS_TOGETHER>(p);
}
