/* SPDX-License-Identifier: MIT
 * Products by expert of packed weights whose scales are of 256: see matmul_experts.cuh. */
#include "backends/cuda/device/matmul_experts.cuh"

QRN_MATMUL_EXPERTS(Q2_K)
QRN_MATMUL_EXPERTS(Q3_K)
QRN_MATMUL_EXPERTS(Q4_K)
QRN_MATMUL_EXPERTS(Q5_K)
QRN_MATMUL_EXPERTS(Q6_K)
QRN_MATMUL_EXPERTS(IQ4_XS)
QRN_MATMUL_EXPERTS(TQ1_0)
QRN_MATMUL_EXPERTS(TQ2_0)
