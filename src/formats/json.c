/* SPDX-License-Identifier: MIT
 * JSON from untrusted bytes, as jansson's values, within bounds of depth and memory. */
#include "formats/json.h"

#include <stdbool.h>
#include <string.h>
#include "base/error.h"
#include "base/quote.h"

#define MAX_DEPTH 64

/* Upper bounds of what jansson 2.14 allocates on 64 bits, allocator overhead included. */
#define CONTAINER_BYTES 240 /* an object with its first buckets; an array takes less */
#define VALUE_BYTES     88  /* a string or number, and its place in a growing array */
#define PAIR_BYTES      128 /* key header, and its place in a growing table */
#define TOKEN_FACTOR    5   /* a string while it is read: a doubling buffer and two copies */

/* What the text would take as values, how deep it nests, and the bytes of its longest string or
 * word.  One pass, whatever the bytes are: it counts at least what a parser could see before it finds an
 * error. */
static size_t measure(const char *text, size_t n_bytes, size_t *deepest, size_t *n_longest)
{
    size_t cost = CONTAINER_BYTES, depth = 0, string = 0, word = 0, longest = 0;
    bool in_string = false;
    *deepest = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const char c = text[i];
        if (in_string) {
            string++;
            if (c == '\\') {
                i++;
                string++;
            } else if (c == '"') {
                in_string = false;
            }
            if (string > longest) longest = string;
            cost++;
            continue;
        }
        word++;
        switch (c) {
        case '"':
            in_string = true;
            string = 0;
            break;
        case '{':
        case '[':
            cost += CONTAINER_BYTES;
            if (++depth > *deepest) *deepest = depth;
            break;
        case '}':
        case ']': depth -= depth > 0; break;
        case ',': cost += VALUE_BYTES; break;
        case ':': cost += PAIR_BYTES; break;
        case ' ':
        case '\t':
        case '\r':
        case '\n': break;
        default:
            if (word > longest) longest = word;
            continue;
        }
        word = 0;
    }
    *n_longest = longest;
    return cost + TOKEN_FACTOR * longest;
}

/* What jansson reads: ["xxx", a newline, the text, ].  When the buffer of its lexer cannot grow,
 * jansson 2.14 drops a byte and goes on; so a string as long as any in the text comes first, which
 * makes the buffer grow where it can be checked. */
struct feed {
    const char *text;
    size_t n_text, n_pad; /* of x */
    size_t at;            /* what was given of the whole */
};

static size_t give(void *buffer, size_t n_buffer, void *user)
{
    struct feed *const f = user;
    const size_t n_before = f->n_pad + 5; /* [" x... " , newline */
    char *const out = buffer;
    size_t n = 0;
    for (; n < n_buffer && f->at < n_before; f->at++) {
        const size_t left = n_before - f->at;
        out[n++] = f->at == 0   ? '['
                   : f->at == 1 ? '"'
                   : left == 3  ? '"'
                   : left == 2  ? ','
                   : left == 1  ? '\n'
                                : 'x';
    }
    const size_t end = n_before + f->n_text;
    if (f->at >= n_before && f->at < end) {
        const size_t n_now = end - f->at < n_buffer - n ? end - f->at : n_buffer - n;
        memcpy(out + n, f->text + (f->at - n_before), n_now);
        n += n_now;
        f->at += n_now;
    }
    if (n < n_buffer && f->at == end) {
        out[n++] = ']';
        f->at++;
    }
    return n;
}

/* The value that the text is, or NULL. */
static json_t *load(struct feed *f, unsigned flags, json_error_t *why)
{
    json_t *const both = json_load_callback(give, f, flags | JSON_REJECT_DUPLICATES, why);
    if (!both) return NULL;
    json_t *value = NULL;
    if (json_string_length(json_array_get(both, 0)) == f->n_pad) value = json_array_get(both, 1);
    if (value && json_array_size(both) > 2) {
        *why = (json_error_t){.line = why->line, .column = why->column, .text = "end expected"};
        why->text[sizeof why->text - 1] = json_error_end_of_input_expected;
        value = NULL;
    }
    json_incref(value);
    json_decref(both);
    return value;
}

enum qrn_status qrn_json_parse_flags(const void *text, size_t n_bytes, size_t budget, unsigned flags,
                                     json_t **out, struct qrn_error *err)
{
    size_t depth, n_longest;
    *out = NULL;
    const size_t cost = measure(text, n_bytes, &depth, &n_longest);
    if (depth > MAX_DEPTH)
        return qrn_fail(err, QRN_ERR_FORMAT, "JSON nests %zu levels deep, the limit is %d", depth,
                        MAX_DEPTH);
    if (cost > budget)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "JSON of %zu bytes holds too many values: they would take %zu bytes of memory, "
                        "the limit is %zu",
                        n_bytes, cost, budget);
    json_error_t why = {0};
    struct feed f = {.text = text, .n_text = n_bytes, .n_pad = n_longest + 1};
    *out = load(&f, flags, &why);
    if (*out) return QRN_OK;
    /* No reason at all: memory is short somewhere in the parser. */
    if (json_error_code(&why) == json_error_out_of_memory ||
        json_error_code(&why) == json_error_unknown)
        return qrn_fail_memory(err, cost, "JSON");
    const struct qrn_quoted reason = qrn_quote(why.text, strlen(why.text));
    return qrn_fail(err, QRN_ERR_FORMAT, "JSON, line %d column %d: %s", why.line - 1, why.column,
                    reason.text);
}
