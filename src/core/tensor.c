/* SPDX-License-Identifier: MIT
 * Views: making them, cutting them, how far they reach. */
#include <quern/tensor.h>

#include "base/memory.h"

/* Views do not own what they show, and ops say what they only read. */
static void *unconst(const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {.in = p};
    return u.out;
}

static struct qrn_tensor contiguous(enum qrn_dtype dtype, const void *data, int n_dims,
                                    const int64_t *shape)
{
    struct qrn_tensor t = {.dtype = dtype, .n_dims = n_dims, .data = unconst(data)};
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        if (__builtin_mul_overflow(stride, shape[i] > 0 ? shape[i] : 1, &stride))
            stride = INT64_MAX;
    }
    t.stride[n_dims - 1] = 1;
    size_t n_bytes;
    t.n_bytes = qrn_tensor_extent(&t, &n_bytes) ? n_bytes : 0;
    return t;
}

struct qrn_tensor qrn_tensor_1d(enum qrn_dtype dtype, const void *data, int64_t n0)
{
    return contiguous(dtype, data, 1, (const int64_t[]){n0});
}

struct qrn_tensor qrn_tensor_2d(enum qrn_dtype dtype, const void *data, int64_t n0, int64_t n1)
{
    return contiguous(dtype, data, 2, (const int64_t[]){n0, n1});
}

struct qrn_tensor qrn_tensor_3d(enum qrn_dtype dtype, const void *data, int64_t n0, int64_t n1,
                                int64_t n2)
{
    return contiguous(dtype, data, 3, (const int64_t[]){n0, n1, n2});
}

struct qrn_tensor qrn_tensor_4d(enum qrn_dtype dtype, const void *data, int64_t n0, int64_t n1,
                                int64_t n2, int64_t n3)
{
    return contiguous(dtype, data, 4, (const int64_t[]){n0, n1, n2, n3});
}

struct qrn_tensor qrn_tensor_slice(struct qrn_tensor t, int dim, int64_t begin, int64_t n)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(t.dtype);
    const size_t skip =
        (size_t)(begin * t.stride[dim] / type->block_elements) * (size_t)type->block_bytes;
    t.shape[dim] = n;
    t.data = (char *)t.data + skip;
    t.n_bytes = skip <= t.n_bytes ? t.n_bytes - skip : 0;
    return t;
}

struct qrn_tensor qrn_tensor_split_last(struct qrn_tensor t, int64_t n0, int64_t n1)
{
    const int d = t.n_dims++;
    t.shape[d - 1] = n0;
    t.stride[d - 1] = n1;
    t.shape[d] = n1;
    t.stride[d] = 1;
    return t;
}

int64_t qrn_tensor_n_elements(const struct qrn_tensor *t)
{
    if (t->n_dims == 0) return 0;
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, t->shape[i], &n)) return INT64_MAX;
    return n;
}

bool qrn_tensor_extent(const struct qrn_tensor *t, size_t *n_bytes)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    int64_t last = 0; /* element index of the first element of the last row */
    for (int i = 0; i < t->n_dims; i++) {
        if (t->shape[i] == 0) {
            *n_bytes = 0;
            return true;
        }
        int64_t step;
        if (i == t->n_dims - 1) break;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    }
    int64_t end;
    if (t->n_dims == 0 || __builtin_add_overflow(last, t->shape[t->n_dims - 1], &end)) return false;
    const int64_t blocks = end / type->block_elements + (end % type->block_elements != 0);
    return qrn_mul_size((size_t)blocks, (size_t)type->block_bytes, n_bytes);
}
