/* SPDX-License-Identifier: MIT
 * Writing a safetensors file. */
#include "formats/safetensors.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/bytes.h"
#include "formats/output.h"
#include "base/quote.h"
#include "formats/safetensors_read.h"

static void put_quoted(struct qrn_bytes *b, const char *text)
{
    qrn_bytes_text(b, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            qrn_bytes_text(b, "\\");
            qrn_bytes_append(b, text, 1);
        } else if (c < 0x20) {
            char escape[8];
            (void)snprintf(escape, sizeof escape, "\\u%04x", c);
            qrn_bytes_text(b, escape);
        } else {
            qrn_bytes_append(b, text, 1);
        }
    }
    qrn_bytes_text(b, "\"");
}

static enum qrn_status check_tensor(const struct qrn_archive_tensor *t, struct qrn_error *err)
{
    const struct qrn_quoted name = qrn_quote(t->name, strlen(t->name));
    const struct qrn_dtype_info *info = qrn_dtype_info(t->dtype);
    if (!qrn_safetensors_dtype_name(t->dtype))
        return qrn_fail(err, QRN_ERR_DTYPE, "tensor %s: type %s cannot be in a safetensors file",
                        name.text, info ? info->name : "unknown");
    if (t->n_dims < 0 || t->n_dims > QRN_ARCHIVE_MAX_DIMS)
        return qrn_fail(err, QRN_ERR_SHAPE, "tensor %s has %d dimensions, the limit is %d",
                        name.text, t->n_dims, QRN_ARCHIVE_MAX_DIMS);
    size_t n_bytes = (size_t)info->block_bytes;
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] < 0 || !qrn_mul_size(n_bytes, (size_t)t->shape[i], &n_bytes))
            return qrn_fail(err, QRN_ERR_SHAPE, "tensor %s: the size in bytes overflows",
                            name.text);
    if (n_bytes != t->n_bytes)
        return qrn_fail(err, QRN_ERR_SHAPE, "tensor %s has %zu bytes of data, its shape wants %zu",
                        name.text, t->n_bytes, n_bytes);
    return QRN_OK;
}

static void put_tensor(struct qrn_bytes *b, const struct qrn_archive_tensor *t, size_t begin)
{
    put_quoted(b, t->name);
    qrn_bytes_text(b, ":{\"dtype\":\"");
    qrn_bytes_text(b, qrn_safetensors_dtype_name(t->dtype));
    qrn_bytes_text(b, "\",\"shape\":[");
    for (int i = 0; i < t->n_dims; i++) {
        if (i) qrn_bytes_text(b, ",");
        qrn_bytes_decimal(b, (uint64_t)t->shape[i]);
    }
    qrn_bytes_text(b, "],\"data_offsets\":[");
    qrn_bytes_decimal(b, begin);
    qrn_bytes_text(b, ",");
    qrn_bytes_decimal(b, begin + t->n_bytes);
    qrn_bytes_text(b, "]}");
}

static enum qrn_status make_header(const struct qrn_archive_tensor *tensors, size_t n_tensors,
                                   struct qrn_bytes *header, struct qrn_error *err)
{
    size_t offset = 0;
    qrn_bytes_text(header, "{");
    for (size_t i = 0; i < n_tensors; i++) {
        QRN_TRY(check_tensor(&tensors[i], err));
        if (i) qrn_bytes_text(header, ",");
        put_tensor(header, &tensors[i], offset);
        offset += tensors[i].n_bytes;
    }
    qrn_bytes_text(header, "}");
    while (header->n_bytes % 8 != 0 && !header->failed) qrn_bytes_text(header, " ");
    return header->failed ? qrn_fail_memory(err, header->n_bytes, "a safetensors header") : QRN_OK;
}

enum qrn_status qrn_safetensors_write(const char *path, const struct qrn_archive_tensor *tensors,
                                      size_t n_tensors, const struct qrn_host *host,
                                      struct qrn_error *err)
{
    struct qrn_bytes header = {0}, size = {0};
    struct qrn_output out;
    if (host) header.allocator = size.allocator = host->allocator;
    enum qrn_status s = make_header(tensors, n_tensors, &header, err);
    if (s == QRN_OK) s = qrn_output_open(&out, path, host, err);
    if (s == QRN_OK) {
        qrn_bytes_uint(&size, header.n_bytes, 8);
        if (size.failed) out.status = qrn_fail_memory(&out.error, 8, "a safetensors header");
        qrn_output_write(&out, size.bytes, size.n_bytes);
        qrn_output_write(&out, header.bytes, header.n_bytes);
        for (size_t i = 0; i < n_tensors; i++)
            qrn_output_write(&out, tensors[i].data, tensors[i].n_bytes);
        s = qrn_output_finish(&out, err);
    }
    qrn_bytes_free(&header);
    qrn_bytes_free(&size);
    return s;
}
