/* SPDX-License-Identifier: MIT
 * Products by expert of packed MLX codes: see matmul_experts.cuh. */
#include "backends/cuda/device/matmul_experts.cuh"

QRN_MATMUL_EXPERTS(MLX_Q2)
QRN_MATMUL_EXPERTS(MLX_Q3)
QRN_MATMUL_EXPERTS(MLX_Q4)
QRN_MATMUL_EXPERTS(MLX_Q5)
QRN_MATMUL_EXPERTS(MLX_Q6)
QRN_MATMUL_EXPERTS(MLX_Q8)
