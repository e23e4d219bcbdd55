/* SPDX-License-Identifier: MIT
 * safetensors: single files. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/quote.h"
#include "formats/reader.h"
#include "formats/safetensors_read.h"

#define MAX_HEADER_BYTES 100000000 /* the format's own limit */
#define MAX_DTYPE_NAME   32

static const struct {
    const char *name;
    enum qrn_dtype dtype;
} dtypes[] = {
    {"F64", QRN_F64},         {"F32", QRN_F32},         {"F16", QRN_F16},
    {"BF16", QRN_BF16},       {"I64", QRN_I64},         {"I32", QRN_I32},
    {"I16", QRN_I16},         {"I8", QRN_I8},           {"U64", QRN_U64},
    {"U32", QRN_U32},         {"U16", QRN_U16},         {"U8", QRN_U8},
    {"BOOL", QRN_BOOL},       {"F8_E4M3", QRN_F8_E4M3}, {"F8_E5M2", QRN_F8_E5M2},
    {"F8_E8M0", QRN_F8_E8M0},
};

const char *qrn_safetensors_dtype_name(enum qrn_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return NULL;
}

static enum qrn_status take_dtype(const struct qrn_json_value *value, const char *quoted,
                                  struct qrn_archive *archive, struct qrn_archive_tensor *t,
                                  struct qrn_error *err)
{
    if (!qrn_json_is(value, QRN_JSON_STRING))
        return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s: dtype is missing or not a string", quoted);
    const char *name = value->as.string;
    t->dtype = QRN_DTYPE_COUNT;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            t->dtype = dtypes[i].dtype;
            t->type_name = dtypes[i].name;
            return QRN_OK;
        }
    const size_t n = value->n;
    if (n > MAX_DTYPE_NAME)
        return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s: dtype %s has %zu bytes, the limit is %d",
                        quoted, qrn_quote(name, n).text, n, MAX_DTYPE_NAME);
    t->type_name = qrn_archive_text(archive, name, n);
    return t->type_name ? QRN_OK : qrn_fail_memory(err, n, "the name of a type");
}

/* Dimensions, and the number of elements in *n_elements. */
static enum qrn_status take_shape(const struct qrn_json_value *value, const char *quoted,
                                  struct qrn_archive_tensor *t, size_t *n_elements,
                                  struct qrn_error *err)
{
    if (!qrn_json_is(value, QRN_JSON_ARRAY))
        return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s: shape is missing or not an array", quoted);
    const size_t n_dims = value->n;
    if (n_dims > QRN_ARCHIVE_MAX_DIMS)
        return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s has %zu dimensions, the limit is %d",
                        quoted, n_dims, QRN_ARCHIVE_MAX_DIMS);
    t->n_dims = (int)n_dims;
    *n_elements = 1;
    for (size_t i = 0; i < n_dims; i++) {
        const struct qrn_json_value *dim = value + 1 + i;
        if (dim->type != QRN_JSON_INTEGER || dim->as.integer < 0)
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "tensor %s: shape[%zu] is not an integer of 0 or more", quoted, i);
        t->shape[i] = dim->as.integer;
        if ((uint64_t)t->shape[i] > SIZE_MAX ||
            !qrn_mul_size(*n_elements, (size_t)t->shape[i], n_elements) || *n_elements > INT64_MAX)
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "tensor %s: the number of elements overflows at shape[%zu] = %" PRId64,
                            quoted, i, t->shape[i]);
    }
    return QRN_OK;
}

static enum qrn_status take_offsets(const struct qrn_json_value *value, const char *quoted,
                                    const uint8_t *data, size_t n_data,
                                    struct qrn_archive_tensor *t, struct qrn_error *err)
{
    if (!qrn_json_is(value, QRN_JSON_ARRAY) || value->n != 2 || value[1].type != QRN_JSON_INTEGER ||
        value[2].type != QRN_JSON_INTEGER)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "tensor %s: data_offsets is missing or not two integers", quoted);
    const int64_t begin = value[1].as.integer, end = value[2].as.integer;
    if (begin < 0 || end < begin || (uint64_t)end > n_data)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "tensor %s: data_offsets [%" PRId64 ", %" PRId64 "] are not inside the %zu "
                        "bytes of data; is the file cut short?",
                        quoted, begin, end, n_data);
    t->data = data + begin;
    t->n_bytes = (size_t)(end - begin);
    return QRN_OK;
}

static enum qrn_status add_tensor(const char *name, const struct qrn_json_value *entry,
                                  const uint8_t *data, size_t n_data, int i_file,
                                  struct qrn_archive *archive, struct qrn_error *err)
{
    const struct qrn_quoted quoted = qrn_quote(name, strlen(name));
    if (entry->type != QRN_JSON_OBJECT)
        return qrn_fail(err, QRN_ERR_FORMAT, "the entry of tensor %s is not an object",
                        quoted.text);
    struct qrn_archive_tensor t = {.i_file = i_file};
    size_t n_elements, n_bytes;
    QRN_TRY(take_dtype(qrn_json_member(entry, "dtype"), quoted.text, archive, &t, err));
    QRN_TRY(take_shape(qrn_json_member(entry, "shape"), quoted.text, &t, &n_elements, err));
    QRN_TRY(
        take_offsets(qrn_json_member(entry, "data_offsets"), quoted.text, data, n_data, &t, err));
    if (t.dtype != QRN_DTYPE_COUNT) {
        const size_t each = (size_t)qrn_dtype_info(t.dtype)->block_bytes;
        if (!qrn_mul_size(n_elements, each, &n_bytes))
            return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s: the size in bytes overflows",
                            quoted.text);
        if (n_bytes != t.n_bytes)
            return qrn_fail(
                err, QRN_ERR_FORMAT,
                "tensor %s: %zu elements of %s take %zu bytes, but data_offsets span %zu",
                quoted.text, n_elements, t.type_name, n_bytes, t.n_bytes);
    }
    return qrn_archive_add(archive, name, strlen(name), &t, err);
}

