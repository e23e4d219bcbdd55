/* SPDX-License-Identifier: MIT
 * Byte pair encoding: the table of merges, and how it takes a word apart. */
#ifndef QUERN_TEXT_MERGES_H
#define QUERN_TEXT_MERGES_H

#include "text/growing.h"
#include "text/vocab.h"

#define QRN_NO_MERGE UINT32_MAX

struct qrn_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank; /* its number in the file; QRN_NO_MERGE: an empty slot */
    int32_t id;    /* of the result */
};

/* A hash table with linear probing.  Immutable once filled. */
struct qrn_merges {
    struct qrn_merge *slots;
    size_t n_slots;
    struct qrn_allocator allocator;
};

/* Makes room for n merges.  The struct was zeros but for the allocator; free it also after a
 * failure. */
enum qrn_status qrn_merges_init(struct qrn_merges *m, size_t n, struct qrn_error *err);
void qrn_merges_free(struct qrn_merges *m);

/* Adds the merge of that rank; ranks ascend.  left and right as in a vocabulary file; scratch is
 * working memory.  Errors: QRN_ERR_FORMAT (a token that does not exist), QRN_ERR_MEMORY. */
enum qrn_status qrn_merges_add(struct qrn_merges *m, const struct qrn_vocab *vocab, size_t rank,
                               struct qrn_span left, struct qrn_span right,
                               struct qrn_scratch *scratch, struct qrn_error *err);
/* The same from "left right". */
enum qrn_status qrn_merges_add_line(struct qrn_merges *m, const struct qrn_vocab *vocab,
                                    size_t rank, struct qrn_span line, struct qrn_scratch *scratch,
                                    struct qrn_error *err);

/* Appends the ids of a word to list: beginning with its bytes, the adjacent pair of lowest rank is
 * merged, the leftmost of several, until no pair can be.  n log n. */
enum qrn_status qrn_merges_apply(const struct qrn_merges *m, const struct qrn_vocab *vocab,
                                 struct qrn_span word, struct qrn_scratch *scratch,
                                 struct qrn_token_list *list, struct qrn_error *err);

#endif
