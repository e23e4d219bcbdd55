/* SPDX-License-Identifier: MIT
 * Mutations of JSON text, token by token. */
#include "support/mutate.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 4096

struct token {
    size_t at, n;
    bool is_key;
};

static size_t tokenize(const struct mutate_bytes *b, struct token *tokens)
{
    size_t n_tokens = 0, i = 0;
    while (i < b->n && n_tokens < MAX_TOKENS) {
        const size_t start = i;
        const char c = (char)b->bytes[i++];
        if (isspace((unsigned char)c)) continue;
        if (c == '"') {
            while (i < b->n && b->bytes[i] != '"') i += b->bytes[i] == '\\' ? 2 : 1;
            i++;
        } else if (!strchr("{}[],:", c)) {
            while (i < b->n && !strchr("{}[],: \n\t\r\"", (char)b->bytes[i])) i++;
        }
        if (i > b->n) i = b->n;
        if (c == ':' && n_tokens) tokens[n_tokens - 1].is_key = true;
        tokens[n_tokens++] = (struct token){start, i - start, false};
    }
    return n_tokens;
}

static void replace(struct mutate_bytes *b, size_t at, size_t n, const void *bytes, size_t n_bytes)
{
    struct mutate_bytes out = {malloc(b->n - n + n_bytes + 1), b->n - n + n_bytes};
    if (!out.bytes) abort();
    memcpy(out.bytes, b->bytes, at);
    if (n_bytes) memcpy(out.bytes + at, bytes, n_bytes);
    memcpy(out.bytes + at + n_bytes, b->bytes + at + n, b->n - at - n);
    free(b->bytes);
    *b = out;
}

static void replace_text(struct mutate_bytes *b, size_t at, size_t n, const char *text)
{
    replace(b, at, n, text, strlen(text));
}

static const char *const numbers[] = {
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "7",
    "8",
    "12",
    "16",
    "31",
    "32",
    "33",
    "63",
    "64",
    "65",
    "127",
    "128",
    "256",
    "1024",
    "4096",
    "65536",
    "1048576",
    "1048577",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "1099511627776",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-2",
    "-9223372036854775808",
    "0.5",
    "1e3",
    "1e-320",
    "1e308",
    "1e309",
    "-0",
    "-0.0",
    "0.25",
    "1.5",
};
static const char *const values[] = {
    "null",
    "true",
    "false",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[1]",
    "[null]",
    "[[]]",
    "{\"a\":1}",
    "[1,2,3,4,5,6,7,8,9]",
    "\"F32\"",
    "\"BF16\"",
    "\"F4\"",
    "\"I64\"",
    "\"linear_attention\"",
    "\"full_attention\"",
    "\"silu\"",
    "\"yarn\"",
    "\"default\"",
    "\"qwen3_next\"",
    "\"qwen3_5_moe\"",
    "\"../x\"",
    "\"/etc/passwd\"",
    "\"..\"",
    "\"a/b\"",
    "\"s1\"",
    "\"s2\"",
    "\"model.safetensors.index.json\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\x1b[31m\"",
    "\"\xff\xfe\"",
    "NaN",
    "Infinity",
    "-Infinity",
    "nul",
    "0x10",
    "01",
    "[0,0]",
    "[4,0]",
    "[-4,4]",
    "[0,18446744073709551615]",
};

/* A number near the one that stands there. */
static void nudge(struct mutate_random *r, struct mutate_bytes *b, const struct token *t)
{
    char text[40];
    const uint64_t old = (uint64_t)strtoll((const char *)b->bytes + t->at, NULL, 10);
    static const int by[] = {-64, -8, -4, -2, -1, 1, 2, 4, 8, 64};
    snprintf(text, sizeof text, "%lld",
             (long long)(old + (uint64_t)by[mutate_below(r, sizeof by / sizeof *by)]));
    replace_text(b, t->at, t->n, text);
}

static void nest(struct mutate_random *r, struct mutate_bytes *b, const struct token *t)
{
    static const int depths[] = {3, 60, 63, 64, 65, 500, 3000, 20000};
    const size_t depth = (size_t)depths[mutate_below(r, sizeof depths / sizeof *depths)];
    const bool objects = mutate_below(r, 2) == 0, closed = mutate_below(r, 4) != 0;
    const size_t each = objects ? 5 : 1;
    char *text = malloc(depth * (each + 1) + 2);
    if (!text) abort();
    size_t n = 0;
    for (size_t i = 0; i < depth; i++, n += each) memcpy(text + n, objects ? "{\"a\":" : "[", each);
    if (objects) text[n++] = '0';
    for (size_t i = 0; i < depth && closed; i++) text[n++] = objects ? '}' : ']';
    replace(b, t->at, t->n, text, n);
    free(text);
}

static bool is_word(const struct mutate_bytes *b, const struct token *t)
{
    return !strchr("{}[],:", (char)b->bytes[t->at]);
}

