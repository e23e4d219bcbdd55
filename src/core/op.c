/* SPDX-License-Identifier: MIT
 * The table of ops, the checks that all ops share, and the typed public functions. */
#include "core/op.h"

#include <inttypes.h>
#include <string.h>
#include "core/device_impl.h"
#include "core/overlap.h"

#define QRN_OP(name) extern const struct qrn_op qrn_op_##name;
#include "ops/ops.inc"
#undef QRN_OP

static const struct qrn_op *const ops[] = {
#define QRN_OP(name) &qrn_op_##name,
#include "ops/ops.inc"
#undef QRN_OP
};

const struct qrn_op *qrn_op(enum qrn_op_id id)
{
    return ops[id];
}

const char *qrn_op_name(size_t i_op)
{
    return i_op < QRN_OP_COUNT ? ops[i_op]->name : NULL;
}

#define QRN_OP(name)                                                                         \
    enum qrn_status qrn_##name(struct qrn_device *dev, const struct qrn_##name##_args *args, \
                               struct qrn_error *err)                                        \
    {                                                                                        \
        return qrn_op_call(dev, QRN_OP_##name, args, err);                                   \
    }                                                                                        \
    void qrn_encode_##name(struct qrn_encoder *enc, const struct qrn_##name##_args *args)    \
    {                                                                                        \
        qrn_op_record(enc, QRN_OP_##name, args);                                             \
    }
#include "ops/ops.inc"
#undef QRN_OP

static enum qrn_status check_operand(const struct qrn_op *op, const struct qrn_operand *o,
                                     const struct qrn_tensor *t, struct qrn_error *err)
{
    if (t->n_dims == 0) {
        if (o->access & QRN_OPTIONAL) return QRN_OK;
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: %s is missing", op->name, o->name);
    }
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    if (!type)
        return qrn_fail(err, QRN_ERR_DTYPE, "%s: %s.dtype is %d, which is no type", op->name,
                        o->name, (int)t->dtype);
    if (t->n_dims < 0 || t->n_dims > QRN_MAX_DIMS)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s.n_dims is %d, wants 1 to %d", op->name, o->name,
                        t->n_dims, QRN_MAX_DIMS);
    const int last = t->n_dims - 1;
    for (int i = 0; i <= last; i++)
        if (t->shape[i] < 0)
            return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s.shape[%d] is %" PRId64 ", wants 0 or more",
                            op->name, o->name, i, t->shape[i]);
    if (t->shape[last] % type->block_elements)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: %s.shape[%d] is %" PRId64 ", wants whole blocks of %d (%s)", op->name,
                        o->name, last, t->shape[last], type->block_elements, type->name);
    if (o->access & QRN_OPAQUE) {
        if (!t->data)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: %s.data is NULL", op->name, o->name);
        return QRN_OK;
    }
    if (t->stride[last] != 1)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s.stride[%d] is %" PRId64 ", wants 1", op->name,
                        o->name, last, t->stride[last]);
    for (int i = 0; i < last; i++)
        if (t->stride[i] < 0 || t->stride[i] % type->block_elements)
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "%s: %s.stride[%d] is %" PRId64 ", wants a multiple of %d, 0 or more",
                            op->name, o->name, i, t->stride[i], type->block_elements);
    for (int i = 0; i < last; i++)
        if ((o->access & QRN_WRITES) && t->stride[i] == 0 && t->shape[i] > 1)
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "%s: %s is written but its stride[%d] is 0, wants 1 or more", op->name,
                            o->name, i);
    size_t extent;
    if (!qrn_tensor_extent(t, &extent))
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: the size of %s does not fit in memory", op->name,
                        o->name);
    if (extent > t->n_bytes)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s needs %zu bytes, has %zu", op->name, o->name,
                        extent, t->n_bytes);
    if (extent && !t->data)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: %s.data is NULL", op->name, o->name);
    return QRN_OK;
}

