/* SPDX-License-Identifier: MIT
 * How products of plain floats are cut: a block's rows of weights and of x, 8 x 8 of them a warp; long
 * blocks, and short ones where long ones would be few. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_FLOATS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_FLOATS_CUDA_H

enum {
    QRN_MATMUL_FLOATS_LONG = 64, /* rows of weights */
    QRN_MATMUL_FLOATS_SHORT = 16,
    QRN_MATMUL_FLOATS_ROWS = 16, /* of x */
    QRN_MATMUL_FLOATS_TILE = 8,
    QRN_MATMUL_FLOATS_STAGES = 3
};

#define QRN_MATMUL_FLOATS_WARPS(weights) \
    ((weights) / QRN_MATMUL_FLOATS_TILE * (QRN_MATMUL_FLOATS_ROWS / QRN_MATMUL_FLOATS_TILE))

#endif
