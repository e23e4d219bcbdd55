/* SPDX-License-Identifier: MIT
 * Up to 128 rows of bf16 x on Hopper, packed: types with scales for each 256 weights. */
#include "backends/cuda/device/matmul_registers.cuh"

QRN_MATMUL_REGISTERS(Q2_K)
QRN_MATMUL_REGISTERS(Q3_K)
QRN_MATMUL_REGISTERS(Q4_K)
QRN_MATMUL_REGISTERS(Q5_K)
QRN_MATMUL_REGISTERS(Q6_K)
QRN_MATMUL_REGISTERS(IQ4_XS)
QRN_MATMUL_REGISTERS(TQ1_0)
QRN_MATMUL_REGISTERS(TQ2_0)
