/* SPDX-License-Identifier: MIT
 * What the ops with weight matrices share: their checks, weights as floats, activations as
 * bytes. */
#ifndef QUERN_OPS_MATMUL_COMMON_H
#define QUERN_OPS_MATMUL_COMMON_H

#include <inttypes.h>
#include <string.h>
#include "base/half.h"
#include "core/op.h"
#include "formats/blocks.h"
#include "formats/q8_act.h"

/* Types whose blocks of 32 are small integers times a scale (of the block, or of each half), plus
 * perhaps a minimum: those that QRN_ACT_Q8 multiplies as integers. */
static inline bool qrn_has_integer_form(enum qrn_dtype t)
{
    switch ((int)t) {
    case QRN_Q4_0:
    case QRN_Q4_1:
    case QRN_Q5_0:
    case QRN_Q5_1:
    case QRN_Q8_0:
    case QRN_Q2_K:
    case QRN_Q3_K:
    case QRN_Q4_K:
    case QRN_Q5_K:
    case QRN_Q6_K:
    case QRN_IQ4_NL:
    case QRN_IQ4_XS:
    case QRN_MXFP4:
    case QRN_TQ1_0:
    case QRN_TQ2_0:
        return true;
    default:
        return qrn_is_mlx(t);
    }
}

/* Whether a product rounds its activations to bf16. */
static inline bool qrn_acts_bf16(enum qrn_activation_type activation, enum qrn_dtype w)
{
    return activation == QRN_ACT_BF16 && w == QRN_BF16;
}

/* Elements of one scale of MLX codes. */
static inline int64_t qrn_mlx_group(const struct qrn_tensor *w, const struct qrn_tensor *scales)
{
    const int64_t k = w->shape[w->n_dims - 1], n = scales->shape[scales->n_dims - 1];
    return n > 0 ? k / n : 0;
}

static inline enum qrn_status qrn_check_mlx(const char *op, const char *w_name,
                                            const struct qrn_tensor *w, const char *name,
                                            const struct qrn_tensor *t, struct qrn_error *err)
{
    if (!qrn_tensor_present(t))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: %s is missing, %s is %s", op, name, w_name,
                        qrn_dtype_info(w->dtype)->name);
    QRN_TRY(qrn_check_dtype(op, name, t, err, 3, QRN_F32, QRN_F16, QRN_BF16));
    if (t->n_dims != w->n_dims)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s has %d dimensions, wants %d (those of %s)", op,
                        name, t->n_dims, w->n_dims, w_name);
    const int last = w->n_dims - 1;
    for (int i = 0; i < last; i++)
        if (t->shape[i] != w->shape[i])
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "%s: %s.shape[%d] is %" PRId64 ", wants %" PRId64 " (that of %s)", op,
                            name, i, t->shape[i], w->shape[i], w_name);
    const int64_t k = w->shape[last], n = t->shape[last];
    if (k == 0 && n == 0) return QRN_OK;
    const int64_t group = n > 0 && k % n == 0 ? k / n : 0;
    if (group != 32 && group != 64 && group != 128)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: %s.shape[%d] is %" PRId64 " for %" PRId64
                        " columns, wants groups of 32, 64 or 128",
                        op, name, last, n, k);
    return QRN_OK;
}

/* A weight matrix, its type, and its scales where the type wants them. */
static inline enum qrn_status qrn_check_weight(const char *op, const char *w_name,
                                               const struct qrn_tensor *w,
                                               const struct qrn_tensor *scales,
                                               const struct qrn_tensor *biases,
                                               enum qrn_weight_layout layout, struct qrn_error *err)
{
    const bool mlx = qrn_is_mlx(w->dtype);
    if (!mlx && !qrn_decoder(w->dtype))
        return qrn_fail(err, QRN_ERR_DTYPE, "%s: %s is %s, which holds no weights", op, w_name,
                        qrn_dtype_info(w->dtype)->name);
    if ((int)layout < QRN_LAYOUT_ROWS || (int)layout > QRN_LAYOUT_PACKED)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: layout is %d, wants 0 or 1", op, (int)layout);
    if (mlx && layout == QRN_LAYOUT_ROWS) {
        QRN_TRY(qrn_check_mlx(op, w_name, w, "scales", scales, err));
        QRN_TRY(qrn_check_mlx(op, w_name, w, "biases", biases, err));
        const int last = w->n_dims - 1;
        if (scales->shape[last] != biases->shape[last])
            return qrn_fail(err, QRN_ERR_SHAPE,
                            "%s: biases.shape[%d] is %" PRId64 ", wants %" PRId64
                            " (that of scales)",
                            op, last, biases->shape[last], scales->shape[last]);
    } else if (qrn_tensor_present(scales) || qrn_tensor_present(biases)) {
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: scales and biases are for MLX codes in rows, %s is %s%s", op, w_name,
                        qrn_dtype_info(w->dtype)->name, mlx ? ", packed" : "");
    }
    if (layout == QRN_LAYOUT_PACKED) {
        if (w->n_dims > 3)
            return qrn_fail(err, QRN_ERR_SHAPE, "%s: %s has %d dimensions, packed ones have 2 or 3",
                            op, w_name, w->n_dims);
        for (int i = w->n_dims - 2; i >= 0; i--)
            if (w->shape[i] > 1 && w->stride[i] != w->stride[i + 1] * w->shape[i + 1])
                return qrn_fail(err, QRN_ERR_SHAPE,
                                "%s: %s.stride[%d] is %" PRId64 ", wants %" PRId64 " (packed)", op,
                                w_name, i, w->stride[i], w->stride[i + 1] * w->shape[i + 1]);
    }
    return QRN_OK;
}

