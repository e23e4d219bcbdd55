/* SPDX-License-Identifier: MIT
 * Writing GGUF version 3, byte for byte as llama.cpp lays it out: header, metadata, list of
 * tensors, then the data, each part and each tensor padded to the alignment. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/bytes.h"
#include "formats/gguf_read.h"
#include "formats/output.h"
#include "base/quote.h"

struct qrn_gguf_writer {
    struct qrn_output out; /* holds the first failure */
    struct qrn_bytes values, infos;
    struct qrn_bytes sizes; /* u64 each: bytes of the tensors, in order */
    uint64_t n_values, n_tensors;
    size_t alignment;
    uint64_t offset;    /* of the next tensor announced */
    bool in_data;       /* the header is written */
    uint64_t i_tensor;  /* whose bytes come next */
    uint64_t n_missing; /* bytes of it */
    struct qrn_allocator allocator;
};

static size_t padding(size_t n_bytes, size_t alignment)
{
    return (alignment - n_bytes % alignment) % alignment;
}

enum qrn_status qrn_gguf_writer_create(const char *path, const struct qrn_host *host,
                                       struct qrn_gguf_writer **out, struct qrn_error *err)
{
    *out = NULL;
    const struct qrn_allocator allocator = host ? host->allocator : (struct qrn_allocator){0};
    struct qrn_gguf_writer *w = qrn_alloc_zeroed(&allocator, sizeof *w);
    if (!w) return qrn_fail_memory(err, sizeof *w, "a GGUF writer");
    w->allocator = w->values.allocator = w->infos.allocator = w->sizes.allocator = allocator;
    w->alignment = 32;
    const enum qrn_status s = qrn_output_open(&w->out, path, host, err);
    if (s != QRN_OK) {
        qrn_free(&allocator, w, sizeof *w);
        return s;
    }
    *out = w;
    return QRN_OK;
}

static bool usable(const struct qrn_gguf_writer *w)
{
    return w->out.status == QRN_OK;
}

static void put_string(struct qrn_bytes *b, const char *bytes, size_t n)
{
    qrn_bytes_uint(b, n, 8);
    qrn_bytes_append(b, bytes, n);
}

/* Starts a key; false after a failure. */
static bool begin_value(struct qrn_gguf_writer *w, struct qrn_span key, enum qrn_gguf_type type)
{
    if (!usable(w)) return false;
    if (w->in_data) {
        w->out.status = qrn_fail(&w->out.error, QRN_ERR_STATE, "key %s comes after tensor data",
                                 qrn_quote(key.bytes, key.n_bytes).text);
        return false;
    }
    put_string(&w->values, key.bytes, key.n_bytes);
    qrn_bytes_uint(&w->values, (uint64_t)type, 4);
    w->n_values++;
    return true;
}

static bool begin(struct qrn_gguf_writer *w, const char *key, enum qrn_gguf_type type)
{
    return begin_value(w, (struct qrn_span){key, strlen(key)}, type);
}

static bool begin_array(struct qrn_gguf_writer *w, const char *key, enum qrn_gguf_type element,
                        uint64_t n)
{
    if (!begin(w, key, QRN_GGUF_ARRAY)) return false;
    qrn_bytes_uint(&w->values, (uint64_t)element, 4);
    qrn_bytes_uint(&w->values, n, 8);
    return true;
}

static void take_alignment(struct qrn_gguf_writer *w, uint64_t value)
{
    if (value && (value & (value - 1)) == 0 && value <= UINT32_MAX && w->n_tensors == 0)
        w->alignment = (size_t)value;
    else
        w->out.status = qrn_fail(
            &w->out.error, QRN_ERR_ARGUMENT,
            "general.alignment %" PRIu64 ": wants a power of two, before any tensor", value);
}

void qrn_gguf_write_u32(struct qrn_gguf_writer *w, const char *key, uint32_t value)
{
    if (!begin(w, key, QRN_GGUF_U32)) return;
    qrn_bytes_uint(&w->values, value, 4);
    if (strcmp(key, "general.alignment") == 0) take_alignment(w, value);
}

void qrn_gguf_write_f32(struct qrn_gguf_writer *w, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (begin(w, key, QRN_GGUF_F32)) qrn_bytes_uint(&w->values, bits, 4);
}

void qrn_gguf_write_bool(struct qrn_gguf_writer *w, const char *key, bool value)
{
    if (begin(w, key, QRN_GGUF_BOOL)) qrn_bytes_uint(&w->values, value, 1);
}

void qrn_gguf_write_string(struct qrn_gguf_writer *w, const char *key, struct qrn_span value)
{
    if (begin(w, key, QRN_GGUF_STRING)) put_string(&w->values, value.bytes, value.n_bytes);
}

void qrn_gguf_write_i32s(struct qrn_gguf_writer *w, const char *key, const int32_t *v, uint64_t n)
{
    if (!begin_array(w, key, QRN_GGUF_I32, n)) return;
    for (uint64_t i = 0; i < n; i++) qrn_bytes_uint(&w->values, (uint32_t)v[i], 4);
}

