/* SPDX-License-Identifier: MIT
 * Named tensors of one or more files, whatever the container. */
#include "formats/archive.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

#define NAME_BLOCK_BYTES 4096

/* Names one after the other: one allocation for many. */
struct qrn_name_block {
    struct qrn_name_block *next;
    size_t n_bytes, n_used; /* of bytes */
    char bytes[];
};

void qrn_archive_init(struct qrn_archive *archive, const struct qrn_host *host)
{
    *archive = (struct qrn_archive){0};
    if (host) archive->allocator = host->allocator;
}

void qrn_archive_free(struct qrn_archive *archive)
{
    struct qrn_name_block *next;
    for (struct qrn_name_block *block = archive->names; block; block = next) {
        next = block->next;
        qrn_free(&archive->allocator, block, sizeof *block + block->n_bytes);
    }
    qrn_free(&archive->allocator, archive->tensors, archive->n_reserved * sizeof *archive->tensors);
    *archive = (struct qrn_archive){0};
}

enum qrn_status qrn_archive_reserve(struct qrn_archive *archive, size_t n_more,
                                    struct qrn_error *err)
{
    size_t n, n_bytes;
    if (!qrn_add_size(archive->n_tensors, n_more, &n) ||
        !qrn_mul_size(n, sizeof *archive->tensors, &n_bytes))
        return qrn_fail_memory(err, SIZE_MAX, "the list of tensors");
    if (n <= archive->n_reserved) return QRN_OK;
    struct qrn_archive_tensor *tensors =
        qrn_realloc(&archive->allocator, archive->tensors,
                    archive->n_reserved * sizeof *archive->tensors, n_bytes);
    if (!tensors) return qrn_fail_memory(err, n_bytes, "the list of tensors");
    archive->tensors = tensors;
    archive->n_reserved = n;
    return QRN_OK;
}

const char *qrn_archive_text(struct qrn_archive *archive, const char *bytes, size_t n)
{
    struct qrn_name_block *block = archive->names;
    if (!block || block->n_bytes - block->n_used <= n) {
        size_t n_block = NAME_BLOCK_BYTES - sizeof *block, n_alloc;
        if (n >= n_block && !qrn_add_size(n, 1, &n_block)) return NULL;
        if (!qrn_add_size(n_block, sizeof *block, &n_alloc)) return NULL;
        block = qrn_alloc(&archive->allocator, n_alloc);
        if (!block) return NULL;
        *block = (struct qrn_name_block){.next = archive->names, .n_bytes = n_block};
        archive->names = block;
    }
    char *text = block->bytes + block->n_used;
    if (n) memcpy(text, bytes, n);
    text[n] = '\0';
    block->n_used += n + 1;
    return text;
}

enum qrn_status qrn_archive_add(struct qrn_archive *archive, const char *name, size_t n_name,
                                const struct qrn_archive_tensor *tensor, struct qrn_error *err)
{
    if (archive->n_tensors == archive->n_reserved)
        QRN_TRY(qrn_archive_reserve(archive, archive->n_tensors ? archive->n_tensors : 16, err));
    const char *copy = qrn_archive_text(archive, name, n_name);
    if (!copy) return qrn_fail_memory(err, n_name, "the name of a tensor");
    archive->tensors[archive->n_tensors] = *tensor;
    archive->tensors[archive->n_tensors++].name = copy;
    return QRN_OK;
}

static int compare_data(const void *pa, const void *pb)
{
    const struct qrn_archive_tensor *a = pa, *b = pb;
    const uintptr_t at_a = (uintptr_t)a->data, at_b = (uintptr_t)b->data;
    if (at_a != at_b) return at_a < at_b ? -1 : 1;
    return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

static int compare_names(const void *pa, const void *pb)
{
    const struct qrn_archive_tensor *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

static void order(struct qrn_archive *archive, size_t first,
                  int (*compare)(const void *, const void *))
{
    if (archive->n_tensors > first + 1)
        qsort(archive->tensors + first, archive->n_tensors - first, sizeof *archive->tensors,
              compare);
}

void qrn_archive_order_by_data(struct qrn_archive *archive, size_t first)
{
    order(archive, first, compare_data);
}

enum qrn_status qrn_archive_sort(struct qrn_archive *archive, struct qrn_error *err)
{
    order(archive, 0, compare_names);
    for (size_t i = 1; i < archive->n_tensors; i++) {
        const char *name = archive->tensors[i].name;
        if (strcmp(name, archive->tensors[i - 1].name) == 0)
            return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s occurs twice",
                            qrn_quote(name, strlen(name)).text);
    }
    return QRN_OK;
}

static int compare_key(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct qrn_archive_tensor *)tensor)->name);
}

const struct qrn_archive_tensor *qrn_archive_find(const struct qrn_archive *archive,
                                                  const char *name)
{
    if (archive->n_tensors == 0) return NULL;
    return bsearch(name, archive->tensors, archive->n_tensors, sizeof *archive->tensors,
                   compare_key);
}
