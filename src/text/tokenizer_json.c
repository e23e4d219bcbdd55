/* SPDX-License-Identifier: MIT
 * Reading tokenizer.json: what kind of tokenizer it is, then its tokens and merges. */
#include <jansson.h>
#include "base/memory.h"
#include "formats/json.h"
#include "text/nfc.h"
#include "text/tokenizer.h"

static struct qrn_span span_of(const json_t *string)
{
    return (struct qrn_span){json_string_value(string), json_string_length(string)};
}

/* --- JSON, typed --- */

static enum qrn_status wrong_type(const char *key, const char *wanted, struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_FORMAT, "\"%s\" is not %s", key, wanted);
}

/* Absent or null is fallback. */
static enum qrn_status get_bool(const json_t *object, const char *key, bool fallback, bool *out,
                                struct qrn_error *err)
{
    const json_t *const value = json_object_get(object, key);
    if (value && !json_is_null(value) && !json_is_boolean(value))
        return wrong_type(key, "a boolean", err);
    *out = json_is_boolean(value) ? json_boolean_value(value) : fallback;
    return QRN_OK;
}

/* A flag that must be what it is in every tokenizer of these families. */
static enum qrn_status want_bool(const json_t *object, const char *key, bool fallback, bool wanted,
                                 struct qrn_error *err)
{
    bool value = false;
    QRN_TRY(get_bool(object, key, fallback, &value, err));
    if (value == wanted) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"%s\": %s is not supported", key,
                    value ? "true" : "false");
}

/* An object's "type"; absent is "". */
static enum qrn_status get_type(const json_t *object, const char *what, const char **type,
                                struct qrn_error *err)
{
    if (!json_is_object(object)) return wrong_type(what, "an object", err);
    const json_t *const value = json_object_get(object, "type");
    if (value && !json_is_string(value)) return wrong_type("type", "a string", err);
    *type = value ? json_string_value(value) : "";
    return QRN_OK;
}

static enum qrn_status unsupported_type(const char *what, const char *type, const char *wanted,
                                        struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s \"%.80s\" is not supported, only %s is", what,
                    type, wanted);
}

/* Text that a model's words would begin or end with: none here. */
static enum qrn_status want_empty(const json_t *object, const char *key, struct qrn_error *err)
{
    const json_t *const value = json_object_get(object, key);
    if (!value || json_is_null(value)) return QRN_OK;
    if (!json_is_string(value)) return wrong_type(key, "a string", err);
    if (!json_string_length(value)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"%s\": \"%.80s\" is not supported", key,
                    json_string_value(value));
}

/* --- what kind it is --- */

static enum qrn_status read_normalizer(struct qrn_tokenizer *t, const json_t *normalizer,
                                       struct qrn_error *err)
{
    const char *type = "";
    if (!normalizer || json_is_null(normalizer)) return QRN_OK;
    QRN_TRY(get_type(normalizer, "normalizer", &type, err));
    if (!strcmp(type, "NFC")) {
        t->is_nfc = true;
        return QRN_OK;
    }
    if (strcmp(type, "Sequence")) return unsupported_type("normalizer", type, "NFC", err);
    const json_t *const list = json_object_get(normalizer, "normalizers");
    if (!json_is_array(list)) return wrong_type("normalizers", "an array", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        QRN_TRY(get_type(json_array_get(list, i), "normalizer", &type, err));
        if (strcmp(type, "NFC")) return unsupported_type("normalizer", type, "NFC", err);
        t->is_nfc = true;
    }
    return QRN_OK;
}

static enum qrn_status read_split(struct qrn_tokenizer *t, const json_t *split,
                                  struct qrn_error *err)
{
    const json_t *const pattern = json_object_get(split, "pattern");
    const json_t *const regex = json_object_get(pattern, "Regex");
    const json_t *const behavior = json_object_get(split, "behavior");
    if (!json_is_object(pattern)) return wrong_type("pattern", "an object", err);
    if (!regex)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "a Split without \"Regex\" is not supported");
    if (!json_is_string(regex)) return wrong_type("Regex", "a string", err);
    if (!json_is_string(behavior)) return wrong_type("behavior", "a string", err);
    if (strcmp(json_string_value(behavior), "Isolated"))
        return unsupported_type("behavior", json_string_value(behavior), "Isolated", err);
    QRN_TRY(want_bool(split, "invert", false, false, err));
    if (qrn_split_from_regex(span_of(regex), &t->split)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                    "the regex is neither Qwen2's nor Qwen3.5's, others are not supported: %s",
                    json_string_value(regex));
}

