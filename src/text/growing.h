/* SPDX-License-Identifier: MIT
 * Memory that grows: the lists of text.h, and working memory that is kept from word to word. */
#ifndef QUERN_TEXT_GROWING_H
#define QUERN_TEXT_GROWING_H

#include <quern/text.h>
#include "base/error.h"

/* Make room for n more; the first time, the memory comes from allocator. */
enum qrn_status qrn_token_list_reserve(struct qrn_token_list *list, size_t n,
                                       const struct qrn_allocator *allocator,
                                       struct qrn_error *err);
/* Room for a NUL besides. */
enum qrn_status qrn_string_reserve(struct qrn_string *string, size_t n,
                                   const struct qrn_allocator *allocator, struct qrn_error *err);

/* Working memory without a type.  Starts as zeros, with its allocator set. */
struct qrn_scratch {
    void *memory;
    size_t n_bytes;
    const struct qrn_allocator *allocator;
};

/* At least n items of item_bytes in s->memory; what was there is kept. */
enum qrn_status qrn_scratch_reserve(struct qrn_scratch *s, size_t n, size_t item_bytes,
                                    struct qrn_error *err);
void qrn_scratch_free(struct qrn_scratch *s);

#endif
