/* SPDX-License-Identifier: MIT
 * Rows of x that a product's blocks make themselves, each all of them, and the first one stores.  Rows
 * are whole pieces of 128 elements, aligned; made as the op before the product would make them. */
#ifndef QUERN_BACKENDS_CUDA_X_MAKER_CUDA_H
#define QUERN_BACKENDS_CUDA_X_MAKER_CUDA_H

#include <stdint.h>

enum qrn_x_made {
    QRN_X_STORED,      /* they are in memory */
    QRN_X_SILU_MUL,    /* silu(a) b */
    QRN_X_SIGMOID_MUL, /* a sigmoid(b) */
    QRN_X_HEAD_NORM,   /* rms_norm of a, whose heads are pieces, with b as gate if there is b */
    QRN_X_NORM         /* rms_norm of a, or of a + b if there is b */
};

/* Strides in bytes; data 0: absent. */
struct qrn_x_side {
    uint64_t data;
    int64_t row, head;
};

struct qrn_x_maker {
    struct qrn_x_side a, b;
    struct qrn_x_side sum, out,
        rounded;               /* what is stored: a + b, the rows in f32, and as x of the product */
    uint64_t weight;           /* of norms; 0: none */
    int32_t made, head_pieces; /* enum qrn_x_made; pieces of a head of a and b */
    float eps;
};

#endif
