/* SPDX-License-Identifier: MIT
 * GGUF: the header and the metadata of one file. */
#include "formats/gguf_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

#define MAX_STRING_BYTES ((uint64_t)1 << 30) /* ggml's limits */
#define MAX_ARRAY        ((uint64_t)1 << 30)
/* Far above any model; they bound what a file of nothing but entries makes us allocate. */
#define MAX_VALUES ((uint64_t)1 << 20)
/* The least that an entry takes in a file. */
#define MIN_VALUE_BYTES  (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 4 + 4 + 8)

#define DEFAULT_ALIGNMENT 32

size_t qrn_gguf_scalar_bytes(enum qrn_gguf_type type)
{
    static const uint8_t bytes[QRN_GGUF_TYPE_COUNT] = {
        [QRN_GGUF_U8] = 1,  [QRN_GGUF_I8] = 1,  [QRN_GGUF_U16] = 2, [QRN_GGUF_I16] = 2,
        [QRN_GGUF_U32] = 4, [QRN_GGUF_I32] = 4, [QRN_GGUF_F32] = 4, [QRN_GGUF_BOOL] = 1,
        [QRN_GGUF_U64] = 8, [QRN_GGUF_I64] = 8, [QRN_GGUF_F64] = 8,
    };
    return (unsigned)type < QRN_GGUF_TYPE_COUNT ? bytes[type] : 0;
}

static enum qrn_status read_version(struct qrn_reader *r, struct qrn_error *err)
{
    const uint8_t *magic = qrn_reader_take(r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return qrn_fail(err, QRN_ERR_FORMAT, "not a GGUF file: it does not start with \"GGUF\"");
    const uint32_t version = qrn_reader_u32(r);
    if (r->failed) return qrn_fail(err, QRN_ERR_FORMAT, "ends inside the header");
    if (version && (version & 0xffff) == 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "big-endian GGUF (its version reads as 0x%08" PRIx32 "); convert it to "
                        "little-endian",
                        version);
    if (version == 1)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "GGUF version 1, which had other lengths; convert the model again");
    if (version != 2 && version != 3)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "GGUF version %" PRIu32 ", wants 2 or 3",
                        version);
    return QRN_OK;
}

/* A count of entries is believed if the rest of the file could hold so many. */
static enum qrn_status check_count(const char *what, uint64_t n, uint64_t most, size_t min_bytes,
                                   size_t left, struct qrn_error *err)
{
    if (n > left / min_bytes)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "claims %" PRIu64 " %s, but only %zu bytes follow the header", n, what,
                        left);
    if (n > most)
        return qrn_fail(err, QRN_ERR_FORMAT, "has %" PRIu64 " %s, the limit is %" PRIu64, n, what,
                        most);
    return QRN_OK;
}

static bool read_string(struct qrn_reader *r, struct qrn_span *out)
{
    const uint64_t n = qrn_reader_u64(r);
    if (n > MAX_STRING_BYTES) r->failed = true;
    const uint8_t *bytes = qrn_reader_take(r, n);
    if (!bytes) return false;
    *out = (struct qrn_span){(const char *)bytes, (size_t)n};
    return true;
}

static enum qrn_status read_array(struct qrn_reader *r, struct qrn_gguf_value *v, const char *key,
                                  struct qrn_error *err)
{
    const uint32_t element = qrn_reader_u32(r);
    const uint64_t n = qrn_reader_u64(r);
    if (r->failed) return qrn_fail(err, QRN_ERR_FORMAT, "ends inside the value of key %s", key);
    if (element >= QRN_GGUF_TYPE_COUNT || element == QRN_GGUF_ARRAY)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "key %s is an array of type %" PRIu32 ", wants 0 to 12 and not an array",
                        key, element);
    const size_t each = element == QRN_GGUF_STRING ? 8 : qrn_gguf_scalar_bytes(element);
    if (n > MAX_ARRAY || n > qrn_reader_left(r) / each)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "key %s is an array of %" PRIu64 " elements, but only %zu bytes follow",
                        key, n, qrn_reader_left(r));
    v->element = (enum qrn_gguf_type)element;
    v->as.array.bytes = r->at;
    v->as.array.n = n;
    if (element != QRN_GGUF_STRING) {
        (void)qrn_reader_take(r, n * each);
        return QRN_OK;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct qrn_span ignored;
        if (!read_string(r, &ignored))
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "key %s: string %" PRIu64 " of %" PRIu64 " ends outside the file", key,
                            i, n);
    }
    return QRN_OK;
}

static int64_t sign_extend(uint64_t bits, size_t n_bytes)
{
    const uint64_t sign = (uint64_t)1 << (8 * n_bytes - 1);
    const uint64_t extended = (bits ^ sign) - sign;
    int64_t value;
    memcpy(&value, &extended, sizeof value);
    return value;
}

void qrn_gguf_read_scalar(struct qrn_reader *r, struct qrn_gguf_value *v)
{
    const size_t n_bytes = qrn_gguf_scalar_bytes(v->type);
    const uint64_t bits = qrn_reader_uint(r, n_bytes);
    switch (v->type) {
    case QRN_GGUF_I8:
    case QRN_GGUF_I16:
    case QRN_GGUF_I32:
    case QRN_GGUF_I64:
        v->as.i = sign_extend(bits, n_bytes);
        break;
    case QRN_GGUF_F32: {
        const uint32_t low = (uint32_t)bits;
        float f;
        memcpy(&f, &low, sizeof f);
        v->as.f = f;
        break;
    }
    case QRN_GGUF_F64:
        memcpy(&v->as.f, &bits, sizeof bits);
        break;
    case QRN_GGUF_BOOL:
        v->as.u = bits != 0;
        break;
    default:
        v->as.u = bits;
        break;
    }
}

