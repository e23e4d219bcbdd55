/* SPDX-License-Identifier: MIT
 * rope_multi: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include <math.h>
#include "ops/rope_angles.h"

static enum qrn_status check_sections(const struct qrn_rope_multi_args *a, struct qrn_error *err)
{
    const int64_t d = a->x.shape[2];
    int64_t total = 0;
    for (int i = 0; i < 4; i++) {
        if (a->sections[i] < 0)
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "rope_multi: sections[%d] is %" PRId32 ", wants 0 or more", i,
                            a->sections[i]);
        total += a->sections[i];
    }
    if (total == 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rope_multi: sections sum up to 0, want 1 or more");
    if (a->positions.shape[0] == 3 && a->sections[3] != 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "rope_multi: sections[3] is %" PRId32
                        " where positions has 3 axes, wants 0",
                        a->sections[3]);
    const int64_t image = (int64_t)a->sections[0] + a->sections[1];
    if (a->mode == QRN_ROPE_VISION && 2 * image != d)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "rope_multi: sections[0] + sections[1] is %" PRId64
                        ", wants half of the %" PRId64 " dimensions",
                        image, d);
    return QRN_OK;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_rope_multi_args *a = args;
    const char *op = "rope_multi";
    QRN_TRY(qrn_check_dtype(op, "x", &a->x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape(op, "x", &a->x, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_dtype(op, "out", &a->out, err, 1, QRN_F32));
    QRN_TRY(qrn_check_same_shape(op, "out", &a->out, "x", &a->x, err));
    QRN_TRY(qrn_check_dtype(op, "positions", &a->positions, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(op, "positions", &a->positions, err, 2, (int64_t)-1, a->x.shape[0]));
    const int64_t n_axes = a->positions.shape[0], d = a->x.shape[2],
                  n_rot = a->n_rot ? a->n_rot : d;
    if (n_axes != 3 && n_axes != 4)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: positions.shape[0] is %" PRId64 ", wants 3 or 4",
                        op, n_axes);
    if (n_rot < 0 || n_rot > d || n_rot % 2)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: n_rot is %" PRId64 ", wants an even number up to %" PRId64, op, n_rot,
                        d);
    if (a->mode == QRN_ROPE_VISION && n_rot != d)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: n_rot is %" PRId64 " for an image, wants all %" PRId64 " dimensions",
                        op, n_rot, d);
    if (!(a->theta > 0.0) || isinf(a->theta))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: theta is %g, wants above 0", op, a->theta);
    if (a->mode != QRN_ROPE_MROPE && a->mode != QRN_ROPE_IMROPE && a->mode != QRN_ROPE_VISION)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: mode is %d, wants %d to %d", op, (int)a->mode,
                        QRN_ROPE_MROPE, QRN_ROPE_VISION);
    return check_sections(a, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_rope_multi_args *a = args;
    for (int64_t axis = 0; axis < a->positions.shape[0]; axis++)
        for (int64_t t = 0; t < a->positions.shape[1]; t++) {
            const int32_t p =
                ((const int32_t *)a->positions.data)[axis * a->positions.stride[0] + t];
            if (p < 0 || p > ROPE_MAX_POSITION)
                return qrn_fail(err, QRN_ERR_ARGUMENT,
                                "rope_multi: positions[%" PRId64 "][%" PRId64 "] is %" PRId32
                                ", wants 0 to %d",
                                axis, t, p, ROPE_MAX_POSITION);
        }
    return QRN_OK;
}

static void reference(const void *args)
{
    const struct qrn_rope_multi_args *a = args;
    const int64_t d = a->x.shape[2], n_rot = a->n_rot ? a->n_rot : d, half = n_rot / 2;
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t h = 0; h < a->x.shape[1]; h++) {
            for (int64_t p = 0; p < half; p++) {
                const int axis = rope_multi_axis(a, p);
                const float position = (float)qrn_ref_get(&a->positions, axis, t, 0, 0);
                const float angle = position * rope_multi_frequency(a, n_rot, p);
                const double c = cos((double)angle), s = sin((double)angle);
                const double x0 = qrn_ref_get(&a->x, t, h, p, 0);
                const double x1 = qrn_ref_get(&a->x, t, h, p + half, 0);
                qrn_ref_set(&a->out, t, h, p, 0, x0 * c - x1 * s);
                qrn_ref_set(&a->out, t, h, p + half, 0, x1 * c + x0 * s);
            }
            for (int64_t i = n_rot; i < d; i++)
                qrn_ref_set(&a->out, t, h, i, 0, qrn_ref_get(&a->x, t, h, i, 0));
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_rope_multi_args *a = args;
    const double rows = (double)a->x.shape[0] * (double)a->x.shape[1];
    *n_flops = 3.0 * rows * (double)(a->n_rot ? a->n_rot : a->x.shape[2]);
    *n_bytes = 8.0 * rows * (double)a->x.shape[2];
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(rope_multi, x, QRN_READS),
    QRN_OPERAND(rope_multi, positions, QRN_READS),
    QRN_OPERAND(rope_multi, out, QRN_WRITES, "x"),
};

const struct qrn_op qrn_op_rope_multi = {
    .name = "rope_multi",
    .args_bytes = sizeof(struct qrn_rope_multi_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
