/* SPDX-License-Identifier: MIT
 * Reading tokenizer.json: its tokens and merges; tokenizer_config.json. */
#include "text/tokenizer_json.h"

#include "base/memory.h"
#include "text/alphabet.h"
#include "text/nfc.h"

/* --- tokens --- */

static bool is_id(const value *v)
{
    return qrn_json_is(v, QRN_JSON_INTEGER) && v->as.integer >= 0;
}

/* The content and id of added token i, checked for their types. */
static enum qrn_status get_added(const value *token, uint32_t i, struct qrn_span *content,
                                 size_t *id, struct qrn_error *err)
{
    const value *const id_value = qrn_json_member(token, "id");
    const value *const content_value = qrn_json_member(token, "content");
    if (!is_id(id_value))
        return qrn_fail(err, QRN_ERR_FORMAT, "the id of added token %u is not a whole number",
                        (unsigned)i);
    if (!is_string(content_value)) return wrong_type("content", "a string", err);
    *content = span_of(content_value);
    *id = (size_t)id_value->as.integer;
    return QRN_OK;
}

/* How many ids there are, and how many bytes all tokens have. */
static enum qrn_status measure(const value *vocab, const value *added, size_t *n_ids,
                               size_t *n_pool, struct qrn_error *err)
{
    const size_t n_entries = (size_t)vocab->n + n_elements(added);
    const size_t limit = 4 * n_entries + 65536;
    size_t id = 0, id_max = 0;
    *n_pool = 0;
    const value *key = vocab + 1;
    for (uint32_t i = 0; i < vocab->n; i++, key = qrn_json_next(key + 1)) {
        if (!is_id(key + 1))
            return qrn_fail(err, QRN_ERR_FORMAT, "the id of token \"%.80s\" is not a whole number",
                            key->as.string);
        id = (size_t)key[1].as.integer;
        if (id > id_max) id_max = id;
        *n_pool += key->n;
    }
    const value *token = first_of(added);
    for (uint32_t i = 0; i < n_elements(added); i++, token = qrn_json_next(token)) {
        struct qrn_span content = {0};
        QRN_TRY(get_added(token, i, &content, &id, err));
        if (id > id_max) id_max = id;
        *n_pool += content.n_bytes;
    }
    if (id_max >= limit)
        return qrn_fail(err, QRN_ERR_FORMAT, "token id %zu, wants less than %zu for %zu tokens",
                        id_max, limit, n_entries);
    *n_ids = n_entries ? id_max + 1 : 0;
    return QRN_OK;
}

static bool same_bytes(struct qrn_span a, struct qrn_span b)
{
    return a.n_bytes == b.n_bytes && (!a.n_bytes || !memcmp(a.bytes, b.bytes, a.n_bytes));
}

/* What an ordinary token of this text would stand for; bytes of scratch or the text itself. */
static enum qrn_status bytes_of(struct qrn_span text, struct qrn_scratch *scratch,
                                struct qrn_span *bytes, bool *is_literal, struct qrn_error *err)
{
    QRN_TRY(qrn_scratch_reserve(scratch, text.n_bytes + 1, 1, err));
    *bytes = (struct qrn_span){scratch->memory, 0};
    *is_literal = !qrn_alphabet_bytes(text, scratch->memory, &bytes->n_bytes);
    if (*is_literal) *bytes = text;
    return QRN_OK;
}

static enum qrn_status disagrees(struct qrn_span content, size_t id, struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_FORMAT,
                    "added token \"%.80s\" has id %zu, which disagrees with another token",
                    content.bytes, id);
}

/* An added token may be in the vocabulary too, if it has the same id there. */
static enum qrn_status check_id(const struct qrn_tokenizer *t, struct qrn_span content, size_t id,
                                struct qrn_scratch *scratch, struct qrn_error *err)
{
    const struct qrn_vocab_token *const token = &t->vocab.tokens[id];
    struct qrn_span bytes = {0};
    bool is_literal = false;
    if (token->type == QRN_TOKEN_NONE) return QRN_OK;
    QRN_TRY(bytes_of(content, scratch, &bytes, &is_literal, err));
    if (token->type == QRN_TOKEN_NORMAL && token->is_literal == is_literal &&
        same_bytes(qrn_vocab_bytes(&t->vocab, id), bytes))
        return QRN_OK;
    return disagrees(content, id, err);
}

/* And not with another id; once the vocabulary can be searched. */
static enum qrn_status check_content(const struct qrn_tokenizer *t, struct qrn_span content,
                                     size_t id, struct qrn_scratch *scratch, struct qrn_error *err)
{
    struct qrn_span bytes = {0};
    bool is_literal = false;
    QRN_TRY(bytes_of(content, scratch, &bytes, &is_literal, err));
    const int32_t other = bytes.n_bytes ? qrn_vocab_find(&t->vocab, bytes) : -1;
    if (other < 0 || (size_t)other == id) return QRN_OK;
    const struct qrn_vocab_token *const token = &t->vocab.tokens[other];
    if (token->type != QRN_TOKEN_NORMAL || token->is_literal != is_literal) return QRN_OK;
    return disagrees(content, id, err);
}

