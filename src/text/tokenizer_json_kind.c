/* SPDX-License-Identifier: MIT
 * Reading tokenizer.json: what kind of tokenizer it is. */
#include "text/tokenizer_json.h"

/* An object's "type"; absent is "". */
static enum qrn_status get_type(const value *object, const char *what, const char **type,
                                struct qrn_error *err)
{
    if (!is_object(object)) return wrong_type(what, "an object", err);
    const value *const v = qrn_json_member(object, "type");
    if (v && !is_string(v)) return wrong_type("type", "a string", err);
    *type = v ? v->as.string : "";
    return QRN_OK;
}

static enum qrn_status unsupported_type(const char *what, const char *type, const char *wanted,
                                        struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s \"%.80s\" is not supported, only %s is", what,
                    type, wanted);
}

/* Text that a model's words would begin or end with: none here. */
static enum qrn_status want_empty(const value *object, const char *key, struct qrn_error *err)
{
    const value *const v = qrn_json_member(object, key);
    if (is_absent(v)) return QRN_OK;
    if (!is_string(v)) return wrong_type(key, "a string", err);
    if (!v->n) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"%s\": \"%.80s\" is not supported", key,
                    v->as.string);
}

static enum qrn_status read_normalizer(struct qrn_tokenizer *t, const value *normalizer,
                                       struct qrn_error *err)
{
    const char *type = "";
    if (is_absent(normalizer)) return QRN_OK;
    QRN_TRY(get_type(normalizer, "normalizer", &type, err));
    if (!strcmp(type, "NFC")) {
        t->is_nfc = true;
        return QRN_OK;
    }
    if (strcmp(type, "Sequence")) return unsupported_type("normalizer", type, "NFC", err);
    const value *const list = qrn_json_member(normalizer, "normalizers"), *v = first_of(list);
    if (!is_array(list)) return wrong_type("normalizers", "an array", err);
    for (uint32_t i = 0; i < list->n; i++, v = qrn_json_next(v)) {
        QRN_TRY(get_type(v, "normalizer", &type, err));
        if (strcmp(type, "NFC")) return unsupported_type("normalizer", type, "NFC", err);
        t->is_nfc = true;
    }
    return QRN_OK;
}

static enum qrn_status read_split(struct qrn_tokenizer *t, const value *split,
                                  struct qrn_error *err)
{
    const value *const pattern = qrn_json_member(split, "pattern");
    const value *const regex = qrn_json_member(pattern, "Regex");
    const value *const behavior = qrn_json_member(split, "behavior");
    if (!is_object(pattern)) return wrong_type("pattern", "an object", err);
    if (!regex)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "a Split without \"Regex\" is not supported");
    if (!is_string(regex)) return wrong_type("Regex", "a string", err);
    if (!is_string(behavior)) return wrong_type("behavior", "a string", err);
    if (strcmp(behavior->as.string, "Isolated"))
        return unsupported_type("behavior", behavior->as.string, "Isolated", err);
    QRN_TRY(want_bool(split, "invert", false, false, err));
    if (qrn_split_from_regex(span_of(regex), &t->split)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                    "the regex is neither Qwen2's nor Qwen3.5's, others are not supported: %s",
                    regex->as.string);
}

static enum qrn_status read_pre_tokenizer(struct qrn_tokenizer *t, const value *pre_tokenizer,
                                          struct qrn_error *err)
{
    const char *type = "";
    QRN_TRY(get_type(pre_tokenizer, "pre_tokenizer", &type, err));
    if (strcmp(type, "Sequence"))
        return unsupported_type("pre_tokenizer", type, "a Sequence of Split and ByteLevel", err);
    const value *const list = qrn_json_member(pre_tokenizer, "pretokenizers");
    if (!is_array(list)) return wrong_type("pretokenizers", "an array", err);
    if (list->n != 2)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%u pre-tokenizers, only 2 are supported",
                        (unsigned)list->n);
    const value *const split = list + 1, *const bytes = qrn_json_next(split);
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

enum qrn_status qrn_tokenizer_json_kind(struct qrn_tokenizer *t, const value *root,
                                        const value *model, struct qrn_error *err)
{
    const char *type = "";
    double dropout = 0;
    QRN_TRY(get_type(model, "model", &type, err));
    if (strcmp(type, "BPE") && type[0]) return unsupported_type("model", type, "BPE", err);
    if (qrn_json_number(qrn_json_member(model, "dropout"), &dropout) && dropout != 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"dropout\" is not supported");
    QRN_TRY(want_empty(model, "continuing_subword_prefix", err));
    QRN_TRY(want_empty(model, "end_of_word_suffix", err));
    QRN_TRY(want_bool(model, "byte_fallback", false, false, err));
    QRN_TRY(get_bool(model, "ignore_merges", false, &t->ignore_merges, err));
    QRN_TRY(read_normalizer(t, qrn_json_member(root, "normalizer"), err));
    QRN_TRY(read_pre_tokenizer(t, qrn_json_member(root, "pre_tokenizer"), err));
    QRN_TRY(get_type(qrn_json_member(root, "decoder"), "decoder", &type, err));
    return strcmp(type, "ByteLevel") ? unsupported_type("decoder", type, "ByteLevel", err) : QRN_OK;
}