static enum qrn_status read_value(struct qrn_reader *r, struct qrn_gguf_value *v,
                                  struct qrn_error *err)
{
    if (!read_string(r, &v->key))
        return qrn_fail(err, QRN_ERR_FORMAT, "a metadata key ends outside the file");
    if (v->key.n_bytes == 0) return qrn_fail(err, QRN_ERR_FORMAT, "a metadata key is empty");
    const struct qrn_quoted key = qrn_quote(v->key.bytes, v->key.n_bytes);
    const uint32_t type = qrn_reader_u32(r);
    if (type >= QRN_GGUF_TYPE_COUNT)
        return qrn_fail(err, QRN_ERR_FORMAT, "key %s has value type %" PRIu32 ", wants 0 to 12",
                        key.text, type);
    v->type = (enum qrn_gguf_type)type;
    if (v->type == QRN_GGUF_ARRAY) return read_array(r, v, key.text, err);
    if (v->type == QRN_GGUF_STRING)
        (void)read_string(r, &v->as.string);
    else
        qrn_gguf_read_scalar(r, v);
    if (r->failed)
        return qrn_fail(err, QRN_ERR_FORMAT, "the value of key %s ends outside the file", key.text);
    return QRN_OK;
}

static int compare_spans(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int c = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return c ? c : (n_a > n_b) - (n_a < n_b);
}

static int compare_values(const void *pa, const void *pb)
{
    const struct qrn_gguf_value *a = pa, *b = pb;
    return compare_spans(a->key.bytes, a->key.n_bytes, b->key.bytes, b->key.n_bytes);
}

static int compare_key(const void *key, const void *value)
{
    const struct qrn_gguf_value *v = value;
    return compare_spans(key, strlen(key), v->key.bytes, v->key.n_bytes);
}

const struct qrn_gguf_value *qrn_gguf_part_find(const struct qrn_gguf_part *part, const char *key)
{
    if (part->n_values == 0) return NULL;
    return bsearch(key, part->values, part->n_values, sizeof *part->values, compare_key);
}

static enum qrn_status sort_values(struct qrn_gguf_part *part, struct qrn_error *err)
{
    if (part->n_values > 1)
        qsort(part->values, part->n_values, sizeof *part->values, compare_values);
    for (size_t i = 1; i < part->n_values; i++)
        if (compare_values(&part->values[i - 1], &part->values[i]) == 0)
            return qrn_fail(err, QRN_ERR_FORMAT, "key %s occurs twice",
                            qrn_quote(part->values[i].key.bytes, part->values[i].key.n_bytes).text);
    return QRN_OK;
}

static enum qrn_status take_alignment(struct qrn_gguf_part *part, struct qrn_error *err)
{
    part->alignment = DEFAULT_ALIGNMENT;
    const struct qrn_gguf_value *v = qrn_gguf_part_find(part, "general.alignment");
    if (!v) return QRN_OK;
    if (v->type != QRN_GGUF_U32)
        return qrn_fail(err, QRN_ERR_FORMAT, "general.alignment has value type %d, wants 4 (u32)",
                        (int)v->type);
    if (v->as.u == 0 || (v->as.u & (v->as.u - 1)) != 0)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "general.alignment is %" PRIu64 ", wants a power of two", v->as.u);
    part->alignment = (size_t)v->as.u;
    return QRN_OK;
}

enum qrn_status qrn_gguf_read_metadata(const struct qrn_file *file,
                                       const struct qrn_allocator *allocator,
                                       struct qrn_gguf_part *part, struct qrn_error *err)
{
    *part = (struct qrn_gguf_part){0};
    struct qrn_reader r = {file->bytes, file->bytes + file->n_bytes, false};
    QRN_TRY(read_version(&r, err));
    const uint64_t n_tensors = qrn_reader_u64(&r), n_values = qrn_reader_u64(&r);
    if (r.failed) return qrn_fail(err, QRN_ERR_FORMAT, "ends inside the header");
    const size_t left = qrn_reader_left(&r);
    QRN_TRY(check_count("tensors", n_tensors, QRN_GGUF_MAX_TENSORS, MIN_TENSOR_BYTES, left, err));
    QRN_TRY(check_count("metadata keys", n_values, MAX_VALUES, MIN_VALUE_BYTES, left, err));

    part->n_tensors = (size_t)n_tensors;
    part->n_values = (size_t)n_values;
    part->values = qrn_alloc_zeroed(allocator, part->n_values * sizeof *part->values);
    if (!part->values)
        return qrn_fail_memory(err, part->n_values * sizeof *part->values, "metadata");
    enum qrn_status s = QRN_OK;
    for (size_t i = 0; i < part->n_values && s == QRN_OK; i++)
        s = read_value(&r, &part->values[i], err);
    if (s == QRN_OK) s = sort_values(part, err);
    if (s == QRN_OK) s = take_alignment(part, err);
    part->infos = r;
    if (s != QRN_OK) qrn_gguf_part_free(part, allocator);
    return s;
}

void qrn_gguf_part_free(struct qrn_gguf_part *part, const struct qrn_allocator *allocator)
{
    qrn_free(allocator, part->values, part->n_values * sizeof *part->values);
    part->values = NULL;
    part->n_values = 0;
}
