/* SPDX-License-Identifier: MIT
 * Products of many rows with bf16 weights in rows: see matmul_wgmma.cuh. */
#include "backends/cuda/device/matmul_wgmma.cuh"

QRN_MATMUL_WGMMA(BF16)
QRN_MATMUL_WGMMA_OF(qrn_matmul_wgmma_silu128_BF16, BF16, 128, true)
QRN_MATMUL_WGMMA_OF(qrn_matmul_wgmma_silu256_BF16, BF16, 256, true)
