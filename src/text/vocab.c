/* SPDX-License-Identifier: MIT
 * The tokens of a tokenizer. */
#include "text/vocab.h"

#include "base/memory.h"
#include "text/alphabet.h"
#include "text/hash.h"

enum qrn_status qrn_vocab_init(struct qrn_vocab *v, size_t n_tokens, size_t n_pool,
                               struct qrn_error *err)
{
    if (n_tokens > INT32_MAX)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%zu tokens, at most %d are possible", n_tokens,
                        INT32_MAX);
    const size_t n_bytes = n_tokens * sizeof *v->tokens;
    v->n_tokens = n_tokens;
    v->tokens = qrn_alloc_zeroed(&v->allocator, n_bytes);
    if (!v->tokens) return qrn_fail_memory(err, n_bytes, "the vocabulary");
    v->n_pool_reserved = n_pool;
    v->pool = qrn_alloc(&v->allocator, n_pool);
    if (!v->pool) return qrn_fail_memory(err, n_pool, "the vocabulary");
    return QRN_OK;
}

void qrn_vocab_free(struct qrn_vocab *v)
{
    qrn_free(&v->allocator, v->tokens, v->n_tokens * sizeof *v->tokens);
    qrn_free(&v->allocator, v->pool, v->n_pool_reserved);
    qrn_free(&v->allocator, v->slots, v->n_slots * sizeof *v->slots);
}

enum qrn_status qrn_vocab_set(struct qrn_vocab *v, size_t id, struct qrn_span text,
                              enum qrn_token_type type, struct qrn_error *err)
{
    if (text.n_bytes > UINT32_MAX || text.n_bytes > v->n_pool_reserved - v->n_pool)
        return qrn_fail(err, QRN_ERR_FORMAT, "token %zu has %zu bytes", id, text.n_bytes);
    struct qrn_vocab_token *const token = &v->tokens[id];
    char *const bytes = v->pool + v->n_pool;
    size_t n_bytes = 0;
    const bool is_added = type == QRN_TOKEN_CONTROL || type == QRN_TOKEN_USER_DEFINED;
    const bool is_literal = is_added || !qrn_alphabet_bytes(text, bytes, &n_bytes);
    if (type == QRN_TOKEN_UNUSED) {
        n_bytes = 0;
    } else if (is_literal) {
        n_bytes = text.n_bytes;
        if (n_bytes) memcpy(bytes, text.bytes, n_bytes);
    }
    *token = (struct qrn_vocab_token){
        .offset = v->n_pool,
        .n_bytes = (uint32_t)n_bytes,
        .type = (uint8_t)type,
        .is_literal = is_literal,
    };
    v->n_pool += n_bytes;
    if (n_bytes > v->n_longest) v->n_longest = n_bytes;
    return QRN_OK;
}

struct qrn_span qrn_vocab_bytes(const struct qrn_vocab *v, size_t id)
{
    return (struct qrn_span){v->pool + v->tokens[id].offset, v->tokens[id].n_bytes};
}

/* Where these bytes are in the table, or the empty slot where they would be; -1 after too many
 * probes, which only happens while the table is filled. */
static int64_t find_slot(const struct qrn_vocab *v, struct qrn_span bytes)
{
    size_t i = (size_t)qrn_hash_bytes(bytes.bytes, bytes.n_bytes) & (v->n_slots - 1);
    for (int n_probes = 0; n_probes < QRN_HASH_MAX_PROBES; n_probes++) {
        if (v->slots[i] < 0) return (int64_t)i;
        const struct qrn_span other = qrn_vocab_bytes(v, (size_t)v->slots[i]);
        if (other.n_bytes == bytes.n_bytes && !memcmp(other.bytes, bytes.bytes, bytes.n_bytes))
            return (int64_t)i;
        i = (i + 1) & (v->n_slots - 1);
    }
    return -1;
}

/* Tokens written in the alphabet come first, then USER_DEFINED ones, then odd ones. */
static int rank_of(const struct qrn_vocab_token *token)
{
    if (!token->n_bytes) return -1;
    switch ((enum qrn_token_type)token->type) {
    case QRN_TOKEN_NONE:
    case QRN_TOKEN_CONTROL:
    case QRN_TOKEN_UNUSED: return -1;
    case QRN_TOKEN_USER_DEFINED: return 1;
    case QRN_TOKEN_NORMAL:
    case QRN_TOKEN_UNKNOWN:
    case QRN_TOKEN_BYTE: break;
    }
    return token->is_literal ? 2 : 0;
}

enum qrn_status qrn_vocab_index(struct qrn_vocab *v, struct qrn_error *err)
{
    size_t n_found = 0;
    for (size_t id = 0; id < v->n_tokens; id++) n_found += rank_of(&v->tokens[id]) >= 0;
    v->n_slots = qrn_hash_n_slots(n_found);
    const size_t n_bytes = v->n_slots * sizeof *v->slots;
    v->slots = qrn_alloc(&v->allocator, n_bytes);
    if (!v->slots) return qrn_fail_memory(err, n_bytes, "the vocabulary");
    memset(v->slots, 0xff, n_bytes);
    for (int rank = 0; rank <= 2; rank++) {
        for (size_t id = 0; id < v->n_tokens; id++) {
            if (rank_of(&v->tokens[id]) != rank) continue;
            const int64_t slot = find_slot(v, qrn_vocab_bytes(v, id));
            if (slot < 0)
                return qrn_fail(err, QRN_ERR_FORMAT, "token %zu and %d others have one hash", id,
                                QRN_HASH_MAX_PROBES);
            if (v->slots[slot] < 0) v->slots[slot] = (int32_t)id;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        const int32_t id = qrn_vocab_find(v, (struct qrn_span){&c, 1});
        v->byte_ids[byte] = id >= 0 && rank_of(&v->tokens[id]) == 0 ? id : -1;
    }
    return QRN_OK;
}

int32_t qrn_vocab_find(const struct qrn_vocab *v, struct qrn_span bytes)
{
    const int64_t slot = find_slot(v, bytes);
    return slot < 0 ? -1 : v->slots[slot];
}

int32_t qrn_vocab_find_text(const struct qrn_vocab *v, struct qrn_span text, char *scratch)
{
    size_t n_bytes;
    if (qrn_alphabet_bytes(text, scratch, &n_bytes))
        text = (struct qrn_span){scratch, n_bytes};
    return qrn_vocab_find(v, text);
}