void qrn_gguf_write_bools(struct qrn_gguf_writer *w, const char *key, const bool *v, uint64_t n)
{
    if (!begin_array(w, key, QRN_GGUF_BOOL, n)) return;
    for (uint64_t i = 0; i < n; i++) qrn_bytes_uint(&w->values, v[i], 1);
}

void qrn_gguf_write_strings(struct qrn_gguf_writer *w, const char *key, const struct qrn_span *v,
                            uint64_t n)
{
    if (!begin_array(w, key, QRN_GGUF_STRING, n)) return;
    for (uint64_t i = 0; i < n; i++) put_string(&w->values, v[i].bytes, v[i].n_bytes);
}

/* Bytes of an array's elements, as they stand in the file. */
static size_t array_bytes(const struct qrn_gguf_value *v)
{
    if (v->element != QRN_GGUF_STRING)
        return (size_t)v->as.array.n * qrn_gguf_scalar_bytes(v->element);
    size_t n_bytes = 0;
    for (uint64_t i = 0; i < v->as.array.n; i++)
        n_bytes += 8 + (size_t)qrn_load_le(v->as.array.bytes + n_bytes, 8);
    return n_bytes;
}

void qrn_gguf_write_value(struct qrn_gguf_writer *w, const struct qrn_gguf_value *v)
{
    static const char alignment[] = "general.alignment";
    if (!begin_value(w, v->key, v->type)) return;
    struct qrn_bytes *b = &w->values;
    switch (v->type) {
    case QRN_GGUF_STRING:
        put_string(b, v->as.string.bytes, v->as.string.n_bytes);
        break;
    case QRN_GGUF_ARRAY:
        qrn_bytes_uint(b, (uint64_t)v->element, 4);
        qrn_bytes_uint(b, v->as.array.n, 8);
        qrn_bytes_append(b, v->as.array.bytes, array_bytes(v));
        break;
    case QRN_GGUF_F32: {
        const float f = (float)v->as.f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        qrn_bytes_uint(b, bits, 4);
        break;
    }
    default: /* integers, bool and F64: the 8 bytes of the union, cut to the type's size */
        qrn_bytes_uint(b, v->as.u, qrn_gguf_scalar_bytes(v->type));
        break;
    }
    if (v->key.n_bytes == sizeof alignment - 1 &&
        memcmp(v->key.bytes, alignment, sizeof alignment - 1) == 0)
        take_alignment(w, v->as.u);
}

/* The bytes of a tensor, or false. */
static bool tensor_bytes(const struct qrn_dtype_info *info, int n_dims, const int64_t *shape,
                         size_t *out)
{
    size_t n_rows = 1;
    const int64_t row = n_dims ? shape[n_dims - 1] : 1;
    if (row < 0 || row % info->block_elements != 0) return false;
    for (int i = 0; i < n_dims - 1; i++)
        if (shape[i] < 0 || !qrn_mul_size(n_rows, (size_t)shape[i], &n_rows)) return false;
    size_t n = (size_t)(row / info->block_elements);
    return qrn_mul_size(n, (size_t)info->block_bytes, &n) && qrn_mul_size(n, n_rows, out) &&
           *out <= SIZE_MAX / 4;
}

static enum qrn_status check_tensor(const struct qrn_gguf_writer *w, const char *name,
                                    const struct qrn_dtype_info *info, int n_dims,
                                    const int64_t *shape, size_t *n_bytes, struct qrn_error *err)
{
    const size_t n_name = strlen(name);
    const struct qrn_quoted quoted = qrn_quote(name, n_name);
    if (w->in_data)
        return qrn_fail(err, QRN_ERR_STATE, "tensor %s is announced after tensor data",
                        quoted.text);
    if (n_name >= QRN_GGUF_MAX_NAME)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "tensor %s: the name has %zu bytes, the limit is %d",
                        quoted.text, n_name, QRN_GGUF_MAX_NAME - 1);
    if (!info || info->gguf_id < 0)
        return qrn_fail(err, QRN_ERR_DTYPE, "tensor %s: type %s cannot be in a GGUF file",
                        quoted.text, info ? info->name : "unknown");
    if (n_dims < 0 || n_dims > QRN_GGUF_MAX_DIMS)
        return qrn_fail(err, QRN_ERR_SHAPE, "tensor %s has %d dimensions, the limit is %d",
                        quoted.text, n_dims, QRN_GGUF_MAX_DIMS);
    if (!tensor_bytes(info, n_dims, shape, n_bytes))
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "tensor %s: rows are not whole blocks of %s, or it is too large",
                        quoted.text, info->name);
    return QRN_OK;
}

