/* SPDX-License-Identifier: MIT
 * What the element by element functions are given. */
#ifndef QUERN_BACKENDS_CUDA_ELEMENTWISE_CUDA_H
#define QUERN_BACKENDS_CUDA_ELEMENTWISE_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

struct qrn_elementwise_params {
    struct qrn_rows_shape shape;
    struct qrn_rows x, y, out; /* x and y are f32 */
    int64_t pieces_per_row;    /* of 128 elements */
    int64_t n_pieces;
    int32_t out_dtype, rest;   /* f32, bf16 or Q8_ACT */
};

QRN_PARAMS_END

#endif
