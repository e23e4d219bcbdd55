/* SPDX-License-Identifier: MIT
 * Few rows of x, packed: types with a scale for each 32 weights. */
#include "backends/cuda/device/matmul_vec.cuh"

QRN_MATMUL_VEC(Q4_0)
QRN_MATMUL_VEC(Q4_1)
QRN_MATMUL_VEC(Q5_0)
QRN_MATMUL_VEC(Q5_1)
QRN_MATMUL_VEC(Q8_0)
QRN_MATMUL_VEC(IQ4_NL)
QRN_MATMUL_VEC(MXFP4)
