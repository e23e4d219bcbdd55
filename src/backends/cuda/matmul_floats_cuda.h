/* SPDX-License-Identifier: MIT
 * How products of plain floats are cut: a block's rows of weights and of x, of which a warp has a square
 * tile; long blocks, and short ones, whose warps have less to do each, where long ones would be few. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_FLOATS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_FLOATS_CUDA_H

/* X(WEIGHTS, ROWS, TILE, STAGES): rows of weights and of x, those of a warp's tile on each side, and how
 * many pieces of 128 k are multiplied or on their way. */
#define QRN_MATMUL_FLOATS_LONG(X) X(64, 16, 8, 3)
#define QRN_MATMUL_FLOATS_SHORT(X) X(8, 8, 4, 8)

#endif