static bool is_number(const struct mutate_bytes *b, const struct token *t)
{
    const char c = (char)b->bytes[t->at];
    return isdigit((unsigned char)c) || c == '-';
}

/* A value takes the place of another of the same text: names double, offsets cross. */
static void copy_word(struct mutate_random *r, struct mutate_bytes *b, const struct token *tokens,
                      size_t n_tokens, const struct token *to)
{
    for (int tries = 0; tries < 50; tries++) {
        const struct token *from = &tokens[mutate_below(r, n_tokens)];
        if (from == to || !is_word(b, from) || from->is_key != to->is_key) continue;
        if (is_number(b, from) != is_number(b, to)) continue;
        struct mutate_bytes text = mutate_copy(b->bytes + from->at, from->n);
        replace(b, to->at, to->n, text.bytes, text.n);
        free(text.bytes);
        return;
    }
}

/* Tokens of the array or object that begins at token i. */
static size_t span_of(const struct mutate_bytes *b, const struct token *tokens, size_t n_tokens,
                      size_t i)
{
    size_t depth = 0;
    for (size_t k = i; k < n_tokens; k++) {
        const char c = (char)b->bytes[tokens[k].at];
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        if (depth == 0) return k - i + 1;
    }
    return 1;
}

/* A whole array or object takes the place of another: shapes and offsets of another tensor. */
static void copy_span(struct mutate_random *r, struct mutate_bytes *b, const struct token *tokens,
                      size_t n_tokens)
{
    size_t found[2] = {0, 0};
    for (int tries = 0; tries < 400 && !(found[0] && found[1]); tries++) {
        const size_t i = mutate_below(r, n_tokens);
        const char c = (char)b->bytes[tokens[i].at];
        if (i == 0 || (c != '[' && c != '{')) continue;
        if (!found[0])
            found[0] = i;
        else if (i != found[0] && c == (char)b->bytes[tokens[found[0]].at])
            found[1] = i;
    }
    if (!found[0] || !found[1]) return;
    size_t at[2], n[2];
    for (int k = 0; k < 2; k++) {
        const struct token *last = &tokens[found[k] + span_of(b, tokens, n_tokens, found[k]) - 1];
        at[k] = tokens[found[k]].at;
        n[k] = last->at + last->n - at[k];
    }
    struct mutate_bytes text = mutate_copy(b->bytes + at[1], n[1]);
    replace(b, at[0], n[0], text.bytes, text.n);
    free(text.bytes);
}

static void mutate_token(struct mutate_random *r, struct mutate_bytes *b,
                         const struct token *tokens, size_t n_tokens)
{
    const struct token *t = &tokens[mutate_below(r, n_tokens)];
    for (int tries = 0; tries < 50 && (!is_word(b, t) || (t->is_key && mutate_below(r, 4)));
         tries++)
        t = &tokens[mutate_below(r, n_tokens)];
    const size_t n_values = sizeof values / sizeof *values,
                 n_numbers = sizeof numbers / sizeof *numbers;
    switch (mutate_below(r, 26)) {
    case 0:
        nest(r, b, t);
        return;
    case 1:
        replace_text(b, t->at, t->n, "");
        return;
    case 2: { /* any token goes, or doubles */
        t = &tokens[mutate_below(r, n_tokens)];
        struct mutate_bytes text = mutate_copy(b->bytes + t->at, t->n);
        replace(b, t->at, mutate_below(r, 2) ? t->n : 0, text.bytes, mutate_below(r, 2) ? t->n : 0);
        free(text.bytes);
        return;
    }
    case 3:
    case 4:
    case 5:
        copy_word(r, b, tokens, n_tokens, t);
        return;
    case 6:
        b->bytes[t->at + mutate_below(r, t->n)] = (uint8_t)mutate_next(r);
        return;
    case 7:
        b->n = mutate_below(r, b->n + 1);
        return;
    case 8:
    case 9:
    case 10:
    case 11:
        copy_span(r, b, tokens, n_tokens);
        return;
    case 12:
    case 13:
    case 14:
        if (!t->is_key) replace_text(b, t->at, t->n, values[mutate_below(r, n_values)]);
        return;
    default:
        if (!is_number(b, t))
            copy_word(r, b, tokens, n_tokens, t);
        else if (mutate_below(r, 2))
            nudge(r, b, t);
        else
            replace_text(b, t->at, t->n, numbers[mutate_below(r, n_numbers)]);
        return;
    }
}

void mutate_json(struct mutate_random *r, struct mutate_bytes *b)
{
    static struct token tokens[MAX_TOKENS];
    const size_t n = 1 + mutate_below(r, 3) / 2;
    for (size_t i = 0; i < n; i++) {
        const size_t n_tokens = tokenize(b, tokens);
        if (n_tokens == 0) return;
        mutate_token(r, b, tokens, n_tokens);
    }
}
