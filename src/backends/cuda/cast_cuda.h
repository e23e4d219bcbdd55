/* SPDX-License-Identifier: MIT
 * What cast and copy are given. */
#ifndef QUERN_BACKENDS_CUDA_CAST_CUDA_H
#define QUERN_BACKENDS_CUDA_CAST_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

struct qrn_cast_params {
    struct qrn_rows_shape shape;
    struct qrn_rows x, out;
    int64_t pieces_per_row; /* of 128 elements */
    int64_t n_pieces;
    struct qrn_row_type x_type;
    int32_t out_dtype; /* f32, f16, bf16 or Q8_ACT */
};

/* d is bytes, and so are the elements of pieces. */
struct qrn_copy_params {
    struct qrn_rows_shape shape;
    struct qrn_rows x, out;
    int64_t pieces_per_row; /* of 16 bytes a thread */
    int64_t n_pieces;
};

QRN_PARAMS_END

#endif