static enum qrn_status read_pre_tokenizer(struct qrn_tokenizer *t, const json_t *pre_tokenizer,
                                          struct qrn_error *err)
{
    const char *type = "";
    QRN_TRY(get_type(pre_tokenizer, "pre_tokenizer", &type, err));
    if (strcmp(type, "Sequence"))
        return unsupported_type("pre_tokenizer", type, "a Sequence of Split and ByteLevel", err);
    const json_t *const list = json_object_get(pre_tokenizer, "pretokenizers");
    if (!json_is_array(list)) return wrong_type("pretokenizers", "an array", err);
    if (json_array_size(list) != 2)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%zu pre-tokenizers, only 2 are supported",
                        json_array_size(list));
    const json_t *const split = json_array_get(list, 0), *const bytes = json_array_get(list, 1);
    QRN_TRY(get_type(split, "pre_tokenizer", &type, err));
    if (strcmp(type, "Split"))
        return unsupported_type("the first pre_tokenizer", type, "Split", err);
    QRN_TRY(get_type(bytes, "pre_tokenizer", &type, err));
    if (strcmp(type, "ByteLevel"))
        return unsupported_type("the second pre_tokenizer", type, "ByteLevel", err);
    QRN_TRY(want_bool(bytes, "add_prefix_space", true, false, err));
    QRN_TRY(want_bool(bytes, "use_regex", true, false, err));
    return read_split(t, split, err);
}

static enum qrn_status read_kind(struct qrn_tokenizer *t, const json_t *root, const json_t *model,
                                 struct qrn_error *err)
{
    const char *type = "";
    QRN_TRY(get_type(model, "model", &type, err));
    if (strcmp(type, "BPE") && type[0]) return unsupported_type("model", type, "BPE", err);
    const json_t *const dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"dropout\" is not supported");
    QRN_TRY(want_empty(model, "continuing_subword_prefix", err));
    QRN_TRY(want_empty(model, "end_of_word_suffix", err));
    QRN_TRY(want_bool(model, "byte_fallback", false, false, err));
    QRN_TRY(get_bool(model, "ignore_merges", false, &t->ignore_merges, err));
    QRN_TRY(read_normalizer(t, json_object_get(root, "normalizer"), err));
    QRN_TRY(read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err));
    QRN_TRY(get_type(json_object_get(root, "decoder"), "decoder", &type, err));
    return strcmp(type, "ByteLevel") ? unsupported_type("decoder", type, "ByteLevel", err) : QRN_OK;
}

/* --- tokens --- */

/* The content and id of added token i, checked for their types. */
static enum qrn_status get_added(const json_t *added, size_t i, struct qrn_span *content,
                                 size_t *id, struct qrn_error *err)
{
    const json_t *const token = json_array_get(added, i);
    const json_t *const id_value = json_object_get(token, "id");
    const json_t *const content_value = json_object_get(token, "content");
    if (!json_is_integer(id_value) || json_integer_value(id_value) < 0)
        return qrn_fail(err, QRN_ERR_FORMAT, "the id of added token %zu is not a whole number", i);
    if (!json_is_string(content_value)) return wrong_type("content", "a string", err);
    *content = span_of(content_value);
    *id = (size_t)json_integer_value(id_value);
    return QRN_OK;
}

/* How many ids there are, and how many bytes all tokens have. */
static enum qrn_status measure(json_t *vocab, const json_t *added, size_t *n_ids, size_t *n_pool,
                               struct qrn_error *err)
{
    const size_t n_entries = json_object_size(vocab) + json_array_size(added);
    const size_t limit = 4 * n_entries + 65536;
    size_t id = 0, id_max = 0;
    struct qrn_span content = {0};
    *n_pool = 0;
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const json_t *const value = json_object_iter_value(it);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return qrn_fail(err, QRN_ERR_FORMAT, "the id of token \"%.80s\" is not a whole number",
                            json_object_iter_key(it));
        id = (size_t)json_integer_value(value);
        if (id > id_max) id_max = id;
        *n_pool += json_object_iter_key_len(it);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        QRN_TRY(get_added(added, i, &content, &id, err));
        if (id > id_max) id_max = id;
        *n_pool += content.n_bytes;
    }
    if (id_max >= limit)
        return qrn_fail(err, QRN_ERR_FORMAT, "token id %zu, wants less than %zu for %zu tokens",
                        id_max, limit, n_entries);
    *n_ids = n_entries ? id_max + 1 : 0;
    return QRN_OK;
}

