/* SPDX-License-Identifier: MIT
 * Products of many rows with packed weights whose scales are of 256: see matmul_prompts.cuh. */
#include "backends/cuda/device/matmul_prompts.cuh"

QRN_MATMUL_PROMPTS(Q2_K)
QRN_MATMUL_PROMPTS(Q3_K)
QRN_MATMUL_PROMPTS(Q4_K)
QRN_MATMUL_PROMPTS(Q5_K)
QRN_MATMUL_PROMPTS(Q6_K)
QRN_MATMUL_PROMPTS(IQ4_XS)
QRN_MATMUL_PROMPTS(TQ1_0)
QRN_MATMUL_PROMPTS(TQ2_0)
