/* SPDX-License-Identifier: MIT
 * Access to single elements as doubles, for references and tests: clear, not fast. */
#include "core/op.h"

#include <string.h>
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/q8_act.h"

static size_t element_offset(const struct qrn_tensor *t, const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < t->n_dims; i++) at += index[i] * t->stride[i];
    return (size_t)at;
}

/* An element of a block, which is decoded as a whole. */
static double get_of_block(const struct qrn_tensor *t, size_t at)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    const size_t n = (size_t)type->block_elements;
    float block[256];
    qrn_decoder(t->dtype)((const char *)t->data + at / n * (size_t)type->block_bytes, block, n);
    return (double)block[at % n];
}

static double get(const struct qrn_tensor *t, size_t at)
{
    const char *base = t->data;
#define NUMBER(dtype_, c_type)                                  \
    if (t->dtype == dtype_) {                                   \
        c_type value;                                           \
        memcpy(&value, base + at * sizeof value, sizeof value); \
        return (double)value;                                   \
    }
    NUMBER(QRN_F32, float)
    NUMBER(QRN_F64, double)
    NUMBER(QRN_I8, int8_t)
    NUMBER(QRN_I16, int16_t)
    NUMBER(QRN_I32, int32_t)
    NUMBER(QRN_I64, int64_t)
    NUMBER(QRN_U8, uint8_t)
    NUMBER(QRN_U16, uint16_t)
    NUMBER(QRN_U32, uint32_t)
#undef NUMBER
    return get_of_block(t, at);
}

static void set(const struct qrn_tensor *t, size_t at, double value)
{
    char *base = t->data;
    if (t->dtype == QRN_F64) {
        memcpy(base + at * sizeof value, &value, sizeof value);
    } else if (t->dtype == QRN_F32) {
        const float f = (float)value;
        memcpy(base + at * sizeof f, &f, sizeof f);
    } else if (t->dtype == QRN_I32) {
        const int32_t i = (int32_t)value;
        memcpy(base + at * sizeof i, &i, sizeof i);
    } else if (t->dtype == QRN_U8) {
        base[at] = (char)(uint8_t)value;
    } else {
        const uint16_t h =
            t->dtype == QRN_F16 ? qrn_float_to_f16((float)value) : qrn_float_to_bf16((float)value);
        memcpy(base + at * sizeof h, &h, sizeof h);
    }
}

static size_t flat_offset(const struct qrn_tensor *t, int64_t i)
{
    int64_t index[QRN_MAX_DIMS] = {0};
    for (int d = t->n_dims - 1; d >= 0; d--) {
        index[d] = i % t->shape[d];
        i /= t->shape[d];
    }
    return element_offset(t, index);
}

double qrn_ref_get(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return get(t, element_offset(t, (const int64_t[]){i0, i1, i2, i3}));
}

void qrn_ref_set(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3,
                 double value)
{
    set(t, element_offset(t, (const int64_t[]){i0, i1, i2, i3}), value);
}

double qrn_ref_get_flat(const struct qrn_tensor *t, int64_t i)
{
    return get(t, flat_offset(t, i));
}

void qrn_ref_set_flat(const struct qrn_tensor *t, int64_t i, double value)
{
    set(t, flat_offset(t, i), value);
}

void qrn_ref_round_flat(const struct qrn_tensor *t, int64_t i, const double *values)
{
    float x[QRN_Q8_ACT_BLOCK];
    for (int k = 0; k < QRN_Q8_ACT_BLOCK; k++) x[k] = (float)values[k];
    qrn_q8_act_block(x, QRN_Q8_ACT_BLOCK,
                     (struct qrn_q8_act *)t->data + flat_offset(t, i) / QRN_Q8_ACT_BLOCK);
}
