/* SPDX-License-Identifier: MIT
 * Chains of products of bf16 weights on Hopper. */
#include "backends/cuda/device/matmul_chain_bf16.cuh"

QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_chain_bf16, qrn_chain_threads(), 1, qrn_matmul_chain_bf16_params)
{
    qrn_matmul_chain(qrn_chain_bf16{{}, p}, p.chain);
}
