/* SPDX-License-Identifier: MIT
 * matmul: checks and reference. */
#include "ops/matmul_common.h"

static int64_t dim(const struct qrn_tensor *t, int from_last)
{
    return from_last < t->n_dims ? t->shape[t->n_dims - 1 - from_last] : 1;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_matmul_args *a = args;
    const int n_dims = a->x.n_dims;
    QRN_TRY(qrn_check_dtype("matmul", "out", &a->out, err, 1, QRN_F32));
    if (n_dims < 2)
        return qrn_fail(err, QRN_ERR_SHAPE, "matmul: x has %d dimensions, wants 2 to 4", n_dims);
    if (a->w.n_dims < 2 || a->w.n_dims > n_dims)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "matmul: w has %d dimensions, wants 2 to %d (those of x)", a->w.n_dims,
                        n_dims);
    QRN_TRY(qrn_check_weight("matmul", "w", &a->w, &a->scales, &a->biases, a->layout, err));
    const int64_t k = dim(&a->w, 0);
    if (dim(&a->x, 0) != k)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "matmul: x.shape[%d] is %" PRId64 ", wants %" PRId64 " (K of w)",
                        n_dims - 1, dim(&a->x, 0), k);
    for (int i = 2; i < a->w.n_dims; i++) {
        const int64_t n = dim(&a->w, i), m = dim(&a->x, i);
        if (n ? m % n : m)
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "matmul: x.shape[%d] is %" PRId64 ", wants a multiple of %" PRId64
                            " (matrices of w)",
                            n_dims - 1 - i, m, n);
    }
    QRN_TRY(qrn_check_activation("matmul", a->activation, k, err));
    QRN_TRY(qrn_check_x("matmul", &a->x, &a->w, a->activation, a->layout, err));
    struct qrn_tensor like = a->x;
    like.shape[n_dims - 1] = dim(&a->w, 1);
    return qrn_check_same_shape("matmul", "out", &a->out, "x with N of w", &like, err);
}

enum qrn_dtype qrn_matmul_x_dtype(enum qrn_dtype weights, enum qrn_activation_type activation)
{
    return activation == QRN_ACT_Q8 && qrn_has_integer_form(weights) ? QRN_Q8_ACT : QRN_F32;
}

static void reference(const void *args)
{
    const struct qrn_matmul_args *a = args;
    const int64_t k = dim(&a->w, 0), n = dim(&a->w, 1), m = dim(&a->x, 1);
    const int64_t m2 = dim(&a->x, 2), m3 = dim(&a->x, 3);
    if (n == 0 || m == 0 || m2 == 0 || m3 == 0) return;
    const int64_t r2 = m2 / dim(&a->w, 2), r3 = m3 / dim(&a->w, 3);
    const int d = a->x.n_dims;
    for (int64_t r = 0; r < m3 * m2 * m; r++) {
        const int64_t i = r % m, i2 = r / m % m2, i3 = r / m / m2;
        int64_t at = i * a->x.stride[d - 2];
        if (d > 2) at += i2 * a->x.stride[d - 3];
        if (d > 3) at += i3 * a->x.stride[d - 4];
        for (int64_t j = 0; j < n; j++) {
            const struct qrn_weight_row row =
                qrn_weight_row(&a->w, &a->scales, &a->biases, i3 / r3, i2 / r2, j);
            const double sum = qrn_ref_dot(&row, &a->x, at, k, a->activation);
            qrn_ref_set_flat(&a->out, r * n + j, sum);
        }
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_matmul_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->w.dtype);
    const double x = (double)qrn_tensor_n_elements(&a->x),
                 out = (double)qrn_tensor_n_elements(&a->out);
    const struct qrn_dtype_info *x_type = qrn_dtype_info(a->x.dtype);
    *n_flops = 2.0 * out * (double)dim(&a->x, 0);
    *n_bytes = x * x_type->block_bytes / x_type->block_elements + 4.0 * out +
               (double)qrn_tensor_n_elements(&a->w) * type->block_bytes / type->block_elements;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(matmul, w, QRN_READS),
    QRN_OPERAND(matmul, scales, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(matmul, biases, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(matmul, x, QRN_READS),
    QRN_OPERAND(matmul, out, QRN_WRITES),
};

const struct qrn_op qrn_op_matmul = {
    .name = "matmul",
    .args_bytes = sizeof(struct qrn_matmul_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
