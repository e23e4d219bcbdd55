/* SPDX-License-Identifier: MIT
 * Products by expert of packed weights whose scales are of 32: see matmul_experts.cuh. */
#include "backends/cuda/device/matmul_experts.cuh"

QRN_MATMUL_EXPERTS(Q4_0)
QRN_MATMUL_EXPERTS(Q4_1)
QRN_MATMUL_EXPERTS(Q5_0)
QRN_MATMUL_EXPERTS(Q5_1)
QRN_MATMUL_EXPERTS(Q8_0)
QRN_MATMUL_EXPERTS(IQ4_NL)
QRN_MATMUL_EXPERTS(MXFP4)
