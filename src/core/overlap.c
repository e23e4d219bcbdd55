/* SPDX-License-Identifier: MIT
 * Whether operands share memory. */
#include "core/overlap.h"

bool qrn_same_view(const struct qrn_tensor *a, const struct qrn_tensor *b)
{
    if (a->data != b->data || a->dtype != b->dtype || a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

static size_t touched_bytes(const struct qrn_operand *o, const struct qrn_tensor *t)
{
    size_t n = 0;
    if (o->access & QRN_OPAQUE) return t->n_bytes;
    return qrn_tensor_extent(t, &n) ? n : 0;
}

/* Where a view's bytes are within each pitch: *begin .. *end, if they are at the same place in every
 * one that it comes to. */
static bool within_pitch(const struct qrn_tensor *t, size_t pitch, size_t *begin, size_t *end)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    size_t span = (size_t)type->block_bytes;
    if (type->block_elements != 1) return false;
    for (int i = 0; i < t->n_dims; i++) {
        const size_t stride = (size_t)t->stride[i] * (size_t)type->block_bytes;
        if (t->shape[i] > 1 && stride % pitch) span += (size_t)(t->shape[i] - 1) * stride;
    }
    *begin = (uintptr_t)t->data % pitch;
    *end = *begin + span;
    return *end <= pitch;
}

/* Whether columns of one matrix are meant: rows at the same distance, other places in them. */
static bool are_interleaved(const struct qrn_tensor *t, const struct qrn_tensor *u)
{
    int i = 0;
    while (i < t->n_dims && t->shape[i] <= 1) i++;
    if (i >= t->n_dims - 1 || t->stride[i] < 1) return false;
    const size_t pitch = (size_t)t->stride[i] * (size_t)qrn_dtype_info(t->dtype)->block_bytes;
    const size_t shift = (uintptr_t)(t->data < u->data ? t->data : u->data) % pitch;
    const struct qrn_tensor *both[] = {t, u};
    size_t begin[2], end[2];
    for (int k = 0; k < 2; k++) {
        struct qrn_tensor moved = *both[k];
        moved.data = (char *)moved.data - shift;
        if (!within_pitch(&moved, pitch, &begin[k], &end[k])) return false;
    }
    return end[0] <= begin[1] || end[1] <= begin[0];
}

bool qrn_are_apart(const struct qrn_operand *o, const struct qrn_tensor *t,
                   const struct qrn_operand *p, const struct qrn_tensor *u)
{
    const size_t n = t->n_dims ? touched_bytes(o, t) : 0, m = u->n_dims ? touched_bytes(p, u) : 0;
    const uintptr_t begin = (uintptr_t)t->data, at = (uintptr_t)u->data;
    if (n == 0 || m == 0 || at >= begin + n || begin >= at + m) return true;
    return !((o->access | p->access) & QRN_OPAQUE) && are_interleaved(t, u);
}
