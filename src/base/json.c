/* SPDX-License-Identifier: MIT
 * JSON from untrusted bytes: one pass that bounds what is needed, one that reads. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

struct parser {
    const char *at, *end, *start;
    struct qrn_json_value *next_value;
    char *next_text;
    const struct qrn_allocator *allocator;
    struct qrn_error *err;
};

/* How many values and how many bytes of strings the text can hold at most, exact for good text. */
static void measure(const char *text, size_t n_bytes, size_t *n_values, size_t *n_text)
{
    bool in_string = false;
    *n_values = 1;
    *n_text = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const char c = text[i];
        if (in_string) {
            ++*n_text;
            if (c == '\\' && i + 1 < n_bytes)
                ++*n_text, i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else {
            *n_values += c == '{' || c == '[' || c == ',' || c == ':';
        }
    }
}

static enum qrn_status fail_at(struct parser *p, const char *at, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *c = p->start; c < at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return qrn_fail(p->err, QRN_ERR_FORMAT, "JSON, line %zu column %zu: %s", line, column, what);
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

/* The next byte that is no space, 0 at the end. */
static char peek(struct parser *p)
{
    skip_space(p);
    return p->at < p->end ? *p->at : '\0';
}

/* --- strings --- */

static bool read_hex(const char *at, const char *end, uint32_t *out)
{
    *out = 0;
    if (end - at < 4) return false;
    for (int i = 0; i < 4; i++) {
        const char c = at[i];
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                               : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                      : 16;
        if (digit == 16) return false;
        *out = *out << 4 | digit;
    }
    return true;
}

/* Writes a code point that came as \u; at is behind the u.  Returns what is behind it, or NULL. */
static const char *unescape_unicode(const char *at, const char *end, char **out)
{
    uint32_t c, low;
    if (!read_hex(at, end, &c) || c == 0 || (c >= 0xdc00 && c < 0xe000)) return NULL;
    at += 4;
    if (c >= 0xd800 && c < 0xdc00) {
        if (end - at < 6 || at[0] != '\\' || at[1] != 'u' || !read_hex(at + 2, end, &low) ||
            low < 0xdc00 || low > 0xdfff)
            return NULL;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    char *o = *out;
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xc0 | c >> 6);
        *o++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *o++ = (char)(0xe0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    } else {
        *o++ = (char)(0xf0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 63));
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    }
    *out = o;
    return at;
}

/* Bytes of the UTF-8 sequence at at: 2 to 4, or 0 if it is not one. */
static size_t utf8_bytes(const char *at, const char *end)
{
    const unsigned char *b = (const unsigned char *)at;
    const size_t left = (size_t)(end - at);
    const size_t n = b[0] >= 0xc2 && b[0] < 0xe0   ? 2
                     : b[0] >= 0xe0 && b[0] < 0xf0 ? 3
                     : b[0] >= 0xf0 && b[0] < 0xf5 ? 4
                                                   : 0;
    if (n == 0 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((b[i] & 0xc0) != 0x80) return 0;
    if ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] > 0x9f)) return 0;
    if ((b[0] == 0xf0 && b[1] < 0x90) || (b[0] == 0xf4 && b[1] > 0x8f)) return 0;
    return n;
}

static enum qrn_status parse_string(struct parser *p)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    struct qrn_json_value *v = p->next_value++;
    char *out = p->next_text;
    const char *at = p->at + 1;
    while (at < p->end && *at != '"') {
        const unsigned char c = (unsigned char)*at;
        if (c < 0x20) return fail_at(p, at, "control character in a string");
        if (c >= 0x80) {
            const size_t n = utf8_bytes(at, p->end);
            if (n == 0) return fail_at(p, at, "string is not UTF-8");
            memcpy(out, at, n);
            out += n;
            at += n;
        } else if (c != '\\') {
            *out++ = *at++;
        } else if (at + 1 < p->end && at[1] == 'u') {
            const char *behind = unescape_unicode(at + 2, p->end, &out);
            if (!behind) return fail_at(p, at, "\\u escape of no character, or of NUL");
            at = behind;
        } else {
            const char *found = at + 1 < p->end && at[1] ? strchr(letters, at[1]) : NULL;
            if (!found) return fail_at(p, at, "unknown escape");
            *out++ = meanings[found - letters];
            at += 2;
        }
    }
    if (at == p->end) return fail_at(p, at, "text ends inside a string");
    *v = (struct qrn_json_value){.type = QRN_JSON_STRING,
                                 .n = (uint32_t)(out - p->next_text),
                                 .n_all = 1,
                                 .as.string = p->next_text};
    *out++ = '\0';
    p->next_text = out;
    p->at = at + 1;
    return QRN_OK;
}

/* --- numbers --- */

/* mantissa * 10^exponent: correctly rounded where both are exact as doubles, else to about 1e-15.
 * No strtod: it obeys the locale of the host program. */