static enum qrn_status read_added(struct qrn_tokenizer *t, const value *added,
                                  struct qrn_scratch *scratch, struct qrn_error *err)
{
    const value *token = first_of(added);
    for (uint32_t i = 0; i < n_elements(added); i++, token = qrn_json_next(token)) {
        struct qrn_span content = {0};
        size_t id = 0;
        bool is_special = false;
        QRN_TRY(get_added(token, i, &content, &id, err));
        QRN_TRY(get_bool(token, "special", false, &is_special, err));
        QRN_TRY(want_bool(token, "lstrip", false, false, err));
        QRN_TRY(want_bool(token, "rstrip", false, false, err));
        QRN_TRY(want_bool(token, "single_word", false, false, err));
        QRN_TRY(check_id(t, content, id, scratch, err));
        const enum qrn_token_type type = is_special ? QRN_TOKEN_CONTROL : QRN_TOKEN_USER_DEFINED;
        QRN_TRY(qrn_vocab_set(&t->vocab, id, content, type, err));
    }
    return QRN_OK;
}

static enum qrn_status read_tokens(struct qrn_tokenizer *t, const value *vocab, const value *added,
                                   struct qrn_scratch *scratch, struct qrn_error *err)
{
    size_t n_ids = 0, n_pool = 0;
    QRN_TRY(measure(vocab, added, &n_ids, &n_pool, err));
    QRN_TRY(qrn_vocab_init(&t->vocab, n_ids, n_pool, err));
    const value *key = vocab + 1;
    for (uint32_t i = 0; i < vocab->n; i++, key = qrn_json_next(key + 1)) {
        const size_t id = (size_t)key[1].as.integer;
        if (t->vocab.tokens[id].type != QRN_TOKEN_NONE)
            return qrn_fail(err, QRN_ERR_FORMAT, "tokens \"%.80s\" and another have the id %zu",
                            key->as.string, id);
        QRN_TRY(qrn_vocab_set(&t->vocab, id, span_of(key), QRN_TOKEN_NORMAL, err));
    }
    QRN_TRY(read_added(t, added, scratch, err));
    return qrn_vocab_index(&t->vocab, err);
}

static enum qrn_status read_merges(struct qrn_tokenizer *t, const value *merges,
                                   struct qrn_scratch *scratch, struct qrn_error *err)
{
    QRN_TRY(qrn_merges_init(&t->merges, merges->n, err));
    const value *merge = merges + 1;
    for (uint32_t rank = 0; rank < merges->n; rank++, merge = qrn_json_next(merge)) {
        if (is_string(merge)) {
            QRN_TRY(qrn_merges_add_line(&t->merges, &t->vocab, rank, span_of(merge), scratch, err));
            continue;
        }
        if (n_elements(merge) != 2 || !is_string(merge + 1) || !is_string(merge + 2))
            return qrn_fail(err, QRN_ERR_FORMAT, "merge %u is neither text nor a pair of texts",
                            (unsigned)rank);
        QRN_TRY(qrn_merges_add(&t->merges, &t->vocab, rank, span_of(merge + 1), span_of(merge + 2),
                               scratch, err));
    }
    return QRN_OK;
}

/* Whether a token is looked for after normalisation, which must leave it as it is. */
static enum qrn_status is_normalised(const struct qrn_tokenizer *t, const value *token,
                                     struct qrn_span bytes, bool *out, struct qrn_error *err)
{
    QRN_TRY(get_bool(token, "normalized", false, out, err));
    if (!*out || !t->is_nfc) return QRN_OK;
    const struct qrn_allocator *const a = &t->allocator;
    struct qrn_nfc nfc = {{.allocator = a}, {.allocator = a}, {.allocator = a}};
    struct qrn_span nfc_bytes = {0};
    enum qrn_status status = qrn_nfc_apply(&nfc, bytes, &nfc_bytes, err);
    if (status == QRN_OK && !same_bytes(nfc_bytes, bytes))
        status = qrn_fail(err, QRN_ERR_UNSUPPORTED,
                          "added token \"%.*s\" is not in NFC: not supported with \"normalized\"",
                          bytes.n_bytes < 80 ? (int)bytes.n_bytes : 80, bytes.bytes);
    qrn_scratch_free(&nfc.text);
    qrn_scratch_free(&nfc.characters);
    qrn_scratch_free(&nfc.sorting);
    return status;
}

