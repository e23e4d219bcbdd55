/* SPDX-License-Identifier: MIT
 * Products whose tiles have rows of both halves of the weights, for gates and ups of silu_mul. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_HALVES_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_HALVES_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Of sixteen rows of weights of a tile eight are of the first half and the others as many further, so that a thread that
 * multiplied has outputs of both.  It is so whether silu_mul is made or not, for which rows a tile has says how their sums are
 * cut. */
struct qrn_halves_params {
    int64_t n;           /* rows of a half, a multiple of 8; 0: a tile's rows are side by side */
    uint64_t silu;       /* silu(first) second as bf16, a row for each of x, is made in out's place, aligned to 4; 0: it is not */
    int64_t silu_stride; /* bytes, a multiple of 4 */
};

QRN_PARAMS_END

#endif