static double scale_decimal(uint64_t mantissa, int64_t exponent)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (mantissa == 0 || exponent < -400) return 0;
    if (exponent > 400) return INFINITY;
    if (mantissa <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22)
        return exponent < 0 ? (double)mantissa / powers[-exponent]
                            : (double)mantissa * powers[exponent];
    return (double)((long double)mantissa * powl(10.0L, (long double)exponent));
}

static const char *read_digits(const char *at, const char *end, uint64_t *mantissa,
                               int64_t *n_dropped)
{
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (*mantissa <= (UINT64_MAX - 9) / 10)
            *mantissa = *mantissa * 10 + (uint64_t)(*at - '0');
        else
            ++*n_dropped;
    }
    return at;
}

static enum qrn_status parse_number(struct parser *p)
{
    const char *at = p->at, *digits;
    uint64_t mantissa = 0;
    int64_t exponent = 0, n_dropped = 0;
    const bool negative = *at == '-';
    bool whole = true;
    digits = at += negative;
    at = read_digits(at, p->end, &mantissa, &n_dropped);
    if (at == digits || (*digits == '0' && at > digits + 1))
        return fail_at(p, p->at, at == digits ? "unexpected character" : "number begins with 0");
    exponent += n_dropped;
    if (at < p->end && *at == '.') {
        int64_t n_dropped_behind = 0;
        digits = ++at;
        at = read_digits(at, p->end, &mantissa, &n_dropped_behind);
        if (at == digits) return fail_at(p, at, "digit expected");
        exponent -= (int64_t)(at - digits) - n_dropped_behind;
        whole = false;
    }
    if (at < p->end && (*at == 'e' || *at == 'E')) {
        uint64_t power = 0;
        int64_t ignored = 0;
        const bool down = ++at < p->end && *at == '-';
        if (at < p->end && (*at == '-' || *at == '+')) at++;
        digits = at;
        at = read_digits(at, p->end, &power, &ignored);
        if (at == digits) return fail_at(p, at, "digit expected");
        if (power > 1000000) power = 1000000; /* out of range either way */
        exponent += down ? -(int64_t)power : (int64_t)power;
        whole = false;
    }
    struct qrn_json_value *v = p->next_value++;
    *v = (struct qrn_json_value){.type = QRN_JSON_NUMBER, .n_all = 1};
    if (whole && n_dropped == 0 && mantissa <= (uint64_t)INT64_MAX + negative) {
        v->type = QRN_JSON_INTEGER;
        v->as.integer = !negative ? (int64_t)mantissa : mantissa ? -(int64_t)(mantissa - 1) - 1 : 0;
    } else {
        const double d = scale_decimal(mantissa, exponent);
        if (!isfinite(d)) return fail_at(p, p->at, "number out of range");
        v->as.number = negative ? -d : d;
    }
    p->at = at;
    return QRN_OK;
}

/* --- everything --- */

