/* SPDX-License-Identifier: MIT
 * Few rows of x on Hopper, packed: types with scales for each 256 weights. */
#include "backends/cuda/device/matmul_stream.cuh"

QRN_MATMUL_STREAM(Q2_K)
QRN_MATMUL_STREAM(Q3_K)
QRN_MATMUL_STREAM(Q4_K)
QRN_MATMUL_STREAM(Q5_K)
QRN_MATMUL_STREAM(Q6_K)
QRN_MATMUL_STREAM(IQ4_XS)
QRN_MATMUL_STREAM(TQ1_0)
QRN_MATMUL_STREAM(TQ2_0)
