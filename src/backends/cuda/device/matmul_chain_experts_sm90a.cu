/* SPDX-License-Identifier: MIT
 * Chains with experts on Hopper. */
#include "backends/cuda/device/matmul_chain_experts.cuh"

QRN_CHAIN_EXPERTS(Q4_0)
QRN_CHAIN_EXPERTS(Q4_K)
QRN_CHAIN_EXPERTS(Q5_K)
QRN_CHAIN_EXPERTS(Q6_K)
QRN_CHAIN_EXPERTS(Q8_0)
