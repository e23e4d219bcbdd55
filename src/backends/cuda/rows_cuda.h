/* SPDX-License-Identifier: MIT
 * Tensors as device code sees them: rows (the last dimension) at strides.  Shared by host and
 * device. */
#ifndef QUERN_BACKENDS_CUDA_ROWS_CUDA_H
#define QUERN_BACKENDS_CUDA_ROWS_CUDA_H

#include <stdint.h>

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

#endif
