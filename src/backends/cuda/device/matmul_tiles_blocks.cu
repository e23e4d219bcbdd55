/* SPDX-License-Identifier: MIT
 * More rows of x, packed: types with a scale for each 32 weights. */
#include "backends/cuda/device/matmul_tiles.cuh"

QRN_MATMUL_TILES(Q4_0)
QRN_MATMUL_TILES(Q4_1)
QRN_MATMUL_TILES(Q5_0)
QRN_MATMUL_TILES(Q5_1)
QRN_MATMUL_TILES(Q8_0)
QRN_MATMUL_TILES(IQ4_NL)
QRN_MATMUL_TILES(MXFP4)
