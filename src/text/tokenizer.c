/* SPDX-License-Identifier: MIT
 * Tokenizers: from arrays to the end, and what can be asked of one. */
#include "text/tokenizer.h"

#include "base/memory.h"

enum qrn_status qrn_tokenizer_new(const struct qrn_host *host, struct qrn_tokenizer **out,
                                  struct qrn_error *err)
{
    const struct qrn_allocator allocator = host ? host->allocator : (struct qrn_allocator){0};
    struct qrn_tokenizer *const t = qrn_alloc_zeroed(&allocator, sizeof *t);
    if (!t) return qrn_fail_memory(err, sizeof *t, "a tokenizer");
    t->allocator = t->vocab.allocator = t->merges.allocator = allocator;
    t->added.allocator = t->normalised.allocator = allocator;
    t->bos = t->eos = t->pad = -1;
    *out = t;
    return QRN_OK;
}

void qrn_tokenizer_free(struct qrn_tokenizer *t)
{
    if (!t) return;
    qrn_vocab_free(&t->vocab);
    qrn_merges_free(&t->merges);
    qrn_added_free(&t->added);
    qrn_added_free(&t->normalised);
    const struct qrn_allocator allocator = t->allocator;
    qrn_free(&allocator, t, sizeof *t);
}

enum qrn_status qrn_tokenizer_refuse(enum qrn_status status, struct qrn_error *err)
{
    if (!err) return status;
    for (char *c = err->text; *c; c++)
        if ((*c > 0 && *c < 0x20) || *c == 0x7f) *c = '?';
    return status;
}

/* --- from arrays --- */

static enum qrn_token_type type_of(const struct qrn_tokenizer_tables *tables, size_t id)
{
    return tables->types ? (enum qrn_token_type)tables->types[id] : QRN_TOKEN_NORMAL;
}

static enum qrn_status fill_vocab(struct qrn_vocab *vocab,
                                  const struct qrn_tokenizer_tables *tables, struct qrn_error *err)
{
    size_t n_pool = 0;
    for (size_t id = 0; id < tables->n_tokens; id++)
        if (!qrn_add_size(n_pool, tables->tokens[id].n_bytes, &n_pool))
            return qrn_fail_memory(err, SIZE_MAX, "the vocabulary");
    QRN_TRY(qrn_vocab_init(vocab, tables->n_tokens, n_pool, err));
    for (size_t id = 0; id < tables->n_tokens; id++) {
        const enum qrn_token_type type = type_of(tables, id);
        if (type < QRN_TOKEN_NORMAL || type > QRN_TOKEN_BYTE)
            return qrn_fail(err, QRN_ERR_FORMAT, "token %zu has type %d, wants 1 to 6", id,
                            (int)type);
        QRN_TRY(qrn_vocab_set(vocab, id, tables->tokens[id], type, err));
    }
    return qrn_vocab_index(vocab, err);
}

static enum qrn_status fill_merges(struct qrn_tokenizer *t,
                                   const struct qrn_tokenizer_tables *tables,
                                   struct qrn_scratch *scratch, struct qrn_error *err)
{
    QRN_TRY(qrn_merges_init(&t->merges, tables->n_merges, err));
    for (size_t rank = 0; rank < tables->n_merges; rank++)
        QRN_TRY(qrn_merges_add_line(&t->merges, &t->vocab, rank, tables->merges[rank], scratch,
                                    err));
    return QRN_OK;
}

static bool is_added(enum qrn_token_type type)
{
    return type == QRN_TOKEN_CONTROL || type == QRN_TOKEN_USER_DEFINED;
}

static enum qrn_status fill_added(struct qrn_tokenizer *t,
                                  const struct qrn_tokenizer_tables *tables, struct qrn_error *err)
{
    size_t n = 0;
    for (size_t id = 0; id < tables->n_tokens; id++) n += is_added(type_of(tables, id));
    QRN_TRY(qrn_added_init(&t->added, n, err));
    for (size_t id = 0; id < tables->n_tokens; id++) {
        const enum qrn_token_type type = type_of(tables, id);
        if (!is_added(type)) continue;
        QRN_TRY(qrn_added_add(&t->added, qrn_vocab_bytes(&t->vocab, id), (int32_t)id,
                              type == QRN_TOKEN_CONTROL, err));
    }
    qrn_added_sort(&t->added);
    return QRN_OK;
}

