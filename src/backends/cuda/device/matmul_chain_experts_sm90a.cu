/* SPDX-License-Identifier: MIT
 * Chains with experts on Hopper. */
#include "backends/cuda/device/matmul_chain_experts.cuh"

#define OF_TYPE(NAME)            \
    QRN_CHAIN_EXPERTS(NAME, 256) \
    QRN_CHAIN_EXPERTS(NAME, 512)
OF_TYPE(Q4_0)
OF_TYPE(Q4_K)
OF_TYPE(Q5_K)
OF_TYPE(Q6_K)
OF_TYPE(Q8_0)
