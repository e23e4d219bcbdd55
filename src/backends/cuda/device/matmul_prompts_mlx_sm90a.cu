/* SPDX-License-Identifier: MIT
 * Products of many rows with packed MLX codes: see matmul_prompts.cuh. */
#include "backends/cuda/device/matmul_prompts.cuh"

QRN_MATMUL_PROMPTS(MLX_Q2)
QRN_MATMUL_PROMPTS(MLX_Q3)
QRN_MATMUL_PROMPTS(MLX_Q4)
QRN_MATMUL_PROMPTS(MLX_Q5)
QRN_MATMUL_PROMPTS(MLX_Q6)
QRN_MATMUL_PROMPTS(MLX_Q8)