static bool listed(const char *names, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = names; p && *p;) {
        const size_t k = strcspn(p, " ");
        if (k == n && strncmp(p, name, n) == 0) return true;
        p += k + strspn(p + k, " ");
    }
    return false;
}

/* A written operand shares no byte with another, unless the op allows the very same view. */
static enum qrn_status check_overlaps(const struct qrn_op *op, const struct qrn_operand *o,
                                      const void *args, struct qrn_error *err)
{
    const struct qrn_tensor *t = qrn_operand_tensor(o, args);
    for (size_t i = 0; i < op->n_operands; i++) {
        const struct qrn_operand *other = &op->operands[i];
        const struct qrn_tensor *u = qrn_operand_tensor(other, args);
        if (other == o || qrn_are_apart(o, t, other, u)) continue;
        if ((listed(o->may_be, other->name) || listed(other->may_be, o->name)) &&
            qrn_same_view(t, u))
            continue;
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: %s overlaps %s", op->name, o->name,
                        other->name);
    }
    return QRN_OK;
}

enum qrn_status qrn_op_check(const struct qrn_op *op, const void *args, struct qrn_error *err)
{
    for (size_t i = 0; i < op->n_operands; i++)
        QRN_TRY(
            check_operand(op, &op->operands[i], qrn_operand_tensor(&op->operands[i], args), err));
    for (size_t i = 0; i < op->n_operands; i++)
        if (op->operands[i].access & QRN_WRITES)
            QRN_TRY(check_overlaps(op, &op->operands[i], args, err));
    return op->check(args, err);
}

enum qrn_status qrn_check_dtype(const char *op, const char *name, const struct qrn_tensor *t,
                                struct qrn_error *err, int n_types, ...)
{
    char wanted[128] = "";
    size_t used = 0;
    va_list ap;
    va_start(ap, n_types);
    for (int i = 0; i < n_types; i++) {
        const enum qrn_dtype type = (enum qrn_dtype)va_arg(ap, int);
        if (type == t->dtype) {
            va_end(ap);
            return QRN_OK;
        }
        const char *text = qrn_dtype_info(type)->name;
        const size_t n = strlen(text);
        if (used + n + 5 > sizeof wanted) continue;
        if (i) {
            memcpy(wanted + used, " or ", 4);
            used += 4;
        }
        memcpy(wanted + used, text, n + 1);
        used += n;
    }
    va_end(ap);
    return qrn_fail(err, QRN_ERR_DTYPE, "%s: %s is %s, wants %s", op, name,
                    qrn_dtype_info(t->dtype)->name, wanted);
}

enum qrn_status qrn_check_shape(const char *op, const char *name, const struct qrn_tensor *t,
                                struct qrn_error *err, int n_dims, ...)
{
    if (t->n_dims != n_dims)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s has %d dimensions, wants %d", op, name,
                        t->n_dims, n_dims);
    va_list ap;
    va_start(ap, n_dims);
    for (int i = 0; i < n_dims; i++) {
        const int64_t want = va_arg(ap, int64_t);
        if (want >= 0 && want != t->shape[i]) {
            va_end(ap);
            return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s.shape[%d] is %" PRId64 ", wants %" PRId64,
                            op, name, i, t->shape[i], want);
        }
    }
    va_end(ap);
    return QRN_OK;
}

enum qrn_status qrn_check_same_shape(const char *op, const char *name, const struct qrn_tensor *t,
                                     const char *other_name, const struct qrn_tensor *other,
                                     struct qrn_error *err)
{
    if (t->n_dims != other->n_dims)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s has %d dimensions, %s has %d", op, name,
                        t->n_dims, other_name, other->n_dims);
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] != other->shape[i])
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "%s: %s.shape[%d] is %" PRId64 ", wants %" PRId64 " (that of %s)", op,
                            name, i, t->shape[i], other->shape[i], other_name);
    return QRN_OK;
}
