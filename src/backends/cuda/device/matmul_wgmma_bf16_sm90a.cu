/* SPDX-License-Identifier: MIT
 * Products of many rows with bf16 weights in rows: see matmul_wgmma.cuh. */
#include "backends/cuda/device/matmul_wgmma.cuh"

QRN_DEVICE_FUNCTION(qrn_matmul_wgmma256_BF16, 384, 1, qrn_matmul_wgmma_params)
{
    qrn_matmul_wgmma<QRN_BF16, 256>(p);
}

QRN_DEVICE_FUNCTION(qrn_matmul_wgmma128_BF16, 384, 1, qrn_matmul_wgmma_params)
{
    qrn_matmul_wgmma<QRN_BF16, 128>(p);
}
