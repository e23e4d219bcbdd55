/* SPDX-License-Identifier: MIT
 * What the readers of tokenizer.json share: its values, typed. */
#ifndef QUERN_TEXT_TOKENIZER_JSON_H
#define QUERN_TEXT_TOKENIZER_JSON_H

#include "base/json.h"
#include "text/tokenizer.h"

typedef struct qrn_json_value value;

static inline struct qrn_span span_of(const value *string)
{
    return (struct qrn_span){string->as.string, string->n};
}

static inline bool is_absent(const value *v)
{
    return !v || v->type == QRN_JSON_NULL;
}

static inline bool is_string(const value *v)
{
    return qrn_json_is(v, QRN_JSON_STRING);
}

static inline bool is_array(const value *v)
{
    return qrn_json_is(v, QRN_JSON_ARRAY);
}

static inline bool is_object(const value *v)
{
    return qrn_json_is(v, QRN_JSON_OBJECT);
}

/* Elements of an array; none if it is absent. */
static inline uint32_t n_elements(const value *v)
{
    return is_array(v) ? v->n : 0;
}

/* The first element of an array, or key of an object; not to be read if there is none. */
static inline const value *first_of(const value *v)
{
    return v ? v + 1 : NULL;
}

static inline enum qrn_status wrong_type(const char *key, const char *wanted,
                                         struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_FORMAT, "\"%s\" is not %s", key, wanted);
}

/* Absent or null is fallback. */
static inline enum qrn_status get_bool(const value *object, const char *key, bool fallback,
                                       bool *out, struct qrn_error *err)
{
    const value *const v = qrn_json_member(object, key);
    if (!is_absent(v) && v->type != QRN_JSON_BOOL) return wrong_type(key, "a boolean", err);
    *out = is_absent(v) ? fallback : v->as.boolean;
    return QRN_OK;
}

/* A flag that must be what it is in every tokenizer of these families. */
static inline enum qrn_status want_bool(const value *object, const char *key, bool fallback,
                                        bool wanted, struct qrn_error *err)
{
    bool is_set = false;
    QRN_TRY(get_bool(object, key, fallback, &is_set, err));
    if (is_set == wanted) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"%s\": %s is not supported", key,
                    is_set ? "true" : "false");
}

/* Reads what is not tokens or merges: the kind of model, normalizer, pre-tokenizer, decoder. */
enum qrn_status qrn_tokenizer_json_kind(struct qrn_tokenizer *t, const value *root,
                                        const value *model, struct qrn_error *err);

#endif
