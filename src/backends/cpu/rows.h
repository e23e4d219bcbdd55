/* SPDX-License-Identifier: MIT
 * Rows of strided tensors: where row r of the flattened leading dimensions begins. */
#ifndef QUERN_BACKENDS_CPU_ROWS_H
#define QUERN_BACKENDS_CPU_ROWS_H

#include <quern/tensor.h>

static inline int64_t qrn_n_rows(const struct qrn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims - 1; i++) n *= t->shape[i];
    return n;
}

/* Element offset of row r, one that there is; for types of one element per block. */
static inline int64_t qrn_row_at(const struct qrn_tensor *t, int64_t r)
{
    int64_t at = 0;
    for (int i = t->n_dims - 2; i > 0; i--) {
        at += r % t->shape[i] * t->stride[i];
        r /= t->shape[i];
    }
    return t->n_dims > 1 ? at + r * t->stride[0] : 0;
}

/* Row r of a float32 tensor; NULL when the tensor is absent. */
static inline float *qrn_row_f32(const struct qrn_tensor *t, int64_t r)
{
    return t->n_dims ? (float *)t->data + qrn_row_at(t, r) : NULL;
}

#endif