static enum qrn_status read_added(struct qrn_tokenizer *t, const json_t *vocab, const json_t *added,
                                  struct qrn_error *err)
{
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *const token = json_array_get(added, i);
        struct qrn_span content = {0};
        size_t id = 0;
        bool is_special = false;
        QRN_TRY(get_added(added, i, &content, &id, err));
        QRN_TRY(get_bool(token, "special", false, &is_special, err));
        QRN_TRY(want_bool(token, "lstrip", false, false, err));
        QRN_TRY(want_bool(token, "rstrip", false, false, err));
        QRN_TRY(want_bool(token, "single_word", false, false, err));
        /* An added token may be in the vocabulary too, if it has the same id there. */
        const json_t *const other = json_object_getn(vocab, content.bytes, content.n_bytes);
        if (other ? (size_t)json_integer_value(other) != id
                  : t->vocab.tokens[id].type != QRN_TOKEN_NONE)
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "added token \"%.80s\" has id %zu, which disagrees with another token",
                            content.bytes, id);
        const enum qrn_token_type type = is_special ? QRN_TOKEN_CONTROL : QRN_TOKEN_USER_DEFINED;
        QRN_TRY(qrn_vocab_set(&t->vocab, id, content, type, err));
    }
    return QRN_OK;
}

static enum qrn_status read_tokens(struct qrn_tokenizer *t, json_t *vocab, const json_t *added,
                                   struct qrn_error *err)
{
    size_t n_ids = 0, n_pool = 0;
    QRN_TRY(measure(vocab, added, &n_ids, &n_pool, err));
    QRN_TRY(qrn_vocab_init(&t->vocab, n_ids, n_pool, err));
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const size_t id = (size_t)json_integer_value(json_object_iter_value(it));
        const struct qrn_span text = {json_object_iter_key(it), json_object_iter_key_len(it)};
        if (t->vocab.tokens[id].type != QRN_TOKEN_NONE)
            return qrn_fail(err, QRN_ERR_FORMAT, "tokens \"%.80s\" and another have the id %zu",
                            text.bytes, id);
        QRN_TRY(qrn_vocab_set(&t->vocab, id, text, QRN_TOKEN_NORMAL, err));
    }
    QRN_TRY(read_added(t, vocab, added, err));
    return qrn_vocab_index(&t->vocab, err);
}

static enum qrn_status read_merges(struct qrn_tokenizer *t, const json_t *merges,
                                   struct qrn_scratch *scratch, struct qrn_error *err)
{
    const size_t n = json_array_size(merges);
    QRN_TRY(qrn_merges_init(&t->merges, n, err));
    for (size_t rank = 0; rank < n; rank++) {
        const json_t *const merge = json_array_get(merges, rank);
        if (json_is_string(merge)) {
            QRN_TRY(qrn_merges_add_line(&t->merges, &t->vocab, rank, span_of(merge), scratch, err));
            continue;
        }
        const json_t *const left = json_array_get(merge, 0);
        const json_t *const right = json_array_get(merge, 1);
        if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
            return qrn_fail(err, QRN_ERR_FORMAT, "merge %zu is neither text nor a pair of texts",
                            rank);
        QRN_TRY(qrn_merges_add(&t->merges, &t->vocab, rank, span_of(left), span_of(right), scratch,
                               err));
    }
    return QRN_OK;
}

/* Whether a token is looked for after normalisation, which must leave it as it is. */
static enum qrn_status is_normalised(const struct qrn_tokenizer *t, const json_t *token,
                                     struct qrn_span bytes, bool *out, struct qrn_error *err)
{
    QRN_TRY(get_bool(token, "normalized", false, out, err));
    if (!*out || !t->is_nfc) return QRN_OK;
    const struct qrn_allocator *const a = &t->allocator;
    struct qrn_nfc nfc = {{.allocator = a}, {.allocator = a}, {.allocator = a}};
    struct qrn_span nfc_bytes = {0};
    enum qrn_status status = qrn_nfc_apply(&nfc, bytes, &nfc_bytes, err);
    if (status == QRN_OK && (nfc_bytes.n_bytes != bytes.n_bytes ||
                             memcmp(nfc_bytes.bytes, bytes.bytes, bytes.n_bytes)))
        status = qrn_fail(err, QRN_ERR_UNSUPPORTED,
                          "added token \"%.*s\" is not in NFC: not supported with \"normalized\"",
                          bytes.n_bytes < 80 ? (int)bytes.n_bytes : 80, bytes.bytes);
    qrn_scratch_free(&nfc.text);
    qrn_scratch_free(&nfc.characters);
    qrn_scratch_free(&nfc.sorting);
    return status;
}

