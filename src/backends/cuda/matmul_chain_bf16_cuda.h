/* SPDX-License-Identifier: MIT
 * What one launch for a chain of products of bf16 weights is given. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_CHAIN_BF16_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_CHAIN_BF16_CUDA_H

#include "backends/cuda/matmul_chain_cuda.h"
#include "backends/cuda/matmul_few_cuda.h"

QRN_PARAMS_BEGIN

/* A stage of the ring: a panel of 32 rows, or two of 16 rows, k ascending.  A sum for each row. */
enum {
    QRN_CHAIN_BF16_STAGE = QRN_PANEL_ROWS * QRN_PANEL_K * 2,
    QRN_CHAIN_BF16_SUMS = QRN_PANEL_ROWS * 4,
    QRN_CHAIN_BF16_WORDS = QRN_PANEL_K / 2 /* of 128 elements that are exchanged */
};

struct qrn_matmul_chain_bf16_params {
    struct qrn_tensor_map w[QRN_CHAIN_LINKS]; /* a box is a stage */
    struct qrn_matmul_chain_params chain;
    uint8_t rest[88];
};

QRN_PARAMS_END

#endif
