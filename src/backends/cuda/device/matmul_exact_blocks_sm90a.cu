/* SPDX-License-Identifier: MIT
 * Products of many rows, each with the bits of one, with packed weights whose scales are of 32: see
 * matmul_exact_packed.cuh. */
#include "backends/cuda/device/matmul_exact_packed.cuh"

QRN_MATMUL_EXACT(Q4_0)
QRN_MATMUL_EXACT(Q4_1)
QRN_MATMUL_EXACT(Q5_0)
QRN_MATMUL_EXACT(Q5_1)
QRN_MATMUL_EXACT(Q8_0)
QRN_MATMUL_EXACT(IQ4_NL)
QRN_MATMUL_EXACT(MXFP4)