static enum qrn_status index_added(struct qrn_tokenizer *t, const value *added,
                                   struct qrn_scratch *scratch, struct qrn_error *err)
{
    const uint32_t n = n_elements(added);
    QRN_TRY(qrn_added_init(&t->added, n, err));
    QRN_TRY(qrn_added_init(&t->normalised, n, err));
    const value *token = first_of(added);
    for (uint32_t i = 0; i < n; i++, token = qrn_json_next(token)) {
        struct qrn_span content = {0};
        size_t id = 0;
        bool after = false;
        QRN_TRY(get_added(token, i, &content, &id, err));
        QRN_TRY(check_content(t, content, id, scratch, err));
        const struct qrn_span bytes = qrn_vocab_bytes(&t->vocab, id);
        QRN_TRY(is_normalised(t, token, bytes, &after, err));
        QRN_TRY(qrn_added_add(after ? &t->normalised : &t->added, bytes, (int32_t)id,
                              t->vocab.tokens[id].type == QRN_TOKEN_CONTROL, err));
    }
    qrn_added_sort(&t->added);
    qrn_added_sort(&t->normalised);
    return QRN_OK;
}

static enum qrn_status read_root(struct qrn_tokenizer *t, const value *root,
                                 struct qrn_scratch *scratch, struct qrn_error *err)
{
    if (!is_object(root)) return wrong_type("the whole", "an object", err);
    const value *const model = qrn_json_member(root, "model");
    const value *const added = qrn_json_member(root, "added_tokens");
    QRN_TRY(qrn_tokenizer_json_kind(t, root, model, err));
    const value *const vocab = qrn_json_member(model, "vocab");
    const value *const merges = qrn_json_member(model, "merges");
    if (!is_object(vocab)) return wrong_type("vocab", "an object", err);
    if (!is_array(merges)) return wrong_type("merges", "an array", err);
    if (!is_absent(added) && !is_array(added)) return wrong_type("added_tokens", "an array", err);
    QRN_TRY(read_tokens(t, vocab, added, scratch, err));
    QRN_TRY(read_merges(t, merges, scratch, err));
    return index_added(t, added, scratch, err);
}

/* --- tokenizer_config.json --- */

/* {"eos_token": "..."} or {"eos_token": {"content": "..."}}; a token that is not in the vocabulary
 * counts as none. */
static enum qrn_status read_id(const struct qrn_tokenizer *t, const value *config, const char *key,
                               int32_t *id, struct qrn_error *err)
{
    const value *v = qrn_json_member(config, key);
    if (is_absent(v)) return QRN_OK;
    if (v->type == QRN_JSON_OBJECT) v = qrn_json_member(v, "content");
    if (!is_string(v)) return wrong_type(key, "a string", err);
    *id = qrn_tokenizer_find(t, v->as.string, v->n);
    return QRN_OK;
}

static enum qrn_status read_config(struct qrn_tokenizer *t, const value *config,
                                   struct qrn_scratch *scratch, struct qrn_error *err)
{
    (void)scratch;
    if (!is_object(config)) return wrong_type("the whole", "an object", err);
    QRN_TRY(read_id(t, config, "bos_token", &t->bos, err));
    QRN_TRY(read_id(t, config, "eos_token", &t->eos, err));
    return read_id(t, config, "pad_token", &t->pad, err);
}

/* --- both files --- */

/* Values of a vocabulary take 4 to 5 times its text, 8 times if tokens are very short. */
static size_t budget(size_t n_bytes)
{
    return 6 * n_bytes + ((size_t)32 << 20);
}

static enum qrn_status read_file(struct qrn_tokenizer *t, struct qrn_span file, const char *name,
                                 enum qrn_status (*read)(struct qrn_tokenizer *, const value *,
                                                         struct qrn_scratch *, struct qrn_error *),
                                 struct qrn_error *err)
{
    const struct qrn_host host = {.allocator = t->allocator};
    struct qrn_scratch scratch = {.allocator = &t->allocator};
    struct qrn_json json;
    enum qrn_status status = qrn_json_parse(file.n_bytes ? file.bytes : "", file.n_bytes,
                                            budget(file.n_bytes), &host, &json, err);
    if (status == QRN_OK) status = read(t, json.values, &scratch, err);
    qrn_json_free(&json);
    qrn_scratch_free(&scratch);
    return status == QRN_OK ? QRN_OK : qrn_error_prefix(err, status, "%s", name);
}

enum qrn_status qrn_tokenizer_create_json(struct qrn_span json, struct qrn_span config,
                                          const struct qrn_host *host, struct qrn_tokenizer **out,
                                          struct qrn_error *err)
{
    if (!out) return qrn_fail(err, QRN_ERR_ARGUMENT, "out is NULL");
    struct qrn_tokenizer *t;
    QRN_TRY(qrn_tokenizer_new(host, &t, err));
    enum qrn_status status = read_file(t, json, "tokenizer.json", read_root, err);
    if (status == QRN_OK && config.n_bytes)
        status = read_file(t, config, "tokenizer_config.json", read_config, err);
    if (status == QRN_OK) {
        *out = t;
        return QRN_OK;
    }
    qrn_tokenizer_free(t);
    return qrn_tokenizer_refuse(status, err);
}
