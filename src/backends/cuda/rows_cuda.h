/* SPDX-License-Identifier: MIT
 * Tensors as device code sees them: rows (the last dimension) at strides.  Shared by host and
 * device. */
#ifndef QUERN_BACKENDS_CUDA_ROWS_CUDA_H
#define QUERN_BACKENDS_CUDA_ROWS_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* How many rows there are, as three dimensions, outermost first, and their length. */
struct qrn_rows_shape {
    int64_t n[3];
    int64_t d; /* elements */
};

/* Where the rows of one tensor are. */
struct qrn_rows {
    uint64_t data;     /* 0: the tensor is absent */
    int64_t stride[3]; /* bytes */
};

/* The type of a row, which may consist of blocks. */
struct qrn_row_type {
    int32_t dtype, block_shift, block_bytes; /* a block has 1 << block_shift elements */
};

QRN_PARAMS_END

#endif
