/* SPDX-License-Identifier: MIT
 * Few rows of x on Hopper, packed: MLX codes. */
#include "backends/cuda/device/matmul_stream.cuh"

QRN_MATMUL_STREAM(MLX_Q2)
QRN_MATMUL_STREAM(MLX_Q3)
QRN_MATMUL_STREAM(MLX_Q4)
QRN_MATMUL_STREAM(MLX_Q5)
QRN_MATMUL_STREAM(MLX_Q6)
QRN_MATMUL_STREAM(MLX_Q8)