static enum qrn_status parse_literal(struct parser *p)
{
    static const struct {
        const char *text;
        enum qrn_json_type type;
        bool boolean;
    } literals[] = {{"null", QRN_JSON_NULL, false},
                    {"true", QRN_JSON_BOOL, true},
                    {"false", QRN_JSON_BOOL, false}};
    for (size_t i = 0; i < sizeof literals / sizeof *literals; i++) {
        const size_t n = strlen(literals[i].text);
        if ((size_t)(p->end - p->at) < n || memcmp(p->at, literals[i].text, n) != 0) continue;
        *p->next_value++ = (struct qrn_json_value){
            .type = literals[i].type, .n_all = 1, .as.boolean = literals[i].boolean};
        p->at += n;
        return QRN_OK;
    }
    return fail_at(p, p->at, p->at < p->end ? "unexpected character" : "text ends before a value");
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum qrn_status fail_twice(struct parser *p, const char *key)
{
    return qrn_fail(p->err, QRN_ERR_FORMAT, "JSON: key %s occurs twice in one object",
                    qrn_quote(key, strlen(key)).text);
}

static enum qrn_status check_few_keys(struct parser *p, const struct qrn_json_value *object)
{
    const struct qrn_json_value *k = object + 1;
    for (uint32_t i = 0; i < object->n; i++, k = qrn_json_next(k + 1)) {
        const struct qrn_json_value *before = object + 1;
        for (uint32_t j = 0; j < i; j++, before = qrn_json_next(before + 1))
            if (strcmp(before->as.string, k->as.string) == 0) return fail_twice(p, k->as.string);
    }
    return QRN_OK;
}

static enum qrn_status check_keys(struct parser *p, const struct qrn_json_value *object)
{
    if (object->n <= 8) return check_few_keys(p, object);
    const char **keys = qrn_alloc(p->allocator, object->n * sizeof *keys);
    if (!keys) return qrn_fail_memory(p->err, object->n * sizeof *keys, "JSON");
    const struct qrn_json_value *k = object + 1;
    for (uint32_t i = 0; i < object->n; i++, k = qrn_json_next(k + 1)) keys[i] = k->as.string;
    qsort(keys, object->n, sizeof *keys, compare_texts);
    enum qrn_status s = QRN_OK;
    for (uint32_t i = 1; i < object->n && s == QRN_OK; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0) s = fail_twice(p, keys[i]);
    qrn_free(p->allocator, keys, object->n * sizeof *keys);
    return s;
}

static enum qrn_status parse_value(struct parser *p, int depth);

static enum qrn_status parse_member(struct parser *p, int depth)
{
    if (peek(p) != '"') return fail_at(p, p->at, "key expected");
    QRN_TRY(parse_string(p));
    if (peek(p) != ':') return fail_at(p, p->at, "':' expected");
    p->at++;
    return parse_value(p, depth);
}

static enum qrn_status parse_container(struct parser *p, int depth)
{
    struct qrn_json_value *v = p->next_value++;
    const bool is_object = *p->at == '{';
    const char close = is_object ? '}' : ']';
    if (depth == QRN_JSON_MAX_DEPTH)
        return qrn_fail(p->err, QRN_ERR_FORMAT, "JSON nests more than %d levels deep",
                        QRN_JSON_MAX_DEPTH);
    *v = (struct qrn_json_value){.type = is_object ? QRN_JSON_OBJECT : QRN_JSON_ARRAY};
    p->at++;
    while (peek(p) != close) {
        if (v->n > 0) {
            if (p->at == p->end || *p->at != ',')
                return fail_at(p, p->at, is_object ? "',' or '}' expected" : "',' or ']' expected");
            p->at++;
        }
        QRN_TRY(is_object ? parse_member(p, depth + 1) : parse_value(p, depth + 1));
        v->n++;
    }
    p->at++;
    v->n_all = (uint32_t)(p->next_value - v);
    return is_object ? check_keys(p, v) : QRN_OK;
}

static enum qrn_status parse_value(struct parser *p, int depth)
{
    const char c = peek(p);
    if (c == '{' || c == '[') return parse_container(p, depth);
    if (c == '"') return parse_string(p);
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(p);
    return parse_literal(p);
}

static enum qrn_status parse_all(struct parser *p)
{
    QRN_TRY(parse_value(p, 0));
    skip_space(p);
    return p->at == p->end ? QRN_OK : fail_at(p, p->at, "text behind the value");
}

enum qrn_status qrn_json_parse(const void *text, size_t n_bytes, size_t budget,
                               const struct qrn_host *host, struct qrn_json *json,
                               struct qrn_error *err)
{
    *json = (struct qrn_json){0};
    if (host) json->allocator = host->allocator;
    size_t n_all;
    if (n_bytes >= UINT32_MAX / 2)
        return qrn_fail(err, QRN_ERR_FORMAT, "JSON of %zu bytes, the limit is %" PRIu32, n_bytes,
                        UINT32_MAX / 2);
    measure(text, n_bytes, &json->n_values, &json->n_text);
    /* One list of keys may be sorted at a time, beside the values. */
    if (!qrn_mul_size(json->n_values, sizeof *json->values + sizeof(char *), &n_all) ||
        !qrn_add_size(n_all, json->n_text, &n_all) || n_all > budget) {
        *json = (struct qrn_json){0};
        return qrn_fail(
            err, QRN_ERR_FORMAT,
            "JSON of %zu bytes holds too many values: they would take %zu bytes of memory, "
            "the limit is %zu",
            n_bytes, n_all, budget);
    }
    json->values = qrn_alloc(&json->allocator, json->n_values * sizeof *json->values);
    json->text = qrn_alloc(&json->allocator, json->n_text);
    struct parser p = {.at = text,
                       .start = text,
                       .next_value = json->values,
                       .next_text = json->text,
                       .allocator = &json->allocator,
                       .err = err};
    p.end = p.start + n_bytes;
    const enum qrn_status s =
        json->values && json->text ? parse_all(&p) : qrn_fail_memory(err, n_all, "JSON");
    if (s != QRN_OK) qrn_json_free(json);
    return s;
}

void qrn_json_free(struct qrn_json *json)
{
    qrn_free(&json->allocator, json->values, json->n_values * sizeof *json->values);
    qrn_free(&json->allocator, json->text, json->n_text);
    *json = (struct qrn_json){0};
}

const struct qrn_json_value *qrn_json_member(const struct qrn_json_value *object, const char *key)
{
    if (!qrn_json_is(object, QRN_JSON_OBJECT)) return NULL;
    const struct qrn_json_value *k = object + 1;
    for (uint32_t i = 0; i < object->n; i++, k = qrn_json_next(k + 1))
        if (strcmp(k->as.string, key) == 0) return k + 1;
    return NULL;
}

bool qrn_json_number(const struct qrn_json_value *v, double *out)
{
    if (qrn_json_is(v, QRN_JSON_INTEGER))
        *out = (double)v->as.integer;
    else if (qrn_json_is(v, QRN_JSON_NUMBER))
        *out = v->as.number;
    else
        return false;
    return true;
}