void qrn_gguf_write_tensor(struct qrn_gguf_writer *w, const char *name, enum qrn_dtype dtype,
                           int n_dims, const int64_t *shape)
{
    if (!usable(w)) return;
    const struct qrn_dtype_info *info = qrn_dtype_info(dtype);
    size_t n_bytes = 0;
    w->out.status = check_tensor(w, name, info, n_dims, shape, &n_bytes, &w->out.error);
    if (!usable(w)) return;
    put_string(&w->infos, name, strlen(name));
    qrn_bytes_uint(&w->infos, n_dims ? (uint64_t)n_dims : 1, 4);
    if (n_dims == 0) qrn_bytes_uint(&w->infos, 1, 8); /* scalars have one dimension there */
    for (int i = n_dims - 1; i >= 0; i--) qrn_bytes_uint(&w->infos, (uint64_t)shape[i], 8);
    qrn_bytes_uint(&w->infos, (uint64_t)info->gguf_id, 4);
    qrn_bytes_uint(&w->infos, w->offset, 8);
    qrn_bytes_uint(&w->sizes, n_bytes, 8);
    w->offset += n_bytes + padding(n_bytes, w->alignment);
    w->n_tensors++;
}

/* The current tensor has got all its bytes: pads it and goes to the next that wants some. */
static void next_tensor(struct qrn_gguf_writer *w)
{
    while (w->n_missing == 0 && w->i_tensor < w->n_tensors) {
        const size_t n_bytes = (size_t)qrn_load_le(w->sizes.bytes + 8 * w->i_tensor, 8);
        qrn_output_zeros(&w->out, padding(n_bytes, w->alignment));
        if (++w->i_tensor < w->n_tensors)
            w->n_missing = qrn_load_le(w->sizes.bytes + 8 * w->i_tensor, 8);
    }
}

static void write_header(struct qrn_gguf_writer *w)
{
    w->in_data = true;
    struct qrn_bytes head = {.allocator = w->allocator};
    qrn_bytes_append(&head, "GGUF", 4);
    qrn_bytes_uint(&head, 3, 4);
    qrn_bytes_uint(&head, w->n_tensors, 8);
    qrn_bytes_uint(&head, w->n_values, 8);
    if (head.failed || w->values.failed || w->infos.failed || w->sizes.failed) {
        w->out.status = qrn_fail_memory(&w->out.error, w->values.n_bytes + w->infos.n_bytes,
                                        "the header of a GGUF file");
    } else {
        qrn_output_write(&w->out, head.bytes, head.n_bytes);
        qrn_output_write(&w->out, w->values.bytes, w->values.n_bytes);
        qrn_output_write(&w->out, w->infos.bytes, w->infos.n_bytes);
        qrn_output_zeros(
            &w->out, padding(head.n_bytes + w->values.n_bytes + w->infos.n_bytes, w->alignment));
        if (w->n_tensors) w->n_missing = qrn_load_le(w->sizes.bytes, 8);
        next_tensor(w);
    }
    qrn_bytes_free(&head);
}

void qrn_gguf_write_data(struct qrn_gguf_writer *w, const void *bytes, size_t n_bytes)
{
    const uint8_t *at = bytes;
    if (usable(w) && !w->in_data) write_header(w);
    while (n_bytes && usable(w)) {
        if (w->i_tensor == w->n_tensors) {
            w->out.status =
                qrn_fail(&w->out.error, QRN_ERR_ARGUMENT,
                         "%zu bytes more than the %" PRIu64 " tensors have", n_bytes, w->n_tensors);
            return;
        }
        const size_t n = n_bytes < w->n_missing ? n_bytes : (size_t)w->n_missing;
        qrn_output_write(&w->out, at, n);
        at += n;
        n_bytes -= n;
        w->n_missing -= n;
        if (w->n_missing == 0) next_tensor(w);
    }
}

enum qrn_status qrn_gguf_writer_status(const struct qrn_gguf_writer *w)
{
    return w->out.status;
}

enum qrn_status qrn_gguf_writer_finish(struct qrn_gguf_writer *w, struct qrn_error *err)
{
    if (usable(w) && !w->in_data) write_header(w);
    if (usable(w) && w->i_tensor < w->n_tensors)
        w->out.status = qrn_fail(&w->out.error, QRN_ERR_STATE,
                                 "tensor %" PRIu64 " of %" PRIu64 " still wants %" PRIu64 " bytes",
                                 w->i_tensor + 1, w->n_tensors, w->n_missing);
    const enum qrn_status s = qrn_output_finish(&w->out, err);
    const struct qrn_allocator allocator = w->allocator;
    qrn_bytes_free(&w->values);
    qrn_bytes_free(&w->infos);
    qrn_bytes_free(&w->sizes);
    qrn_free(&allocator, w, sizeof *w);
    return s;
}

void qrn_gguf_writer_discard(struct qrn_gguf_writer *w)
{
    if (usable(w)) w->out.status = QRN_ERR_CANCELLED;
    (void)qrn_gguf_writer_finish(w, NULL);
}
