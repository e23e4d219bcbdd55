/* SPDX-License-Identifier: MIT
 * Few rows of x on Hopper, packed: types with a scale for each 32 weights. */
#include "backends/cuda/device/matmul_stream.cuh"

QRN_MATMUL_STREAM(Q4_0)
QRN_MATMUL_STREAM(Q4_1)
QRN_MATMUL_STREAM(Q5_0)
QRN_MATMUL_STREAM(Q5_1)
QRN_MATMUL_STREAM(Q8_0)
QRN_MATMUL_STREAM(IQ4_NL)
QRN_MATMUL_STREAM(MXFP4)
