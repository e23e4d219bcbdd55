/* SPDX-License-Identifier: MIT
 * GGUF: the list of tensors of one file, and where their bytes lie. */
#include "formats/gguf_read.h"

#include <inttypes.h>
#include <stdio.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

/* Ids that name a type whose layout we do not have: most were removed from ggml. */
static const struct {
    uint32_t id;
    const char *name;
} nameless[] = {
    {4, "q4_2 (removed)"},        {5, "q4_3 (removed)"},        {31, "q4_0_4_4 (removed)"},
    {32, "q4_0_4_8 (removed)"},   {33, "q4_0_8_8 (removed)"},   {36, "iq4_nl_4_4 (removed)"},
    {37, "iq4_nl_4_8 (removed)"}, {38, "iq4_nl_8_8 (removed)"},
};

/* One entry of the list as it stands in the file. */
struct entry {
    struct qrn_span name;
    uint32_t n_dims;
    uint64_t ne[QRN_GGUF_MAX_DIMS]; /* innermost first */
    uint32_t type;
    uint64_t offset; /* into the data section */
};

static enum qrn_status read_entry(struct qrn_reader *r, struct entry *e, struct qrn_error *err)
{
    const uint64_t n_name = qrn_reader_u64(r);
    if (!r->failed && n_name >= QRN_GGUF_MAX_NAME)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "the name of a tensor has %" PRIu64 " bytes, the limit is %d", n_name,
                        QRN_GGUF_MAX_NAME - 1);
    const uint8_t *name = qrn_reader_take(r, n_name);
    e->n_dims = qrn_reader_u32(r);
    if (!r->failed) e->name = (struct qrn_span){(const char *)name, (size_t)n_name};
    if (!r->failed && e->n_dims > QRN_GGUF_MAX_DIMS)
        return qrn_fail(
            err, QRN_ERR_FORMAT, "tensor %s has %" PRIu32 " dimensions, the limit is %d",
            qrn_quote(e->name.bytes, e->name.n_bytes).text, e->n_dims, QRN_GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < e->n_dims && !r->failed; i++) e->ne[i] = qrn_reader_u64(r);
    e->type = qrn_reader_u32(r);
    e->offset = qrn_reader_u64(r);
    if (r->failed) return qrn_fail(err, QRN_ERR_FORMAT, "ends inside the list of tensors");
    return QRN_OK;
}

/* The number of elements, if every product on the way to it fits. */
static bool count_elements(const struct entry *e, int64_t *out)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < e->n_dims; i++) {
        if (e->ne[i] > INT64_MAX || (e->ne[i] && n > INT64_MAX / e->ne[i])) return false;
        n *= e->ne[i];
    }
    *out = (int64_t)n;
    return true;
}

static enum qrn_status name_type(struct qrn_archive *archive, uint32_t id, const char **out,
                                 struct qrn_error *err)
{
    for (size_t i = 0; i < sizeof nameless / sizeof *nameless; i++)
        if (nameless[i].id == id) {
            *out = nameless[i].name;
            return QRN_OK;
        }
    char text[24];
    const int n = snprintf(text, sizeof text, "type %" PRIu32, id);
    *out = qrn_archive_text(archive, text, (size_t)n);
    return *out ? QRN_OK : qrn_fail_memory(err, (size_t)n, "the name of a type");
}

