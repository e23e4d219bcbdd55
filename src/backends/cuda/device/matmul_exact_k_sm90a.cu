/* SPDX-License-Identifier: MIT
 * Products of many rows, each with the bits of one, with packed weights whose scales are of 256: see
 * matmul_exact_packed.cuh. */
#include "backends/cuda/device/matmul_exact_packed.cuh"

QRN_MATMUL_EXACT(Q2_K)
QRN_MATMUL_EXACT(Q3_K)
QRN_MATMUL_EXACT(Q4_K)
QRN_MATMUL_EXACT(Q5_K)
QRN_MATMUL_EXACT(Q6_K)
QRN_MATMUL_EXACT(IQ4_XS)
QRN_MATMUL_EXACT(TQ1_0)
QRN_MATMUL_EXACT(TQ2_0)
