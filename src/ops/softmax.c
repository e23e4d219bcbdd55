/* SPDX-License-Identifier: MIT
 * softmax: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include <math.h>

static enum qrn_status check_mask(const struct qrn_tensor *mask, const struct qrn_tensor *x,
                                  struct qrn_error *err)
{
    QRN_TRY(qrn_check_dtype("softmax", "mask", mask, err, 3, QRN_F32, QRN_F16, QRN_BF16));
    const int skipped = x->n_dims - mask->n_dims;
    if (skipped < 0)
        return qrn_fail(err, QRN_ERR_SHAPE, "softmax: mask has %d dimensions, x has %d",
                        mask->n_dims, x->n_dims);
    for (int i = 0; i < mask->n_dims; i++)
        if (mask->shape[i] != x->shape[i + skipped])
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "softmax: mask.shape[%d] is %" PRId64 ", wants %" PRId64
                            " (that of x.shape[%d])",
                            i, mask->shape[i], x->shape[i + skipped], i + skipped);
    return QRN_OK;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_softmax_args *a = args;
    QRN_TRY(qrn_check_dtype("softmax", "x", &a->x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_dtype("softmax", "out", &a->out, err, 1, QRN_F32));
    QRN_TRY(qrn_check_same_shape("softmax", "out", &a->out, "x", &a->x, err));
    if (qrn_tensor_present(&a->mask)) QRN_TRY(check_mask(&a->mask, &a->x, err));
    if (!isfinite(a->scale))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "softmax: scale is %g, wants a finite number",
                        (double)a->scale);
    return QRN_OK;
}

static double score(const struct qrn_softmax_args *a, int64_t i)
{
    const double s = (double)a->scale * qrn_ref_get_flat(&a->x, i);
    return a->mask.n_dims ? s + qrn_ref_get_flat(&a->mask, i % qrn_tensor_n_elements(&a->mask)) : s;
}

static void reference(const void *args)
{
    const struct qrn_softmax_args *a = args;
    const int64_t n = a->x.shape[a->x.n_dims - 1], n_all = qrn_tensor_n_elements(&a->x);
    for (int64_t first = 0; first < n_all; first += n) {
        double m = -INFINITY, l = 0.0;
        for (int64_t i = 0; i < n; i++) m = fmax(m, score(a, first + i));
        for (int64_t i = 0; i < n && m > -INFINITY; i++) l += exp(score(a, first + i) - m);
        for (int64_t i = 0; i < n; i++)
            qrn_ref_set_flat(&a->out, first + i, l == 0.0 ? 0.0 : exp(score(a, first + i) - m) / l);
    }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_softmax_args *a = args;
    const double n = (double)qrn_tensor_n_elements(&a->x);
    *n_flops = 4 * n;
    *n_bytes = 8 * n;
    if (a->mask.n_dims)
        *n_bytes +=
            (double)qrn_tensor_n_elements(&a->mask) * qrn_dtype_info(a->mask.dtype)->block_bytes;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(softmax, x, QRN_READS),
    QRN_OPERAND(softmax, mask, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(softmax, out, QRN_WRITES, "x"),
};

const struct qrn_op qrn_op_softmax = {
    .name = "softmax",
    .args_bytes = sizeof(struct qrn_softmax_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
