/* SPDX-License-Identifier: MIT
 * A joint: ssm_conv_history, l2_norm of q and k, gdn_gates, of few tokens.  Blocks go through channels as
 * in ssm_conv4.cu, whose warps have whole heads; a few more have the gates. */
#include "backends/cuda/device/gdn_inputs.cuh"

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_inputs, 128, 4, qrn_gdn_inputs_params)
{
    if ((int)blockIdx.x < p.n_conv_blocks) {
        with_rings(p.conv, [&](int64_t c) { return gdn_normed(p, c); });
        return;
    }
    qrn_grid_waits();
    const int64_t i = (int64_t)((int)blockIdx.x - p.n_conv_blocks) * blockDim.x + threadIdx.x,
                  t = i / p.gates.n_heads, h = i - t * p.gates.n_heads;
    if (t < p.gates.n_tokens) gdn_store_gates(p.gates, t, h);
}
