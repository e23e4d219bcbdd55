/* SPDX-License-Identifier: MIT
 * Chains of products of packed weights on Hopper. */
#include "backends/cuda/device/matmul_chain.cuh"

QRN_MATMUL_CHAIN(Q4_0)
QRN_MATMUL_CHAIN(Q4_K)
QRN_MATMUL_CHAIN(Q5_K)
QRN_MATMUL_CHAIN(Q6_K)
QRN_MATMUL_CHAIN(Q8_0)
