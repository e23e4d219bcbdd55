/* SPDX-License-Identifier: MIT
 * The tokens of a tokenizer: by id, and ordinary ones by what they stand for. */
#ifndef QUERN_TEXT_VOCAB_H
#define QUERN_TEXT_VOCAB_H

#include <quern/text.h>
#include "base/error.h"

struct qrn_vocab_token {
    size_t offset; /* of its bytes in the pool */
    uint32_t n_bytes;
    uint8_t type;    /* qrn_token_type */
    bool is_literal; /* not written in the alphabet */
};

struct qrn_vocab {
    struct qrn_vocab_token *tokens;
    size_t n_tokens; /* the highest id + 1 */
    char *pool;
    size_t n_pool, n_pool_reserved;
    int32_t *slots; /* hash table of ids, -1: empty; linear probing */
    size_t n_slots; /* a power of two */
    int32_t byte_ids[256]; /* the token of each single byte, or -1 */
    size_t n_longest;      /* bytes of the longest token */
    struct qrn_allocator allocator;
};

/* Makes room for ids 0 .. n_tokens - 1, all QRN_TOKEN_NONE, and n_pool bytes.  The struct was zeros
 * but for the allocator; free it also after a failure. */
enum qrn_status qrn_vocab_init(struct qrn_vocab *v, size_t n_tokens, size_t n_pool,
                               struct qrn_error *err);
void qrn_vocab_free(struct qrn_vocab *v);

/* Says what id is; text as in a vocabulary file: characters of the alphabet, or literal for CONTROL
 * and USER_DEFINED.  May be called again for the same id; all texts together fit in n_pool. */
enum qrn_status qrn_vocab_set(struct qrn_vocab *v, size_t id, struct qrn_span text,
                              enum qrn_token_type type, struct qrn_error *err);

/* Call once after all qrn_vocab_set: makes what the functions below need. */
enum qrn_status qrn_vocab_index(struct qrn_vocab *v, struct qrn_error *err);

struct qrn_span qrn_vocab_bytes(const struct qrn_vocab *v, size_t id);

/* The lowest id of an ordinary token that stands for these bytes (else of a USER_DEFINED one, which
 * merges may make too), or -1. */
int32_t qrn_vocab_find(const struct qrn_vocab *v, struct qrn_span bytes);

/* The same for text as in a vocabulary file; scratch has text.n_bytes bytes. */
int32_t qrn_vocab_find_text(const struct qrn_vocab *v, struct qrn_span text, char *scratch);

#endif
