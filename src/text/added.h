/* SPDX-License-Identifier: MIT
 * Finding added tokens ("<|im_end|>") in raw text. */
#ifndef QUERN_TEXT_ADDED_H
#define QUERN_TEXT_ADDED_H

#include <stdint.h>
#include <string.h>
#include "text/vocab.h"

#define QRN_ADDED_MAX_BYTES 1024

struct qrn_added_token {
    struct qrn_span bytes; /* not empty */
    int32_t id;
    bool is_control;
};

/* Sorted by bytes; of the same bytes there is one USER_DEFINED and one CONTROL token at most, in
 * this order.  Immutable once sorted. */
struct qrn_added {
    struct qrn_added_token *tokens;
    size_t n_tokens, n_reserved;
    size_t first[257];  /* those that begin with byte b are first[b] .. first[b + 1] - 1 */
    uint8_t begins[256]; /* 1: a USER_DEFINED token begins with the byte, 2: a CONTROL one */
    struct qrn_allocator allocator;
};

/* Makes room for n tokens.  The struct was zeros but for the allocator; free it also after a
 * failure. */
enum qrn_status qrn_added_init(struct qrn_added *a, size_t n, struct qrn_error *err);
void qrn_added_free(struct qrn_added *a);

/* Adds a token; bytes must stay.  Empty ones are never found.
 * Errors: QRN_ERR_UNSUPPORTED: more than QRN_ADDED_MAX_BYTES. */
enum qrn_status qrn_added_add(struct qrn_added *a, struct qrn_span bytes, int32_t id,
                              bool is_control, struct qrn_error *err);
/* Call once, after all have been added.  Of equal ones the lowest id stays. */
void qrn_added_sort(struct qrn_added *a);

/* The id of the token that is exactly these bytes, or -1. */
int32_t qrn_added_find(const struct qrn_added *a, struct qrn_span bytes);

/* The first token in text at or after from: the leftmost, of those the longest; CONTROL tokens only
 * if with_control.  NULL if there is none. */
const struct qrn_added_token *qrn_added_search(const struct qrn_added *a, struct qrn_span text,
                                               size_t from, bool with_control, size_t *at);

#endif
