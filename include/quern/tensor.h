/* SPDX-License-Identifier: MIT
 * A tensor is a view: type, shape, strides, and where its memory begins and how far it may go. */
#ifndef QUERN_TENSOR_H
#define QUERN_TENSOR_H

#include <stdbool.h>
#include <quern/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QRN_MAX_DIMS 4

/**
 * A view of memory that somebody else owns.  The last dimension is contiguous.  An argument that an
 * op calls optional is absent when the struct is zero.
 */
struct qrn_tensor {
    enum qrn_dtype dtype;
    int32_t n_dims;               /* 1 .. QRN_MAX_DIMS; 0: absent */
    int64_t shape[QRN_MAX_DIMS];  /* outermost first; 0 is allowed: an empty tensor */
    int64_t stride[QRN_MAX_DIMS]; /* elements; stride[n_dims - 1] == 1; of blocks: whole blocks */
    void *data;                   /* on the device that the op runs on */
    size_t n_bytes;               /* of memory, from data on, that belongs to this view */
};

/** A contiguous view of memory that is known to hold it: n_bytes is what the shape needs. */
QRN_API struct qrn_tensor qrn_tensor_1d(enum qrn_dtype dtype, const void *data, int64_t n0);
QRN_API struct qrn_tensor qrn_tensor_2d(enum qrn_dtype dtype, const void *data, int64_t n0,
                                        int64_t n1);
QRN_API struct qrn_tensor qrn_tensor_3d(enum qrn_dtype dtype, const void *data, int64_t n0,
                                        int64_t n1, int64_t n2);
QRN_API struct qrn_tensor qrn_tensor_4d(enum qrn_dtype dtype, const void *data, int64_t n0,
                                        int64_t n1, int64_t n2, int64_t n3);

/** Indices begin .. begin + n - 1 of one dimension; of the last one: whole blocks.  Not checked
 * here: an op that is given the result checks it against its own n_bytes. */
QRN_API struct qrn_tensor qrn_tensor_slice(struct qrn_tensor t, int dim, int64_t begin, int64_t n);

/** The last dimension n = n0 * n1 as two dimensions [n0, n1].  n_dims must be below the maximum. */
QRN_API struct qrn_tensor qrn_tensor_split_last(struct qrn_tensor t, int64_t n0, int64_t n1);

/** Number of elements; 0 when absent. */
QRN_API int64_t qrn_tensor_n_elements(const struct qrn_tensor *t);

/** Bytes from data to the end of the last element; false when that does not fit in size_t. */
QRN_API bool qrn_tensor_extent(const struct qrn_tensor *t, size_t *n_bytes);

static inline bool qrn_tensor_present(const struct qrn_tensor *t)
{
    return t->n_dims != 0;
}

#ifdef __cplusplus
}
#endif
#endif