static enum qrn_status check_id(int32_t id, const char *name, size_t n_tokens,
                                struct qrn_error *err)
{
    if (id >= -1 && (id < 0 || (size_t)id < n_tokens)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_FORMAT, "%s is token %d, but there are %zu tokens", name, (int)id,
                    n_tokens);
}

static enum qrn_status check(const struct qrn_tokenizer_tables *tables, struct qrn_split *split,
                             struct qrn_error *err)
{
    if ((tables->n_tokens && !tables->tokens) || (tables->n_merges && !tables->merges))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "tokens or merges is NULL");
    const struct qrn_span pre = {tables->pre, tables->pre ? strlen(tables->pre) : 0};
    if (!qrn_split_from_name(pre, split))
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "pre-tokenizer \"%s\" is not supported, only qwen2 and qwen35 are",
                        tables->pre ? tables->pre : "");
    QRN_TRY(check_id(tables->bos, "bos", tables->n_tokens, err));
    QRN_TRY(check_id(tables->eos, "eos", tables->n_tokens, err));
    return check_id(tables->pad, "pad", tables->n_tokens, err);
}

enum qrn_status qrn_tokenizer_create(const struct qrn_tokenizer_tables *tables,
                                     const struct qrn_host *host, struct qrn_tokenizer **out,
                                     struct qrn_error *err)
{
    if (!tables || !out) return qrn_fail(err, QRN_ERR_ARGUMENT, "tables or out is NULL");
    struct qrn_split split;
    QRN_TRY(check(tables, &split, err));
    struct qrn_tokenizer *t;
    QRN_TRY(qrn_tokenizer_new(host, &t, err));
    struct qrn_scratch scratch = {.allocator = &t->allocator};
    t->split = split;
    t->is_nfc = !tables->keep_decomposed;
    t->ignore_merges = tables->ignore_merges;
    t->bos = tables->bos;
    t->eos = tables->eos;
    t->pad = tables->pad;
    enum qrn_status status = fill_vocab(&t->vocab, tables, err);
    if (status == QRN_OK) status = fill_merges(t, tables, &scratch, err);
    if (status == QRN_OK) status = fill_added(t, tables, err);
    qrn_scratch_free(&scratch);
    if (status == QRN_OK) {
        *out = t;
        return QRN_OK;
    }
    qrn_tokenizer_free(t);
    return qrn_tokenizer_refuse(status, err);
}

/* --- looking --- */

int32_t qrn_tokenizer_vocab_size(const struct qrn_tokenizer *t)
{
    return (int32_t)t->vocab.n_tokens;
}

int32_t qrn_tokenizer_bos(const struct qrn_tokenizer *t)
{
    return t->bos;
}

int32_t qrn_tokenizer_eos(const struct qrn_tokenizer *t)
{
    return t->eos;
}

int32_t qrn_tokenizer_pad(const struct qrn_tokenizer *t)
{
    return t->pad;
}

enum qrn_token_type qrn_tokenizer_token(const struct qrn_tokenizer *t, int32_t id,
                                        struct qrn_span *bytes)
{
    const bool is_id = id >= 0 && (size_t)id < t->vocab.n_tokens;
    if (bytes) *bytes = is_id ? qrn_vocab_bytes(&t->vocab, (size_t)id) : (struct qrn_span){"", 0};
    return is_id ? (enum qrn_token_type)t->vocab.tokens[id].type : QRN_TOKEN_NONE;
}

int32_t qrn_tokenizer_find(const struct qrn_tokenizer *t, const char *bytes, size_t n_bytes)
{
    const struct qrn_span span = {bytes, n_bytes};
    if (!n_bytes) return -1;
    int32_t id = qrn_added_find(&t->added, span);
    if (id < 0) id = qrn_added_find(&t->normalised, span);
    return id >= 0 ? id : qrn_vocab_find(&t->vocab, span);
}
