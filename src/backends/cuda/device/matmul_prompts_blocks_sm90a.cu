/* SPDX-License-Identifier: MIT
 * Products of many rows with packed weights whose scales are of 32: see matmul_prompts.cuh. */
#include "backends/cuda/device/matmul_prompts.cuh"

QRN_MATMUL_PROMPTS(Q4_0)
QRN_MATMUL_PROMPTS(Q4_1)
QRN_MATMUL_PROMPTS(Q5_0)
QRN_MATMUL_PROMPTS(Q5_1)
QRN_MATMUL_PROMPTS(Q8_0)
QRN_MATMUL_PROMPTS(IQ4_NL)
QRN_MATMUL_PROMPTS(MXFP4)
