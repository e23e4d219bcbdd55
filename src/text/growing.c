/* SPDX-License-Identifier: MIT
 * Memory that grows by doubling. */
#include "text/growing.h"

#include "base/memory.h"

/* A capacity of at least n_used + n_more, twice the present one where that is enough. */
static bool grown(size_t n_reserved, size_t n_used, size_t n_more, size_t *n)
{
    if (!qrn_add_size(n_used, n_more, n)) return false;
    if (n_reserved <= SIZE_MAX / 2 && *n < 2 * n_reserved) *n = 2 * n_reserved;
    if (*n < 16) *n = 16;
    return true;
}

enum qrn_status qrn_token_list_reserve(struct qrn_token_list *list, size_t n,
                                       const struct qrn_allocator *allocator,
                                       struct qrn_error *err)
{
    if (list->n_reserved - list->n_ids >= n) return QRN_OK;
    size_t n_reserved, n_bytes;
    if (!grown(list->n_reserved, list->n_ids, n, &n_reserved) ||
        !qrn_mul_size(n_reserved, sizeof *list->ids, &n_bytes))
        return qrn_fail_memory(err, SIZE_MAX, "token ids");
    if (!list->n_reserved) list->allocator = *allocator;
    const size_t n_old_bytes = list->n_reserved * sizeof *list->ids;
    int32_t *ids = qrn_realloc(&list->allocator, list->ids, n_old_bytes, n_bytes);
    if (!ids) return qrn_fail_memory(err, n_bytes, "token ids");
    list->ids = ids;
    list->n_reserved = n_reserved;
    return QRN_OK;
}

enum qrn_status qrn_string_reserve(struct qrn_string *string, size_t n,
                                   const struct qrn_allocator *allocator, struct qrn_error *err)
{
    if (string->n_reserved - string->n_bytes > n) return QRN_OK;
    size_t n_reserved;
    if (!qrn_add_size(n, 1, &n) || !grown(string->n_reserved, string->n_bytes, n, &n_reserved))
        return qrn_fail_memory(err, SIZE_MAX, "text");
    if (!string->n_reserved) string->allocator = *allocator;
    char *bytes = qrn_realloc(&string->allocator, string->bytes, string->n_reserved, n_reserved);
    if (!bytes) return qrn_fail_memory(err, n_reserved, "text");
    string->bytes = bytes;
    string->n_reserved = n_reserved;
    return QRN_OK;
}

enum qrn_status qrn_scratch_reserve(struct qrn_scratch *s, size_t n, size_t item_bytes,
                                    struct qrn_error *err)
{
    size_t n_bytes, n_reserved;
    if (!qrn_mul_size(n, item_bytes, &n_bytes))
        return qrn_fail_memory(err, SIZE_MAX, "working memory of the tokenizer");
    if (n_bytes <= s->n_bytes) return QRN_OK;
    (void)grown(s->n_bytes, 0, n_bytes, &n_reserved);
    void *memory = qrn_realloc(s->allocator, s->memory, s->n_bytes, n_reserved);
    if (!memory) return qrn_fail_memory(err, n_reserved, "working memory of the tokenizer");
    s->memory = memory;
    s->n_bytes = n_reserved;
    return QRN_OK;
}

void qrn_scratch_free(struct qrn_scratch *s)
{
    qrn_free(s->allocator, s->memory, s->n_bytes);
    s->memory = NULL;
    s->n_bytes = 0;
}

void qrn_token_list_free(struct qrn_token_list *list)
{
    if (!list) return;
    qrn_free(&list->allocator, list->ids, list->n_reserved * sizeof *list->ids);
    *list = (struct qrn_token_list){0};
}

void qrn_string_free(struct qrn_string *string)
{
    if (!string) return;
    qrn_free(&string->allocator, string->bytes, string->n_reserved);
    *string = (struct qrn_string){0};
}