static inline enum qrn_status qrn_check_activation(const char *op,
                                                   enum qrn_activation_type activation, int64_t k,
                                                   struct qrn_error *err)
{
    if ((int)activation < QRN_ACT_F32 || (int)activation > QRN_ACT_BF16)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: activation is %d, wants 0 to 2", op,
                        (int)activation);
    if (activation == QRN_ACT_Q8 && k % 32)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: K is %" PRId64 ", 8-bit activations want a multiple of 32", op, k);
    return QRN_OK;
}

/* Activations: float32, or rounded ones for a product of integers or of bf16. */
static inline enum qrn_status qrn_check_x(const char *op, const struct qrn_tensor *x,
                                          const struct qrn_tensor *w,
                                          enum qrn_activation_type activation,
                                          enum qrn_weight_layout layout, struct qrn_error *err)
{
    const bool packed = layout == QRN_LAYOUT_PACKED && qrn_has_integer_form(w->dtype);
    const bool bf16 = qrn_acts_bf16(activation, w->dtype) || (packed && activation == QRN_ACT_BF16);
    QRN_TRY(qrn_check_dtype(op, "x", x, err, 3, QRN_F32, QRN_Q8_ACT, QRN_BF16));
    if (x->dtype == QRN_F32) return QRN_OK;
    if (x->dtype == QRN_BF16 && !bf16)
        return qrn_fail(err, QRN_ERR_DTYPE,
                        "%s: x is bf16, wants f32 but with activation 2 (BF16) and weights that "
                        "are bf16 or packed",
                        op);
    if (x->dtype == QRN_BF16) return QRN_OK;
    if (activation != QRN_ACT_Q8)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: x is q8_act, activation wants to be 1 (Q8)",
                        op);
    if (!qrn_has_integer_form(w->dtype))
        return qrn_fail(err, QRN_ERR_DTYPE,
                        "%s: x is q8_act, wants f32 with %s weights (they are no integers)", op,
                        qrn_dtype_info(w->dtype)->name);
    return QRN_OK;
}

/* Ids in 0 .. n - 1, of a tensor of one or two dimensions. */
static inline enum qrn_status qrn_check_ids(const char *op, const struct qrn_tensor *ids, int64_t n,
                                            struct qrn_error *err)
{
    const int64_t n_ids = qrn_tensor_n_elements(ids), width = ids->shape[ids->n_dims - 1];
    for (int64_t i = 0; i < n_ids; i++) {
        const int64_t row = ids->n_dims > 1 ? i / width * ids->stride[0] : 0;
        const int32_t id = ((const int32_t *)ids->data)[row + i % width];
        if (id < 0 || id >= n)
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "%s: id %" PRId64 " is %" PRId32 ", wants 0 to %" PRId64, op, i, id,
                            n - 1);
    }
    return QRN_OK;
}

/* Bytes into a tensor of blocks for a number of elements that begins a block. */
static inline size_t qrn_block_offset(enum qrn_dtype t, int64_t n_elements)
{
    const struct qrn_dtype_info *info = qrn_dtype_info(t);
    return (size_t)(n_elements / info->block_elements) * (size_t)info->block_bytes;
}

/* One row of a weight matrix: where its blocks, scales and biases begin. */
struct qrn_weight_row {
    enum qrn_dtype dtype;
    const char *blocks;
    int64_t group; /* MLX codes: elements of one scale */
    enum qrn_dtype scales_type, biases_type;
    const char *scales, *biases;
};

