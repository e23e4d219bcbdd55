/* SPDX-License-Identifier: MIT
 * rope: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include <math.h>
#include "ops/rope_angles.h"

static enum qrn_status check_scaling(const struct qrn_rope_scaling *s, struct qrn_error *err)
{
    if (s->factor == 0.0f || s->factor == 1.0f) return QRN_OK;
    if (!(s->factor > 1.0f) || isinf(s->factor))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rope: scaling.factor is %g, wants 0, 1 or more",
                        (double)s->factor);
    if (!(s->original_context > 0.0f) || isinf(s->original_context))
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "rope: scaling.original_context is %g, wants above 0",
                        (double)s->original_context);
    if (!(s->beta_fast >= 0.0f) || !(s->beta_slow >= 0.0f) || !(s->attention_factor >= 0.0f) ||
        isinf(s->beta_fast + s->beta_slow + s->attention_factor))
        return qrn_fail(
            err, QRN_ERR_ARGUMENT,
            "rope: scaling.beta_fast, beta_slow, attention_factor are %g, %g, %g, want 0 "
            "or more",
            (double)s->beta_fast, (double)s->beta_slow, (double)s->attention_factor);
    return QRN_OK;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_rope_args *a = args;
    QRN_TRY(qrn_check_dtype("rope", "x", &a->x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape("rope", "x", &a->x, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_dtype("rope", "out", &a->out, err, 1, QRN_F32));
    QRN_TRY(qrn_check_same_shape("rope", "out", &a->out, "x", &a->x, err));
    QRN_TRY(qrn_check_dtype("rope", "positions", &a->positions, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape("rope", "positions", &a->positions, err, 1, a->x.shape[0]));
    const int64_t d = a->x.shape[2], n_rot = a->n_rot ? a->n_rot : d;
    if (n_rot < 0 || n_rot > d || n_rot % 2)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "rope: n_rot is %" PRId64 ", wants an even number up to %" PRId64, n_rot,
                        d);
    if (!(a->theta > 0.0) || isinf(a->theta))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rope: theta is %g, wants above 0", a->theta);
    if (a->mode != QRN_ROPE_NEOX && a->mode != QRN_ROPE_NORMAL)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rope: mode is %d, wants %d or %d", (int)a->mode,
                        QRN_ROPE_NEOX, QRN_ROPE_NORMAL);
    if (qrn_tensor_present(&a->freq_factors)) {
        QRN_TRY(qrn_check_dtype("rope", "freq_factors", &a->freq_factors, err, 1, QRN_F32));
        QRN_TRY(qrn_check_shape("rope", "freq_factors", &a->freq_factors, err, 1, n_rot / 2));
    }
    return check_scaling(&a->scaling, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_rope_args *a = args;
    const int32_t *positions = a->positions.data;
    for (int64_t t = 0; t < a->positions.shape[0]; t++)
        if (positions[t] < 0 || positions[t] > ROPE_MAX_POSITION)
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "rope: positions[%" PRId64 "] is %" PRId32 ", wants 0 to %d", t,
                            positions[t], ROPE_MAX_POSITION);
    return QRN_OK;
}

static void reference(const void *args)
{
    const struct qrn_rope_args *a = args;
    const int64_t d = a->x.shape[2], n_rot = a->n_rot ? a->n_rot : d, half = n_rot / 2;
    const double magnitude = (double)rope_magnitude(&a->scaling);
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t h = 0; h < a->x.shape[1]; h++) {
            for (int64_t i = 0; i < half; i++) {
                const double ff =
                    a->freq_factors.n_dims ? qrn_ref_get(&a->freq_factors, i, 0, 0, 0) : 1.0;
                const float position = (float)qrn_ref_get(&a->positions, t, 0, 0, 0);
                const float angle = position * rope_frequency(&a->scaling, a->theta, n_rot, i, ff);
                const double c = cos((double)angle) * magnitude, s = sin((double)angle) * magnitude;
                const int64_t i0 = a->mode == QRN_ROPE_NEOX ? i : 2 * i;
                const int64_t i1 = a->mode == QRN_ROPE_NEOX ? i + half : 2 * i + 1;
                const double x0 = qrn_ref_get(&a->x, t, h, i0, 0),
                             x1 = qrn_ref_get(&a->x, t, h, i1, 0);
                qrn_ref_set(&a->out, t, h, i0, 0, x0 * c - x1 * s);
                qrn_ref_set(&a->out, t, h, i1, 0, x1 * c + x0 * s);
            }
            for (int64_t i = n_rot; i < d; i++)
                qrn_ref_set(&a->out, t, h, i, 0, qrn_ref_get(&a->x, t, h, i, 0));
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_rope_args *a = args;
    const double rows = (double)a->x.shape[0] * (double)a->x.shape[1];
    *n_flops = 3.0 * rows * (double)(a->n_rot ? a->n_rot : a->x.shape[2]);
    *n_bytes = 8.0 * rows * (double)a->x.shape[2];
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(rope, x, QRN_READS),
    QRN_OPERAND(rope, positions, QRN_READS),
    QRN_OPERAND(rope, freq_factors, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(rope, out, QRN_WRITES, "x"),
};

const struct qrn_op qrn_op_rope = {
    .name = "rope",
    .args_bytes = sizeof(struct qrn_rope_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
