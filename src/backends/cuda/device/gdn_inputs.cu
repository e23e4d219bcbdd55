/* SPDX-License-Identifier: MIT
 * A joint: ssm_conv_history, l2_norm of q and k, gdn_gates, of few tokens; the same with the product before, which gates are
 * made of.  Blocks go through channels as in ssm_conv4.cu, or, of single tokens, in ssm_conv_token.cuh; warps have whole
 * heads.  A few more have the gates. */
#include "backends/cuda/device/gdn_gate_rows.cuh"
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

/* The gates of two tokens and heads, each of them made of its row by a warp. */
static __device__ __forceinline__ void gates_of_rows(const qrn_gdn_product_inputs_params &p)
{
    const qrn_gdn_gates_params &g = p.inputs.gates;
    const bool is_g = qrn_warp() % 2 == 0;
    const int64_t i = (int64_t)((int)blockIdx.x - p.inputs.n_conv_blocks) * QRN_GDN_GATES_OF_BLOCK + qrn_warp() / 2,
                  t = i / g.n_heads, h = i - t * g.n_heads;
    const int row = (is_g ? p.rows.a : p.rows.b) + (int)h;
    gdn_ask_gate_weights(p.rows, row);
    qrn_grid_waits();
    if (t >= g.n_tokens) return;
    const float x = gdn_gate_dot<16>(p.rows, t, row);
    gdn_store_gate_row(p.rows, t, row, x);
    if (qrn_lane()) return;
    if (is_g) gdn_store_g(g, t, h, x);
    else gdn_store_beta(g, t, h, x);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_product_inputs, 128, 3, qrn_gdn_product_inputs_params)
{
    if ((int)blockIdx.x < p.inputs.n_conv_blocks)
        with_tokens<1>(p.inputs.conv, p.inputs.numbers_stay, [&](int64_t c) { return gdn_normed(p.inputs, c); });
    else
        gates_of_rows(p);
}
