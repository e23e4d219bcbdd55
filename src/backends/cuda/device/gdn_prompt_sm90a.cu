/* SPDX-License-Identifier: MIT
 * A joint: ssm_conv_history, l2_norm of q and k, gdn_gates and the rounding of q, k and v that gdn_open_chunk begins with, of many
 * tokens.  Channels come once as floats and go once as bf16, 1.5 times a float's bytes, where the launches of the steps move 5; bound by
 * the chain of a row's norm, of which four are side by side, and by how many rows on their way there are registers for. */
#include "backends/cuda/device/gdn_inputs.cuh"
#include "backends/cuda/device/wgmma.cuh"

/* As gdn_normed, and rounded to bf16, where gdn_open_chunk of many tokens has them; of keys floats as well that it keeps, those of
 * each sequence's last two chunks. */
struct gdn_rounded : gdn_normed {
    enum { TOGETHER = 4 };
    uint16_t *to; /* of the tile's first token */
    int64_t apart;
    int keeps_from; /* tokens of the tile */
    __device__ __forceinline__ gdn_rounded(const qrn_gdn_inputs_params &p, int64_t c, const qrn_tile &t)
        : gdn_normed(p, c), apart(p.conv.n_channels)
    {
        const bool is_key = is_normed && c >= p.n_normed / 2;
        to = (uint16_t *)(uintptr_t)p.rounded + (t.begin + t.first) * apart + c;
        keeps_from = is_key ? (int)(t.end - t.begin - 2 * QRN_CUDA_GDN_CHUNK - t.first) : (int)t.n;
    }
    template <class F> __device__ __forceinline__ void store(const float (&y)[4], float *out, int row) const
    {
        *(uint64_t *)(to + row * apart) = qrn_bf16_pair(y[0], y[1]) | (uint64_t)qrn_bf16_pair(y[2], y[3]) << 32;
        if (row >= keeps_from) to_out::store<F>(y, out, row);
    }
};

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_prompt_inputs, 128, 4, qrn_gdn_inputs_params)
{
    if ((int)blockIdx.x < p.n_conv_blocks)
        with_rings(p.conv, [&](int64_t c, const qrn_tile &t) { return gdn_rounded(p, c, t); });
    else
        gdn_gates_of_block(p);
}
