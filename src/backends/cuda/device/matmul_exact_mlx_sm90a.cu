/* SPDX-License-Identifier: MIT
 * Products of many rows, each with the bits of one, with packed weights with MLX codes: see
 * matmul_exact_packed.cuh. */
#include "backends/cuda/device/matmul_exact_packed.cuh"

QRN_MATMUL_EXACT(MLX_Q2)
QRN_MATMUL_EXACT(MLX_Q3)
QRN_MATMUL_EXACT(MLX_Q4)
QRN_MATMUL_EXACT(MLX_Q5)
QRN_MATMUL_EXACT(MLX_Q6)
QRN_MATMUL_EXACT(MLX_Q8)
