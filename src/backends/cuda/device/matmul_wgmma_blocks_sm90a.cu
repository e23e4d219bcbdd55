/* SPDX-License-Identifier: MIT
 * Products of many rows with packed weights whose scales are of 32: see matmul_wgmma.cuh. */
#include "backends/cuda/device/matmul_wgmma.cuh"

QRN_MATMUL_WGMMA(Q4_0)
QRN_MATMUL_WGMMA(Q4_1)
QRN_MATMUL_WGMMA(Q5_0)
QRN_MATMUL_WGMMA(Q5_1)
QRN_MATMUL_WGMMA(Q8_0)
QRN_MATMUL_WGMMA(IQ4_NL)
QRN_MATMUL_WGMMA(MXFP4)
