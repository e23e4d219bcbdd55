/* SPDX-License-Identifier: MIT
 * Chains of products of packed weights on Hopper. */
#include "backends/cuda/device/matmul_chain_packed.cuh"

#define MATMUL_CHAIN(NAME)                                                                             \
    QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_chain_##NAME, qrn_chain_threads(), 1, qrn_matmul_chain_params) \
    {                                                                                                  \
        qrn_matmul_chain(qrn_chain_packed<QRN_##NAME>(p), p);                                          \
    }
MATMUL_CHAIN(Q4_0)
MATMUL_CHAIN(Q4_K)
MATMUL_CHAIN(Q5_K)
MATMUL_CHAIN(Q6_K)
MATMUL_CHAIN(Q8_0)
