/* SPDX-License-Identifier: MIT
 * Ids to texts: all at once, or token by token. */
#include "base/memory.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* What a token adds to a text: nothing for those that are not shown. */
static enum qrn_status shown_bytes(const struct qrn_tokenizer *t, int32_t id, unsigned flags,
                                   struct qrn_span *bytes, struct qrn_error *err)
{
    switch (qrn_tokenizer_token(t, id, bytes)) {
    case QRN_TOKEN_NONE:
        return qrn_fail(err, QRN_ERR_ARGUMENT, "token %d does not exist, the vocabulary has %zu",
                        (int)id, t->vocab.n_tokens);
    case QRN_TOKEN_CONTROL:
        if (!(flags & QRN_DECODE_CONTROL)) bytes->n_bytes = 0;
        break;
    case QRN_TOKEN_UNUSED: bytes->n_bytes = 0; break;
    case QRN_TOKEN_NORMAL:
    case QRN_TOKEN_UNKNOWN:
    case QRN_TOKEN_USER_DEFINED:
    case QRN_TOKEN_BYTE: break;
    }
    return QRN_OK;
}

static enum qrn_status check_flags(unsigned flags, struct qrn_error *err)
{
    if (flags & ~(unsigned)QRN_DECODE_CONTROL)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "decode flags 0x%x are not known", flags);
    return QRN_OK;
}

static enum qrn_status append_all(const struct qrn_tokenizer *t, const int32_t *ids, size_t n_ids,
                                  unsigned flags, struct qrn_string *string, struct qrn_error *err)
{
    struct qrn_utf8 utf8 = {0};
    for (size_t i = 0; i < n_ids; i++) {
        struct qrn_span bytes;
        QRN_TRY(shown_bytes(t, ids[i], flags, &bytes, err));
        /* Room for the end besides: three bytes of U+FFFD. */
        QRN_TRY(qrn_string_reserve(string, 3 * bytes.n_bytes + 6, &t->allocator, err));
        string->n_bytes += qrn_utf8_repair(&utf8, bytes.bytes, bytes.n_bytes,
                                           string->bytes + string->n_bytes);
    }
    QRN_TRY(qrn_string_reserve(string, 3, &t->allocator, err));
    string->n_bytes += qrn_utf8_finish(&utf8, string->bytes + string->n_bytes);
    return QRN_OK;
}

enum qrn_status qrn_tokenizer_decode(const struct qrn_tokenizer *tokenizer, const int32_t *ids,
                                     size_t n_ids, unsigned flags, struct qrn_string *string,
                                     struct qrn_error *err)
{
    if (!tokenizer || !string || (n_ids && !ids))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "tokenizer, string or ids is NULL");
    QRN_TRY(check_flags(flags, err));
    const size_t n_bytes = string->n_bytes;
    const enum qrn_status status = append_all(tokenizer, ids, n_ids, flags, string, err);
    if (status != QRN_OK) string->n_bytes = n_bytes;
    if (string->bytes) string->bytes[string->n_bytes] = 0;
    return status;
}

/* --- token by token --- */

struct qrn_detokenizer {
    const struct qrn_tokenizer *tokenizer;
    unsigned flags;
    struct qrn_utf8 utf8; /* the character that is not finished */
    size_t n_reserved;
    char text[]; /* what the longest token can become */
};

enum qrn_status qrn_detokenizer_create(const struct qrn_tokenizer *tokenizer, unsigned flags,
                                       struct qrn_detokenizer **out, struct qrn_error *err)
{
    if (!tokenizer || !out)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "tokenizer or out is NULL");
    QRN_TRY(check_flags(flags, err));
    const size_t n_reserved = 3 * tokenizer->vocab.n_longest + 3;
    const size_t n_bytes = sizeof(struct qrn_detokenizer) + n_reserved;
    struct qrn_detokenizer *const d = qrn_alloc_zeroed(&tokenizer->allocator, n_bytes);
    if (!d) return qrn_fail_memory(err, n_bytes, "a detokenizer");
    d->tokenizer = tokenizer;
    d->flags = flags;
    d->n_reserved = n_reserved;
    *out = d;
    return QRN_OK;
}

enum qrn_status qrn_detokenizer_push(struct qrn_detokenizer *d, int32_t id, struct qrn_span *text,
                                     struct qrn_error *err)
{
    struct qrn_span bytes;
    *text = (struct qrn_span){d->text, 0};
    QRN_TRY(shown_bytes(d->tokenizer, id, d->flags, &bytes, err));
    text->n_bytes = qrn_utf8_repair(&d->utf8, bytes.bytes, bytes.n_bytes, d->text);
    return QRN_OK;
}

struct qrn_span qrn_detokenizer_finish(struct qrn_detokenizer *d)
{
    const size_t n_bytes = qrn_utf8_finish(&d->utf8, d->text);
    return (struct qrn_span){d->text, n_bytes};
}

void qrn_detokenizer_free(struct qrn_detokenizer *d)
{
    if (!d) return;
    const struct qrn_allocator allocator = d->tokenizer->allocator;
    qrn_free(&allocator, d, sizeof *d + d->n_reserved);
}
