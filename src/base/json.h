/* SPDX-License-Identifier: MIT
 * JSON from untrusted bytes, as a flat list of values.  Within bounds of depth and memory, all of
 * it from the caller's allocator; in a few allocations whose failure is never taken for bad syntax.
 */
#ifndef QUERN_BASE_JSON_H
#define QUERN_BASE_JSON_H

#include <stdbool.h>
#include <string.h>
#include <quern/host.h>

#define QRN_JSON_MAX_DEPTH 64

enum qrn_json_type {
    QRN_JSON_NULL,
    QRN_JSON_BOOL,
    QRN_JSON_INTEGER, /* written without point and exponent, and fits int64_t */
    QRN_JSON_NUMBER,  /* any other; finite */
    QRN_JSON_STRING,
    QRN_JSON_ARRAY,
    QRN_JSON_OBJECT
};

/* Elements follow their array; each member of an object is a string value and then its value:
 *     for (v = a + 1, i = 0; i < a->n; i++, v = qrn_json_next(v))            v is element i
 *     for (k = o + 1, i = 0; i < o->n; i++, k = qrn_json_next(k + 1))        k + 1 is the value */
struct qrn_json_value {
    enum qrn_json_type type;
    uint32_t n;     /* elements, members, bytes of a string */
    uint32_t n_all; /* values from this one to the end of what it holds */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *string; /* UTF-8, NUL-terminated, no NUL inside */
    } as;
};

struct qrn_json {
    struct qrn_json_value *values; /* the first holds all others */
    size_t n_values;
    char *text; /* the strings */
    size_t n_text;
    struct qrn_allocator allocator;
};

/* Bytes that values of a text of n bytes may take in a file reader; see docs/formats.md. */
static inline size_t qrn_json_budget(size_t n_bytes)
{
    return n_bytes / 2 * 5 + ((size_t)24 << 20);
}

/* Parses n bytes (no NUL needed behind them).  Refused: what RFC 8259 refuses, keys twice in one
 * object, NUL in strings, lone surrogates, nesting above QRN_JSON_MAX_DEPTH, and text whose values
 * would take more than budget bytes (known before anything is allocated).
 * Errors: QRN_ERR_FORMAT, QRN_ERR_MEMORY; *json is then zeroed. */
enum qrn_status qrn_json_parse(const void *text, size_t n_bytes, size_t budget,
                               const struct qrn_host *host, struct qrn_json *json,
                               struct qrn_error *err);
void qrn_json_free(struct qrn_json *json); /* zeroed structs are allowed */

static inline const struct qrn_json_value *qrn_json_next(const struct qrn_json_value *v)
{
    return v + v->n_all;
}

/* The member of that name; NULL if there is none, or object is NULL or no object.  A walk over the
 * members: not for objects of thousands. */
const struct qrn_json_value *qrn_json_member(const struct qrn_json_value *object, const char *key);

/* False if v is NULL or of another type. */
static inline bool qrn_json_is(const struct qrn_json_value *v, enum qrn_json_type type)
{
    return v && v->type == type;
}

/* Integers and numbers alike; false if it is neither. */
bool qrn_json_number(const struct qrn_json_value *v, double *out);

#endif
