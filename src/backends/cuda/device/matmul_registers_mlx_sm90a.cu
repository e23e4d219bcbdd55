/* SPDX-License-Identifier: MIT
 * Up to 128 rows of bf16 x on Hopper, packed: MLX codes. */
#include "backends/cuda/device/matmul_registers.cuh"

QRN_MATMUL_REGISTERS(MLX_Q2)
QRN_MATMUL_REGISTERS(MLX_Q3)
QRN_MATMUL_REGISTERS(MLX_Q4)
QRN_MATMUL_REGISTERS(MLX_Q5)
QRN_MATMUL_REGISTERS(MLX_Q6)
QRN_MATMUL_REGISTERS(MLX_Q8)
