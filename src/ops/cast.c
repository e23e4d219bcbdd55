/* SPDX-License-Identifier: MIT
 * cast and copy: the same values, or the same bytes, elsewhere. */
#include "core/op.h"

#include <string.h>
#include "formats/blocks.h"
#include "formats/q8_act.h"

static enum qrn_status cast_check(const void *args, struct qrn_error *err)
{
    const struct qrn_cast_args *a = args;
    if (!qrn_decoder(a->x.dtype))
        return qrn_fail(err, QRN_ERR_DTYPE,
                        "cast: x is %s, wants a type that has values of its own",
                        qrn_dtype_info(a->x.dtype)->name);
    QRN_TRY(
        qrn_check_dtype("cast", "out", &a->out, err, 4, QRN_F32, QRN_F16, QRN_BF16, QRN_Q8_ACT));
    return qrn_check_same_shape("cast", "out", &a->out, "x", &a->x, err);
}

/* The block that element i of the shape begins. */
static void *block_at(const struct qrn_tensor *t, int64_t i)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    int64_t at = 0;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        at += i % t->shape[d] * t->stride[d];
        i /= t->shape[d];
    }
    return (char *)t->data + at / type->block_elements * type->block_bytes;
}

static void cast_reference(const void *args)
{
    const struct qrn_cast_args *a = args;
    const int64_t n = qrn_tensor_n_elements(&a->x);
    if (a->out.dtype == QRN_Q8_ACT)
        for (int64_t i = 0; i < n; i += QRN_Q8_ACT_BLOCK) {
            float values[QRN_Q8_ACT_BLOCK];
            for (int j = 0; j < QRN_Q8_ACT_BLOCK; j++)
                values[j] = (float)qrn_ref_get_flat(&a->x, i + j);
            qrn_q8_act_block(values, QRN_Q8_ACT_BLOCK, block_at(&a->out, i));
        }
    else
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
    for (int64_t i = 0; i < n; i += type->block_elements)
        memcpy(block_at(&a->out, i), block_at(&a->x, i), (size_t)type->block_bytes);
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