/* Row n of matrix (i3, i2); leading dimensions that w lacks are 0. */
static inline struct qrn_weight_row qrn_weight_row(const struct qrn_tensor *w,
                                                   const struct qrn_tensor *scales,
                                                   const struct qrn_tensor *biases, int64_t i3,
                                                   int64_t i2, int64_t n)
{
    const struct qrn_tensor *const all[3] = {w, scales, biases};
    const char *at[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; i++) {
        const struct qrn_tensor *t = all[i];
        const int d = t->n_dims;
        if (d < 2) continue;
        int64_t e = n * t->stride[d - 2];
        if (d > 2) e += i2 * t->stride[d - 3];
        if (d > 3) e += i3 * t->stride[d - 4];
        at[i] = (const char *)t->data + qrn_block_offset(t->dtype, e);
    }
    return (struct qrn_weight_row){.dtype = w->dtype,
                                   .blocks = at[0],
                                   .group = at[1] ? qrn_mlx_group(w, scales) : 0,
                                   .scales_type = scales->dtype,
                                   .biases_type = biases->dtype,
                                   .scales = at[1],
                                   .biases = at[2]};
}

static inline float qrn_plain_value(enum qrn_dtype t, const char *data, int64_t i)
{
    float value;
    qrn_decoder(t)(data + qrn_block_offset(t, i), &value, 1);
    return value;
}

/* n weights from k on (both in whole blocks) as floats, exactly as the type decodes. */
static inline void qrn_weight_decode(const struct qrn_weight_row *row, int64_t k, int64_t n,
                                     float *out)
{
    const char *blocks = row->blocks + qrn_block_offset(row->dtype, k);
    if (!qrn_is_mlx(row->dtype)) {
        qrn_decoder(row->dtype)(blocks, out, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i += 32) {
        const float scale = qrn_plain_value(row->scales_type, row->scales, (k + i) / row->group);
        const float bias = qrn_plain_value(row->biases_type, row->biases, (k + i) / row->group);
        qrn_decode_mlx(row->dtype, blocks + qrn_block_offset(row->dtype, i), &scale, &bias, 32,
                       out + i, 32);
    }
}

/* For references: n <= 128 activations at x as the op multiplies them. */
static inline void qrn_ref_acts(enum qrn_dtype type, const void *x, int64_t n, bool q8, bool bf16,
                                double *out)
{
    struct qrn_q8_act block = {.d = 0.0f};
    if (type == QRN_Q8_ACT)
        memcpy(&block, x, sizeof block);
    else if (q8)
        qrn_q8_act_block(x, (int)n, &block);
    for (int64_t i = 0; i < n; i++) {
        if (q8)
            out[i] = (double)block.d * block.q[i];
        else if (type == QRN_BF16)
            out[i] = (double)qrn_bf16_to_float(((const uint16_t *)x)[i]);
        else if (bf16)
            out[i] = (double)qrn_bf16_to_float(qrn_float_to_bf16(((const float *)x)[i]));
        else
            out[i] = (double)((const float *)x)[i];
    }
}

/* For references: sum over k of weights and activations (rounded where the op rounds them, or rounded
 * already), in float64.  x: what the tensor's data is; at: its element where the row begins. */
static inline double qrn_ref_dot(const struct qrn_weight_row *row, const struct qrn_tensor *x,
                                 int64_t at, int64_t k, enum qrn_activation_type activation)
{
    const bool q8 = activation == QRN_ACT_Q8 && qrn_has_integer_form(row->dtype);
    const bool bf16 = qrn_acts_bf16(activation, row->dtype);
    const char *from = (const char *)x->data + qrn_block_offset(x->dtype, at);
    double sum = 0.0;
    for (int64_t k0 = 0; k0 < k; k0 += 256) {
        float w[256];
        const int64_t n = k - k0 < 256 ? k - k0 : 256;
        qrn_weight_decode(row, k0, n, w);
        for (int64_t i = 0; i < n; i += QRN_Q8_ACT_BLOCK) {
            double acts[QRN_Q8_ACT_BLOCK];
            const int64_t end = n - i < QRN_Q8_ACT_BLOCK ? n - i : QRN_Q8_ACT_BLOCK;
            qrn_ref_acts(x->dtype, from + qrn_block_offset(x->dtype, k0 + i), end, q8, bf16, acts);
            for (int64_t j = 0; j < end; j++) sum += (double)w[i + j] * acts[j];
        }
    }
    return sum;
}

#endif
