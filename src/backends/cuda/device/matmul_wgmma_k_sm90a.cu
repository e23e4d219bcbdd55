/* SPDX-License-Identifier: MIT
 * Products of many rows with packed weights whose scales are of 256: see matmul_wgmma.cuh. */
#include "backends/cuda/device/matmul_wgmma.cuh"

QRN_MATMUL_WGMMA(Q2_K)
QRN_MATMUL_WGMMA(Q3_K)
QRN_MATMUL_WGMMA(Q4_K)
QRN_MATMUL_WGMMA(Q5_K)
QRN_MATMUL_WGMMA(Q6_K)
QRN_MATMUL_WGMMA(IQ4_XS)
QRN_MATMUL_WGMMA(TQ1_0)
QRN_MATMUL_WGMMA(TQ2_0)
