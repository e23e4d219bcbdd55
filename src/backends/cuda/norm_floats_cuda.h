/* SPDX-License-Identifier: MIT
 * What the joint of a norm and products of floats is given. */
#ifndef QUERN_BACKENDS_CUDA_NORM_FLOATS_CUDA_H
#define QUERN_BACKENDS_CUDA_NORM_FLOATS_CUDA_H

#include "backends/cuda/x_maker_cuda.h"

enum { QRN_NORM_FLOATS_WARPS = 4, QRN_NORM_FLOATS_ROWS = 4 /* of x, at most */ };

/* Rows of weights of one product, which a warp has one of; strides in bytes. */
struct qrn_norm_floats_side {
    uint64_t w, out;
    int64_t w_row, out_row;
    int32_t n, dtype;
};

struct qrn_norm_floats_params {
    struct qrn_x_maker maker;
    struct qrn_norm_floats_side side[2]; /* the second may have no rows */
    int32_t n_rows, n_pieces;            /* of x */
    int32_t rounded_dtype;
};

#endif
