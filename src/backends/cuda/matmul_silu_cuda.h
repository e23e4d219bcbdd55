/* SPDX-License-Identifier: MIT
 * What a product of gates and ups is given whose launch makes silu_mul of them. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_SILU_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_SILU_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* silu(gate) up as bf16, a row for each row of x, in the place of out.  Of sixteen rows of weights of a tile eight are gates and
 * the others their ups, so that a thread that multiplies has both. */
struct qrn_silu_params {
    uint64_t data;           /* 0: gates and ups are what is made; aligned to 4, as stride is */
    int64_t stride, n_gates; /* bytes; the first half of the matrix's rows, a multiple of 8 */
};

QRN_PARAMS_END

#endif
