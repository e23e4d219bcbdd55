/* SPDX-License-Identifier: MIT
 * JSON from untrusted bytes, as jansson's values, within bounds of depth and memory. */
#include "formats/json.h"

#include <stdbool.h>
#include <string.h>
#include "base/error.h"
#include "formats/quote.h"

#define MAX_DEPTH 64

/* Upper bounds of what jansson 2.14 allocates on 64 bits, allocator overhead included. */
#define CONTAINER_BYTES 240 /* an object with its first buckets; an array takes less */
#define VALUE_BYTES     88  /* a string or number, and its place in a growing array */
#define PAIR_BYTES      128 /* key header, and its place in a growing table */
#define TOKEN_FACTOR    5   /* a string while it is read: a doubling buffer and two copies */

/* What the text would take as values, and how deep it nests.  One pass, whatever the bytes are: it
 * counts at least what a parser could see before it finds an error. */
static size_t measure(const char *text, size_t n_bytes, size_t *deepest)
{
    size_t cost = CONTAINER_BYTES, depth = 0, string = 0, longest = 0;
    bool in_string = false;
    *deepest = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const char c = text[i];
        if (in_string) {
            string++;
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            if (string > longest) longest = string;
            cost++;
            continue;
        }
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
        default: break;
        }
    }
    return cost + TOKEN_FACTOR * longest;
}

enum qrn_status qrn_json_parse(const void *text, size_t n_bytes, size_t budget, json_t **out,
                               struct qrn_error *err)
{
    size_t depth;
    *out = NULL;
    const size_t cost = measure(text, n_bytes, &depth);
    if (depth > MAX_DEPTH)
        return qrn_fail(err, QRN_ERR_FORMAT, "JSON nests %zu levels deep, the limit is %d", depth,
                        MAX_DEPTH);
    if (cost > budget)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "JSON of %zu bytes holds too many values: they would take %zu bytes of memory, "
                        "the limit is %zu",
                        n_bytes, cost, budget);
    json_error_t why;
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (*out) return QRN_OK;
    if (json_error_code(&why) == json_error_out_of_memory)
        return qrn_fail_memory(err, cost, "JSON");
    qrn_make_printable(why.text); /* it quotes the file */
    return qrn_fail(err, QRN_ERR_FORMAT, "JSON, line %d column %d: %s", why.line, why.column,
                    why.text);
}
