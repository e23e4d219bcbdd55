/* SPDX-License-Identifier: MIT
 * What softmax is given. */
#ifndef QUERN_BACKENDS_CUDA_SOFTMAX_CUDA_H
#define QUERN_BACKENDS_CUDA_SOFTMAX_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

struct qrn_softmax_params {
    struct qrn_rows_shape shape;
    struct qrn_rows x, mask, out; /* the mask has stride 0 where it lacks a dimension */
    int64_t n_rows;
    float scale;
    int32_t mask_dtype;
};

QRN_PARAMS_END

#endif
