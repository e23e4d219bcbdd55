/* SPDX-License-Identifier: MIT
 * Up to 128 rows of bf16 x on Hopper, packed: types with scales for each 32 weights. */
#include "backends/cuda/device/matmul_registers.cuh"

QRN_MATMUL_REGISTERS(Q4_0)
QRN_MATMUL_REGISTERS(Q4_1)
QRN_MATMUL_REGISTERS(Q5_0)
QRN_MATMUL_REGISTERS(Q5_1)
QRN_MATMUL_REGISTERS(Q8_0)
QRN_MATMUL_REGISTERS(IQ4_NL)
QRN_MATMUL_REGISTERS(MXFP4)
