/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul: two tensors in, one out, element by element.  Each is a name,
 * two operands and a formula. */
#include "core/op.h"

#include <math.h>

#include "formats/q8_act.h"

static enum qrn_status check(const char *op, const char *x_name, const struct qrn_tensor *x,
                             const char *y_name, const struct qrn_tensor *y,
                             const struct qrn_tensor *out, struct qrn_error *err)
{
    QRN_TRY(qrn_check_dtype(op, x_name, x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_dtype(op, y_name, y, err, 1, QRN_F32));
    QRN_TRY(qrn_check_dtype(op, "out", out, err, 3, QRN_F32, QRN_BF16, QRN_Q8_ACT));
    QRN_TRY(qrn_check_same_shape(op, y_name, y, x_name, x, err));
    return qrn_check_same_shape(op, "out", out, x_name, x, err);
}

static void reference(const struct qrn_tensor *x, const struct qrn_tensor *y,
                      const struct qrn_tensor *out, double (*formula)(double, double))
{
    const int64_t n = qrn_tensor_n_elements(x);
    double block[QRN_Q8_ACT_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        const double value = formula(qrn_ref_get_flat(x, i), qrn_ref_get_flat(y, i));
        block[i % QRN_Q8_ACT_BLOCK] = value;
        if (out->dtype != QRN_Q8_ACT)
            qrn_ref_set_flat(out, i, value);
        else if ((i + 1) % QRN_Q8_ACT_BLOCK == 0)
            qrn_ref_round_flat(out, i + 1 - QRN_Q8_ACT_BLOCK, block);
    }
}

#define ELEMENTWISE(op, x_, y_, flops, formula)                                              \
    static enum qrn_status op##_check(const void *args, struct qrn_error *err)               \
    {                                                                                        \
        const struct qrn_##op##_args *a = args;                                              \
        return check(#op, #x_, &a->x_, #y_, &a->y_, &a->out, err);                           \
    }                                                                                        \
    static double op##_formula(double x_, double y_)                                         \
    {                                                                                        \
        return formula;                                                                      \
    }                                                                                        \
    static void op##_reference(const void *args)                                             \
    {                                                                                        \
        const struct qrn_##op##_args *a = args;                                              \
        reference(&a->x_, &a->y_, &a->out, op##_formula);                                    \
    }                                                                                        \
    static void op##_cost(const void *args, double *n_flops, double *n_bytes)                \
    {                                                                                        \
        const struct qrn_##op##_args *a = args;                                              \
        *n_flops = flops * (double)qrn_tensor_n_elements(&a->out);                           \
        *n_bytes = 12.0 * (double)qrn_tensor_n_elements(&a->out);                            \
    }                                                                                        \
    static const struct qrn_operand op##_operands[] = {                                      \
        QRN_OPERAND(op, x_, QRN_READS),                                                      \
        QRN_OPERAND(op, y_, QRN_READS),                                                      \
        QRN_OPERAND(op, out, QRN_WRITES, #x_ " " #y_),                                       \
    };                                                                                       \
    const struct qrn_op qrn_op_##op = {                                                      \
        .name = #op,                                                                         \
        .args_bytes = sizeof(struct qrn_##op##_args),                                        \
        .operands = op##_operands,                                                           \
        .n_operands = sizeof op##_operands / sizeof *op##_operands,                          \
        .check = op##_check,                                                                 \
        .reference = op##_reference,                                                         \
        .cost = op##_cost,                                                                   \
    };

ELEMENTWISE(add, x, y, 1.0, x + y)
ELEMENTWISE(mul, x, y, 1.0, x *y)
ELEMENTWISE(silu_mul, gate, up, 4.0, gate / (1.0 + exp(-gate)) * up)
ELEMENTWISE(sigmoid_mul, x, gate, 4.0, x / (1.0 + exp(-gate)))