/* Type, bytes and place of an entry of a known type. */
static enum qrn_status place(const struct entry *e, enum qrn_dtype dtype, int64_t n_elements,
                             size_t alignment, const uint8_t *data, size_t n_data,
                             struct qrn_archive_tensor *t, struct qrn_error *err)
{
    const struct qrn_dtype_info *info = qrn_dtype_info(dtype);
    const struct qrn_quoted name = qrn_quote(e->name.bytes, e->name.n_bytes);
    const uint64_t row = e->n_dims ? e->ne[0] : 1;
    if (row % (uint64_t)info->block_elements != 0)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "tensor %s: rows of %" PRIu64 " are not whole blocks of %" PRId32 " (%s)",
                        name.text, row, info->block_elements, info->name);
    size_t n_bytes;
    const uint64_t n_blocks = (uint64_t)n_elements / (uint64_t)info->block_elements;
    if (n_blocks > SIZE_MAX || !qrn_mul_size((size_t)n_blocks, (size_t)info->block_bytes, &n_bytes))
        return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s: the size in bytes overflows", name.text);
    if (e->offset % alignment != 0)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "tensor %s is at offset %" PRIu64
                        ", which the alignment %zu does not divide",
                        name.text, e->offset, alignment);
    if (e->offset > n_data || n_bytes > n_data - (size_t)e->offset)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "tensor %s (%zu bytes at offset %" PRIu64 ") ends outside the data section "
                        "of %zu bytes; is the file cut short?",
                        name.text, n_bytes, e->offset, n_data);
    t->type_name = info->name;
    t->data = data + e->offset;
    t->n_bytes = n_bytes;
    return QRN_OK;
}

static enum qrn_status add_entry(const struct entry *e, size_t alignment, const uint8_t *data,
                                 size_t n_data, int i_file, struct qrn_archive *archive,
                                 struct qrn_error *err)
{
    const struct qrn_quoted name = qrn_quote(e->name.bytes, e->name.n_bytes);
    if (memchr(e->name.bytes, '\0', e->name.n_bytes))
        return qrn_fail(err, QRN_ERR_FORMAT, "the name of tensor %s has a NUL inside", name.text);
    int64_t n_elements;
    if (!count_elements(e, &n_elements))
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "tensor %s: the number of elements overflows (%" PRIu64 " x %" PRIu64
                        " x %" PRIu64 " x %" PRIu64 ")",
                        name.text, e->ne[0], e->ne[1], e->ne[2], e->ne[3]);
    struct qrn_archive_tensor t = {
        .dtype = qrn_dtype_from_gguf(e->type), .n_dims = (int)e->n_dims, .i_file = i_file};
    for (uint32_t i = 0; i < e->n_dims; i++) t.shape[i] = (int64_t)e->ne[e->n_dims - 1 - i];
    if (t.dtype == QRN_DTYPE_COUNT)
        QRN_TRY(name_type(archive, e->type, &t.type_name, err));
    else
        QRN_TRY(place(e, t.dtype, n_elements, alignment, data, n_data, &t, err));
    return qrn_archive_add(archive, e->name.bytes, e->name.n_bytes, &t, err);
}

static enum qrn_status check_overlaps(struct qrn_archive *archive, size_t first,
                                      struct qrn_error *err)
{
    qrn_archive_order_by_data(archive, first);
    const struct qrn_archive_tensor *before = NULL;
    for (size_t i = first; i < archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &archive->tensors[i];
        if (t->n_bytes == 0) continue;
        if (before && t->data < before->data + before->n_bytes)
            return qrn_fail(err, QRN_ERR_FORMAT, "tensors %s and %s overlap",
                            qrn_quote(before->name, strlen(before->name)).text,
                            qrn_quote(t->name, strlen(t->name)).text);
        before = t;
    }
    return QRN_OK;
}

enum qrn_status qrn_gguf_read_tensors(const struct qrn_file *file, struct qrn_gguf_part *part,
                                      int i_file, struct qrn_archive *archive,
                                      struct qrn_error *err)
{
    /* The data section starts behind the list: find its end first. */
    struct qrn_reader r = part->infos;
    struct entry e = {0};
    for (size_t i = 0; i < part->n_tensors; i++) QRN_TRY(read_entry(&r, &e, err));
    const size_t n_head = (size_t)(r.at - file->bytes);
    const size_t n_pad = (part->alignment - n_head % part->alignment) % part->alignment;
    const size_t start = n_pad > file->n_bytes - n_head ? file->n_bytes : n_head + n_pad;

    const size_t first = archive->n_tensors;
    r = part->infos;
    for (size_t i = 0; i < part->n_tensors; i++) {
        e = (struct entry){0};
        QRN_TRY(read_entry(&r, &e, err));
        QRN_TRY(add_entry(&e, part->alignment, file->bytes + start, file->n_bytes - start, i_file,
                          archive, err));
    }
    return check_overlaps(archive, first, err);
}
