/* SPDX-License-Identifier: MIT
 * Joints of experts on Hopper: MLX codes. */
#include "backends/cuda/device/moe_down.cuh"
#include "backends/cuda/device/moe_gates.cuh"

QRN_MOE_GATES(MLX_Q2, 2)
QRN_MOE_DOWN(MLX_Q2)
QRN_MOE_GATES(MLX_Q3, 2)
QRN_MOE_DOWN(MLX_Q3)
QRN_MOE_GATES(MLX_Q4, 2)
QRN_MOE_DOWN(MLX_Q4)
QRN_MOE_GATES(MLX_Q5, 2)
QRN_MOE_DOWN(MLX_Q5)
QRN_MOE_GATES(MLX_Q6, 2)
QRN_MOE_DOWN(MLX_Q6)
QRN_MOE_GATES(MLX_Q8, 2)
QRN_MOE_DOWN(MLX_Q8)
