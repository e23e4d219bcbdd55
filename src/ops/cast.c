/* SPDX-License-Identifier: MIT
 * cast and copy: the same values, or the same bytes, elsewhere. */
#include "core/op.h"

#include <string.h>
#include "formats/blocks.h"

static enum qrn_status cast_check(const void *args, struct qrn_error *err)
{
    const struct qrn_cast_args *a = args;
    if (!qrn_decoder(a->x.dtype))
        return qrn_fail(err, QRN_ERR_DTYPE,
                        "cast: x is %s, wants a type that has values of its own",
                        qrn_dtype_info(a->x.dtype)->name);
    QRN_TRY(qrn_check_dtype("cast", "out", &a->out, err, 3, QRN_F32, QRN_F16, QRN_BF16));
    return qrn_check_same_shape("cast", "out", &a->out, "x", &a->x, err);
}

static void cast_reference(const void *args)
{
    const struct qrn_cast_args *a = args;
    const int64_t n = qrn_tensor_n_elements(&a->x);
    for (int64_t i = 0; i < n; i++) qrn_ref_set_flat(&a->out, i, qrn_ref_get_flat(&a->x, i));
}

static double bytes_of(const struct qrn_tensor *t)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    return (double)qrn_tensor_n_elements(t) / type->block_elements * type->block_bytes;
}

static void cast_cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_cast_args *a = args;
    *n_flops = 0.0;
    *n_bytes = bytes_of(&a->x) + bytes_of(&a->out);
}

static const struct qrn_operand cast_operands[] = {
    QRN_OPERAND(cast, x, QRN_READS),
    QRN_OPERAND(cast, out, QRN_WRITES),
};

const struct qrn_op qrn_op_cast = {
    .name = "cast",
    .args_bytes = sizeof(struct qrn_cast_args),
    .operands = cast_operands,
    .n_operands = sizeof cast_operands / sizeof *cast_operands,
    .check = cast_check,
    .reference = cast_reference,
    .cost = cast_cost,
};

static enum qrn_status copy_check(const void *args, struct qrn_error *err)
{
    const struct qrn_copy_args *a = args;
    QRN_TRY(qrn_check_dtype("copy", "out", &a->out, err, 1, a->x.dtype));
    return qrn_check_same_shape("copy", "out", &a->out, "x", &a->x, err);
}

/* Block by block: a block is what has an address. */
static void copy_reference(const void *args)
{
    const struct qrn_copy_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->x.dtype);
    const int64_t n = qrn_tensor_n_elements(&a->x);
    if (a->out.dtype != a->x.dtype) { /* float64 in place of a float type */
        for (int64_t i = 0; i < n; i++) qrn_ref_set_flat(&a->out, i, qrn_ref_get_flat(&a->x, i));
        return;
    }
    for (int64_t i = 0; i < n; i += type->block_elements) {
        int64_t from = 0, to = 0, rest = i;
        for (int d = a->x.n_dims - 1; d >= 0; d--) {
            from += rest % a->x.shape[d] * a->x.stride[d];
            to += rest % a->x.shape[d] * a->out.stride[d];
            rest /= a->x.shape[d];
        }
        memcpy((char *)a->out.data + to / type->block_elements * type->block_bytes,
               (const char *)a->x.data + from / type->block_elements * type->block_bytes,
               (size_t)type->block_bytes);
    }
}

static void copy_cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_copy_args *a = args;
    *n_flops = 0.0;
    *n_bytes = 2.0 * bytes_of(&a->x);
}

static const struct qrn_operand copy_operands[] = {
    QRN_OPERAND(copy, x, QRN_READS),
    QRN_OPERAND(copy, out, QRN_WRITES),
};

const struct qrn_op qrn_op_copy = {
    .name = "copy",
    .args_bytes = sizeof(struct qrn_copy_args),
    .operands = copy_operands,
    .n_operands = sizeof copy_operands / sizeof *copy_operands,
    .check = copy_check,
    .reference = copy_reference,
    .cost = copy_cost,
};
