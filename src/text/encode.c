/* SPDX-License-Identifier: MIT
 * Texts to ids: repair, added tokens, normal form, words, merges. */
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define MAX_BYTES (1u << 30)

struct encoder {
    const struct qrn_tokenizer *tokenizer;
    bool with_control;
    struct qrn_token_list *list;
    struct qrn_scratch repaired, merging;
    struct qrn_nfc nfc;
    struct qrn_error *err;
};

static enum qrn_status append_id(struct encoder *e, int32_t id)
{
    QRN_TRY(qrn_token_list_reserve(e->list, 1, &e->tokenizer->allocator, e->err));
    e->list->ids[e->list->n_ids++] = id;
    return QRN_OK;
}

static enum qrn_status append_word(struct encoder *e, struct qrn_span word)
{
    const struct qrn_tokenizer *const t = e->tokenizer;
    if (t->ignore_merges) {
        const int32_t id = qrn_vocab_find(&t->vocab, word);
        if (id >= 0) return append_id(e, id);
    }
    return qrn_merges_apply(&t->merges, &t->vocab, word, &e->merging, e->list, e->err);
}

static enum qrn_status append_words(struct encoder *e, struct qrn_span text)
{
    for (size_t i = 0, n; i < text.n_bytes; i += n) {
        n = qrn_split_first(&e->tokenizer->split, text.bytes + i, text.n_bytes - i);
        QRN_TRY(append_word(e, (struct qrn_span){text.bytes + i, n}));
    }
    return QRN_OK;
}

/* Appends the added tokens of a set that are in text, and gives the pieces between them to rest. */
static enum qrn_status append_pieces(struct encoder *e, const struct qrn_added *added,
                                     struct qrn_span text,
                                     enum qrn_status (*rest)(struct encoder *, struct qrn_span))
{
    size_t from = 0, at;
    const struct qrn_added_token *token;
    while ((token = qrn_added_search(added, text, from, e->with_control, &at)) != NULL) {
        if (at > from) QRN_TRY(rest(e, (struct qrn_span){text.bytes + from, at - from}));
        QRN_TRY(append_id(e, token->id));
        from = at + token->bytes.n_bytes;
    }
    if (from == text.n_bytes) return QRN_OK;
    return rest(e, (struct qrn_span){text.bytes + from, text.n_bytes - from});
}

static enum qrn_status append_normalised(struct encoder *e, struct qrn_span text)
{
    if (e->tokenizer->is_nfc) QRN_TRY(qrn_nfc_apply(&e->nfc, text, &text, e->err));
    return append_pieces(e, &e->tokenizer->normalised, text, append_words);
}

/* Makes text valid UTF-8; it is copied only if it is not. */
static enum qrn_status repair(struct encoder *e, struct qrn_span *text)
{
    const size_t n_valid = qrn_utf8_n_valid(text->bytes, text->n_bytes);
    if (n_valid == text->n_bytes) return QRN_OK;
    const size_t n_rest = text->n_bytes - n_valid;
    QRN_TRY(qrn_scratch_reserve(&e->repaired, n_valid + 3 * n_rest + 6, 1, e->err));
    char *const out = e->repaired.memory;
    struct qrn_utf8 d = {0};
    size_t n = n_valid;
    if (n) memcpy(out, text->bytes, n);
    n += qrn_utf8_repair(&d, text->bytes + n_valid, n_rest, out + n);
    n += qrn_utf8_finish(&d, out + n);
    *text = (struct qrn_span){out, n};
    return QRN_OK;
}

static enum qrn_status encode(struct encoder *e, struct qrn_span text)
{
    QRN_TRY(repair(e, &text));
    return append_pieces(e, &e->tokenizer->added, text, append_normalised);
}

enum qrn_status qrn_tokenizer_encode(const struct qrn_tokenizer *tokenizer, const char *text,
                                     size_t n_bytes, unsigned flags, struct qrn_token_list *list,
                                     struct qrn_error *err)
{
    if (!tokenizer || !list || (n_bytes && !text))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "tokenizer, list or text is NULL");
    if (flags & ~(unsigned)QRN_ENCODE_CONTROL)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "encode flags 0x%x are not known", flags);
    if (n_bytes >= MAX_BYTES)
        return qrn_fail(err, QRN_ERR_LIMIT, "the text has %zu bytes, at most %u can be encoded",
                        n_bytes, MAX_BYTES - 1);
    if (!n_bytes) return QRN_OK;
    const struct qrn_allocator *const allocator = &tokenizer->allocator;
    struct encoder e = {
        .tokenizer = tokenizer,
        .with_control = (flags & QRN_ENCODE_CONTROL) != 0,
        .list = list,
        .repaired.allocator = allocator,
        .merging.allocator = allocator,
        .nfc = {{.allocator = allocator}, {.allocator = allocator}, {.allocator = allocator}},
        .err = err,
    };
    const size_t n_ids = list->n_ids;
    const enum qrn_status status = encode(&e, (struct qrn_span){text, n_bytes});
    if (status != QRN_OK) list->n_ids = n_ids;
    qrn_scratch_free(&e.repaired);
    qrn_scratch_free(&e.merging);
    qrn_scratch_free(&e.nfc.text);
    qrn_scratch_free(&e.nfc.characters);
    qrn_scratch_free(&e.nfc.sorting);
    return status;
}
