/* SPDX-License-Identifier: MIT
 * GGUF: looking up metadata and reading values, whichever integer or float type they have. */
#include "formats/gguf.h"

#include "formats/gguf_read.h"

const struct qrn_gguf_value *qrn_gguf_find(const struct qrn_gguf *gguf, const char *key)
{
    const struct qrn_gguf_part view = {.values = gguf->values, .n_values = gguf->n_values};
    return qrn_gguf_part_find(&view, key);
}

static bool scalar_i64(const struct qrn_gguf_value *v, int64_t *out)
{
    switch (v->type) {
    case QRN_GGUF_I8:
    case QRN_GGUF_I16:
    case QRN_GGUF_I32:
    case QRN_GGUF_I64:
        *out = v->as.i;
        return true;
    case QRN_GGUF_U8:
    case QRN_GGUF_U16:
    case QRN_GGUF_U32:
    case QRN_GGUF_U64:
    case QRN_GGUF_BOOL:
        if (v->as.u > INT64_MAX) return false;
        *out = (int64_t)v->as.u;
        return true;
    default:
        return false;
    }
}

static bool scalar_f64(const struct qrn_gguf_value *v, double *out)
{
    if (v->type == QRN_GGUF_F32 || v->type == QRN_GGUF_F64) {
        *out = v->as.f;
        return true;
    }
    if (v->type == QRN_GGUF_U64) {
        *out = (double)v->as.u;
        return true;
    }
    int64_t i;
    if (!scalar_i64(v, &i)) return false;
    *out = (double)i;
    return true;
}

bool qrn_gguf_i64(const struct qrn_gguf *gguf, const char *key, int64_t *out)
{
    const struct qrn_gguf_value *v = qrn_gguf_find(gguf, key);
    return v && scalar_i64(v, out);
}

bool qrn_gguf_f64(const struct qrn_gguf *gguf, const char *key, double *out)
{
    const struct qrn_gguf_value *v = qrn_gguf_find(gguf, key);
    return v && scalar_f64(v, out);
}

bool qrn_gguf_string(const struct qrn_gguf *gguf, const char *key, struct qrn_span *out)
{
    const struct qrn_gguf_value *v = qrn_gguf_find(gguf, key);
    if (!v || v->type != QRN_GGUF_STRING) return false;
    *out = v->as.string;
    return true;
}

/* Element i as a value of its own. */
static bool element(const struct qrn_gguf_value *v, uint64_t i, struct qrn_gguf_value *out)
{
    if (v->type != QRN_GGUF_ARRAY || i >= v->as.array.n) return false;
    const size_t n_bytes = qrn_gguf_scalar_bytes(v->element);
    if (n_bytes == 0) return false;
    struct qrn_reader r = {v->as.array.bytes + i * n_bytes, v->as.array.bytes + (i + 1) * n_bytes,
                           false};
    *out = (struct qrn_gguf_value){.type = v->element};
    qrn_gguf_read_scalar(&r, out);
    return true;
}

bool qrn_gguf_array_i64(const struct qrn_gguf_value *value, uint64_t i, int64_t *out)
{
    struct qrn_gguf_value e;
    return element(value, i, &e) && scalar_i64(&e, out);
}

bool qrn_gguf_array_f64(const struct qrn_gguf_value *value, uint64_t i, double *out)
{
    struct qrn_gguf_value e;
    return element(value, i, &e) && scalar_f64(&e, out);
}

bool qrn_gguf_strings(const struct qrn_gguf_value *value, struct qrn_span *out, uint64_t n)
{
    if (value->type != QRN_GGUF_ARRAY || value->element != QRN_GGUF_STRING) return false;
    const uint8_t *at = value->as.array.bytes;
    for (uint64_t i = 0; i < n && i < value->as.array.n; i++) {
        const size_t n_bytes = (size_t)qrn_load_le(at, 8); /* checked when the file was opened */
        out[i] = (struct qrn_span){(const char *)at + 8, n_bytes};
        at += 8 + n_bytes;
    }
    return true;
}