static enum qrn_status index_added(struct qrn_tokenizer *t, const json_t *added,
                                   struct qrn_error *err)
{
    const size_t n = json_array_size(added);
    QRN_TRY(qrn_added_init(&t->added, n, err));
    QRN_TRY(qrn_added_init(&t->normalised, n, err));
    for (size_t i = 0; i < n; i++) {
        struct qrn_span content = {0};
        size_t id = 0;
        bool after = false;
        QRN_TRY(get_added(added, i, &content, &id, err));
        const struct qrn_span bytes = qrn_vocab_bytes(&t->vocab, id);
        QRN_TRY(is_normalised(t, json_array_get(added, i), bytes, &after, err));
        QRN_TRY(qrn_added_add(after ? &t->normalised : &t->added, bytes, (int32_t)id,
                              t->vocab.tokens[id].type == QRN_TOKEN_CONTROL, err));
    }
    qrn_added_sort(&t->added);
    qrn_added_sort(&t->normalised);
    return QRN_OK;
}

static enum qrn_status read_root(struct qrn_tokenizer *t, const json_t *root,
                                 struct qrn_scratch *scratch, struct qrn_error *err)
{
    if (!json_is_object(root)) return wrong_type("the whole", "an object", err);
    const json_t *const model = json_object_get(root, "model");
    const json_t *const added = json_object_get(root, "added_tokens");
    QRN_TRY(read_kind(t, root, model, err));
    json_t *const vocab = json_object_get(model, "vocab");
    const json_t *const merges = json_object_get(model, "merges");
    if (!json_is_object(vocab)) return wrong_type("vocab", "an object", err);
    if (!json_is_array(merges)) return wrong_type("merges", "an array", err);
    if (added && !json_is_null(added) && !json_is_array(added))
        return wrong_type("added_tokens", "an array", err);
    QRN_TRY(read_tokens(t, vocab, added, err));
    QRN_TRY(read_merges(t, merges, scratch, err));
    return index_added(t, added, err);
}

/* --- tokenizer_config.json --- */

/* {"eos_token": "..."} or {"eos_token": {"content": "..."}}; a token that is not in the vocabulary
 * counts as none. */
static enum qrn_status read_id(const struct qrn_tokenizer *t, const json_t *config, const char *key,
                               int32_t *id, struct qrn_error *err)
{
    const json_t *value = json_object_get(config, key);
    if (!value || json_is_null(value)) return QRN_OK;
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) return wrong_type(key, "a string", err);
    *id = qrn_tokenizer_find(t, json_string_value(value), json_string_length(value));
    return QRN_OK;
}

static enum qrn_status read_config(struct qrn_tokenizer *t, const json_t *config,
                                   struct qrn_error *err)
{
    if (!json_is_object(config)) return wrong_type("the whole", "an object", err);
    QRN_TRY(read_id(t, config, "bos_token", &t->bos, err));
    QRN_TRY(read_id(t, config, "eos_token", &t->eos, err));
    return read_id(t, config, "pad_token", &t->pad, err);
}

/* --- both files --- */

/* Bytes that the parser may take: a vocabulary with merges as pairs, without spaces between, is
 * reckoned at 18 times its text. */
static size_t budget(struct qrn_span json)
{
    return 20 * json.n_bytes + ((size_t)48 << 20);
}

static enum qrn_status create(struct qrn_tokenizer *t, struct qrn_span json, struct qrn_span config,
                              struct qrn_error *err)
{
    struct qrn_scratch scratch = {.allocator = &t->allocator};
    json_t *root;
    enum qrn_status status =
        qrn_json_parse_flags(json.bytes, json.n_bytes, budget(json), JSON_ALLOW_NUL, &root, err);
    if (status == QRN_OK) status = read_root(t, root, &scratch, err);
    json_decref(root);
    qrn_scratch_free(&scratch);
    if (status != QRN_OK) return qrn_error_prefix(err, status, "tokenizer.json");
    if (!config.n_bytes) return QRN_OK;
    /* model_max_length is 10^30 in many files. */
    status = qrn_json_parse_flags(config.bytes, config.n_bytes, budget(config),
                                  JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &root, err);
    if (status == QRN_OK) status = read_config(t, root, err);
    json_decref(root);
    if (status != QRN_OK) return qrn_error_prefix(err, status, "tokenizer_config.json");
    return QRN_OK;
}

enum qrn_status qrn_tokenizer_create_json(struct qrn_span json, struct qrn_span config,
                                          const struct qrn_host *host, struct qrn_tokenizer **out,
                                          struct qrn_error *err)
{
    if (!out) return qrn_fail(err, QRN_ERR_ARGUMENT, "out is NULL");
    struct qrn_tokenizer *t;
    QRN_TRY(qrn_tokenizer_new(host, &t, err));
    const enum qrn_status status = create(t, json, config, err);
    if (status == QRN_OK) {
        *out = t;
        return QRN_OK;
    }
    qrn_tokenizer_free(t);
    return qrn_tokenizer_refuse(status, err);
}
