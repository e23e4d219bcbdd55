/* SPDX-License-Identifier: MIT
 * Mutations: what they share, and safetensors; JSON and GGUF are beside it. */
#include "support/mutate.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t mutate_next(struct mutate_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t mutate_below(struct mutate_random *r, size_t n)
{
    return (size_t)(mutate_next(r) % n);
}

struct mutate_bytes mutate_copy(const void *bytes, size_t n)
{
    struct mutate_bytes b = {malloc(n + 1), n};
    if (!b.bytes) abort();
    if (n) memcpy(b.bytes, bytes, n);
    return b;
}

static uint64_t load(const uint8_t *bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)bytes[i] << (8 * i);
    return v;
}

static void store(uint8_t *bytes, uint64_t v)
{
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> (8 * i));
}

void mutate_safetensors(struct mutate_random *r, struct mutate_bytes *b)
{
    const size_t n_header = (size_t)load(b->bytes), n_data = b->n - 8 - n_header;
    struct mutate_bytes header = mutate_copy(b->bytes + 8, n_header);
    const size_t what = mutate_below(r, 16);
    size_t n_claimed, n_kept = n_data;
    if (what > 1) mutate_json(r, &header);
    n_claimed = header.n;
    if (what == 0) {
        static const uint64_t lengths[] = {0,          1,
                                           2,          99999999,
                                           100000000,  100000001,
                                           1u << 31,   (uint64_t)1 << 63,
                                           UINT64_MAX, UINT64_MAX - 7};
        n_claimed = (size_t)lengths[mutate_below(r, sizeof lengths / sizeof *lengths)];
    } else if (what == 1) {
        n_kept = mutate_below(r, n_data + 1);
    } else if (what == 2) {
        n_claimed += mutate_below(r, 9) - 4;
    }
    struct mutate_bytes out = {malloc(8 + header.n + n_data + 64), 0};
    if (!out.bytes) abort();
    store(out.bytes, n_claimed);
    memcpy(out.bytes + 8, header.bytes, header.n);
    memcpy(out.bytes + 8 + header.n, b->bytes + 8 + n_header, n_kept);
    out.n = 8 + header.n + n_kept;
    if (mutate_below(r, 40) == 0) {
        memset(out.bytes + out.n, 0xff, 64);
        out.n += 1 + mutate_below(r, 64);
    }
    free(header.bytes);
    free(b->bytes);
    *b = out;
}

/* Writes text without the file's name, names and numbers; JSON errors without what stood there. */
static void generalise(const char *text, char *kind, size_t n_kind)
{
    const char *name_end = strstr(text, ": ");
    const char *json = strstr(text, "JSON, line");
    size_t n = 0;
    if (name_end && strcspn(text, " ") == (size_t)(name_end - text) + 1) text = name_end + 2;
    if (json) text = json;
    while (*text && n < n_kind - 1) {
        if (json && (strncmp(text, " near", 5) == 0 || strncmp(text, "byte", 4) == 0)) break;
        if (*text == '"') {
            const char *end = strchr(text + 1, '"');
            kind[n++] = '@';
            text = end ? end + 1 : text + strlen(text);
        } else if (isdigit((unsigned char)*text) &&
                   (n == 0 || !isalnum((unsigned char)kind[n - 1]))) {
            kind[n++] = '#';
            text += text[0] == '0' && text[1] == 'x' ? 2 : 0;
            while (isdigit((unsigned char)*text) ||
                   (*text == '.' && isdigit((unsigned char)text[1])))
                text++;
        } else {
            kind[n++] = *text++;
        }
    }
    kind[n] = '\0';
}

void mutate_count_refusal(struct mutate_tally *t, const char *text)
{
    char kind[sizeof t->kinds[0].text];
    t->n_refused++;
    generalise(text, kind, sizeof kind);
    for (size_t i = 0; i < t->n_kinds; i++)
        if (strcmp(t->kinds[i].text, kind) == 0) {
            t->kinds[i].n++;
            return;
        }
    if (t->n_kinds == MUTATE_MAX_KINDS) return;
    strcpy(t->kinds[t->n_kinds].text, kind);
    t->kinds[t->n_kinds++].n = 1;
}

void mutate_print(const struct mutate_tally *t, const char *title)
{
    bool printed[MUTATE_MAX_KINDS] = {false};
    printf("%s: %zu accepted, %zu refused by\n", title, t->n_accepted, t->n_refused);
    for (size_t k = 0; k < t->n_kinds; k++) {
        size_t best = MUTATE_MAX_KINDS;
        for (size_t i = 0; i < t->n_kinds; i++)
            if (!printed[i] && (best == MUTATE_MAX_KINDS || t->kinds[i].n > t->kinds[best].n))
                best = i;
        printed[best] = true;
        printf("%8zu  %s\n", t->kinds[best].n, t->kinds[best].text);
    }
}

size_t mutate_refused_by(const struct mutate_tally *t, const char *const *words, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < t->n_kinds; i++)
        for (size_t k = 0; k < n; k++)
            if (strstr(t->kinds[i].text, words[k])) {
                sum += t->kinds[i].n;
                break;
            }
    return sum;
}
