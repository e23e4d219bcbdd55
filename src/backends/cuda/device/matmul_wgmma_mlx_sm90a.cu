/* SPDX-License-Identifier: MIT
 * Products of many rows with packed MLX codes: see matmul_wgmma.cuh. */
#include "backends/cuda/device/matmul_wgmma.cuh"

QRN_MATMUL_WGMMA(MLX_Q2)
QRN_MATMUL_WGMMA(MLX_Q3)
QRN_MATMUL_WGMMA(MLX_Q4)
QRN_MATMUL_WGMMA(MLX_Q5)
QRN_MATMUL_WGMMA(MLX_Q6)
QRN_MATMUL_WGMMA(MLX_Q8)
