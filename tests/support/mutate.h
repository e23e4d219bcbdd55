/* SPDX-License-Identifier: MIT
 * Mutations that know the structure of what they damage, and a count of how it was refused. */
#ifndef TESTS_SUPPORT_MUTATE_H
#define TESTS_SUPPORT_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* Numbers that depend on the seed alone. */
struct mutate_random {
    uint64_t state;
};
uint64_t mutate_next(struct mutate_random *r);
size_t mutate_below(struct mutate_random *r, size_t n); /* 0 .. n - 1; n > 0 */

struct mutate_bytes {
    uint8_t *bytes; /* malloced; free it */
    size_t n;
};
struct mutate_bytes mutate_copy(const void *bytes, size_t n);

/* Bytes of a GGUF file that was good: numbers of its fields become extreme or those of other
 * fields, entries double, go or change places, the file ends early or late. */
void mutate_gguf(struct mutate_random *r, struct mutate_bytes *b);

/* JSON text that was good: values become others, extreme or of other types; keys double or go;
 * values nest deeply; the text ends early. */
void mutate_json(struct mutate_random *r, struct mutate_bytes *b);

/* A safetensors file that was good: its header as JSON, its length, its data. */
void mutate_safetensors(struct mutate_random *r, struct mutate_bytes *b);

/* How often each check refused: texts that differ only in names and numbers are one. */
#define MUTATE_MAX_KINDS 256
struct mutate_tally {
    struct {
        char text[120];
        size_t n;
    } kinds[MUTATE_MAX_KINDS];
    size_t n_kinds, n_refused, n_accepted;
};
void mutate_count_refusal(struct mutate_tally *t, const char *text);
void mutate_print(const struct mutate_tally *t, const char *title);
/* Refusals whose text contains one of the words (n of them). */
size_t mutate_refused_by(const struct mutate_tally *t, const char *const *words, size_t n);

#endif
