/* SPDX-License-Identifier: MIT
 * How products of plain floats are cut: a block's rows of weights and of x, 16 warps of 8 x 8. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_FLOATS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_FLOATS_CUDA_H

enum {
    QRN_MATMUL_FLOATS_WEIGHTS = 64,
    QRN_MATMUL_FLOATS_ROWS = 16,
    QRN_MATMUL_FLOATS_WARPS = 16,
    QRN_MATMUL_FLOATS_STAGES = 3
};

#endif