/* The tensors must tile the data: no overlap, no hole, nothing behind the last. */
static enum qrn_status check_tiling(struct qrn_archive *archive, size_t first, const uint8_t *data,
                                    size_t n_data, struct qrn_error *err)
{
    qrn_archive_order_by_data(archive, first);
    const uint8_t *at = data;
    for (size_t i = first; i < archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &archive->tensors[i];
        if (t->data != at)
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "tensor %s begins at byte %zu of the data, %s byte %zu",
                            qrn_quote(t->name, strlen(t->name)).text, (size_t)(t->data - data),
                            t->data < at ? "inside the one that ends at" : "behind a hole from",
                            (size_t)(at - data));
        at = t->data + t->n_bytes;
    }
    if (at != data + n_data)
        return qrn_fail(err, QRN_ERR_FORMAT, "%zu bytes of data belong to no tensor",
                        (size_t)(data + n_data - at));
    return QRN_OK;
}

static enum qrn_status check_metadata(const struct qrn_json_value *metadata, struct qrn_error *err)
{
    if (metadata->type != QRN_JSON_OBJECT)
        return qrn_fail(err, QRN_ERR_FORMAT, "__metadata__ is not an object");
    const struct qrn_json_value *key = metadata + 1;
    for (uint32_t i = 0; i < metadata->n; i++, key = qrn_json_next(key + 1))
        if (key[1].type != QRN_JSON_STRING)
            return qrn_fail(err, QRN_ERR_FORMAT, "__metadata__: the value of %s is not a string",
                            qrn_quote(key->as.string, key->n).text);
    return QRN_OK;
}

static enum qrn_status add_all(const struct qrn_json_value *header, const uint8_t *data,
                               size_t n_data, int i_file, struct qrn_archive *archive,
                               struct qrn_error *err)
{
    const size_t first = archive->n_tensors;
    QRN_TRY(qrn_archive_reserve(archive, header->n, err));
    const struct qrn_json_value *key = header + 1;
    for (uint32_t i = 0; i < header->n; i++, key = qrn_json_next(key + 1)) {
        if (strcmp(key->as.string, "__metadata__") == 0)
            QRN_TRY(check_metadata(key + 1, err));
        else
            QRN_TRY(add_tensor(key->as.string, key + 1, data, n_data, i_file, archive, err));
    }
    return check_tiling(archive, first, data, n_data, err);
}

static enum qrn_status read_file(const struct qrn_file *file, int i_file,
                                 const struct qrn_host *host, struct qrn_archive *archive,
                                 struct qrn_error *err)
{
    struct qrn_reader r = {file->bytes, file->bytes + file->n_bytes, false};
    const uint64_t n_header = qrn_reader_u64(&r);
    if (r.failed)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "not a safetensors file: %zu bytes, wants 8 and a header", file->n_bytes);
    if (n_header > MAX_HEADER_BYTES)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "not a safetensors file: a header of %" PRIu64 " bytes, the limit is %d",
                        n_header, MAX_HEADER_BYTES);
    const uint8_t *text = qrn_reader_take(&r, n_header);
    if (!text)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "the header of %" PRIu64 " bytes ends outside the file of %zu", n_header,
                        file->n_bytes);
    if (n_header == 0 || text[0] != '{')
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "not a safetensors file: the header does not start with '{'");
    struct qrn_json header;
    QRN_TRY(
        qrn_json_parse(text, (size_t)n_header, qrn_json_budget(file->n_bytes), host, &header, err));
    const enum qrn_status s =
        add_all(header.values, r.at, qrn_reader_left(&r), i_file, archive, err);
    qrn_json_free(&header);
    return s;
}

enum qrn_status qrn_safetensors_add_file(struct qrn_safetensors *st, size_t i, const char *path,
                                         const struct qrn_source *source,
                                         const struct qrn_host *host, struct qrn_error *err)
{
    struct qrn_file *file = &st->files[i];
    QRN_TRY(source ? qrn_file_open_source(source, path, host, file, err)
                   : qrn_file_open(path, host, file, err));
    const enum qrn_status s = read_file(file, (int)i, host, &st->archive, err);
    return s == QRN_OK ? s : qrn_error_prefix(err, s, "%s", path);
}

enum qrn_status qrn_safetensors_open(const char *path, const struct qrn_source *source,
                                     const struct qrn_host *host, struct qrn_safetensors *st,
                                     struct qrn_error *err)
{
    *st = (struct qrn_safetensors){0};
    if (host) st->allocator = host->allocator;
    qrn_archive_init(&st->archive, host);
    enum qrn_status s = QRN_OK;
    st->files = qrn_alloc_zeroed(&st->allocator, sizeof *st->files);
    if (!st->files) {
        s = qrn_fail_memory(err, sizeof *st->files, "a file");
    } else {
        st->n_files = 1;
        s = qrn_safetensors_add_file(st, 0, path, source, host, err);
    }
    if (s == QRN_OK) {
        s = qrn_archive_sort(&st->archive, err);
        if (s != QRN_OK) s = qrn_error_prefix(err, s, "%s", path);
    }
    if (s != QRN_OK) qrn_safetensors_close(st);
    return s;
}

void qrn_safetensors_close(struct qrn_safetensors *st)
{
    qrn_archive_free(&st->archive);
    for (size_t i = 0; i < st->n_files; i++) qrn_file_close(&st->files[i]);
    qrn_free(&st->allocator, st->files, st->n_files * sizeof *st->files);
    *st = (struct qrn_safetensors){0};
}
