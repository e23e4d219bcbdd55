/* SPDX-License-Identifier: MIT
 * What the tests of tokenizers share: files, seeded numbers, comparing ids. */
#ifndef TESTS_TEXT_TOKENIZER_TEST_H
#define TESTS_TEXT_TOKENIZER_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <quern/text.h>
#include "support/temp.h"

#define SMALL_JSON "tests/data/small_tokenizer.json"
#define FAIRY_JSON "models/fairy/tokenizer.json"

/* The whole file; the test fails if it cannot be read.  Free bytes as a char *. */
static inline char *need_file(const char *path, size_t *n_bytes)
{
    char *const bytes = read_file(path, n_bytes);
    if (!bytes) fail_msg("%s cannot be read; run the tests in the repository's root", path);
    return bytes;
}

static inline struct qrn_tokenizer *open_tokenizer(const char *path, const struct qrn_host *host)
{
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err = {0};
    size_t n_bytes;
    char *const bytes = need_file(path, &n_bytes);
    const enum qrn_status status = qrn_tokenizer_create_json(
        (struct qrn_span){bytes, n_bytes}, (struct qrn_span){0}, host, &t, &err);
    free(bytes);
    if (status != QRN_OK) fail_msg("%s: %s", path, err.text);
    return t;
}

/* splitmix64 */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline size_t random_below(uint64_t *state, size_t n)
{
    return (size_t)(next_random(state) % n);
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline json_t *load_json(const char *path)
{
    json_error_t reason;
    json_t *const root = json_load_file(path, JSON_ALLOW_NUL, &reason);
    if (!root) fail_msg("%s: %s", path, reason.text);
    return root;
}

static inline void assert_ids(const struct qrn_token_list *list, const json_t *wanted,
                              const char *text)
{
    bool same = list->n_ids == json_array_size(wanted);
    for (size_t i = 0; same && i < list->n_ids; i++)
        same = list->ids[i] == json_integer_value(json_array_get(wanted, i));
    if (same) return;
    print_message("got ");
    for (size_t i = 0; i < list->n_ids; i++) print_message(" %d", (int)list->ids[i]);
    print_message("\nwant");
    for (size_t i = 0; i < json_array_size(wanted); i++)
        print_message(" %d", (int)json_integer_value(json_array_get(wanted, i)));
    fail_msg("ids of \"%s\"", text);
}

static inline void assert_text(struct qrn_span got, const char *wanted, size_t n_wanted)
{
    if (got.n_bytes == n_wanted && !memcmp(got.bytes, wanted, n_wanted)) return;
    fail_msg("got \"%.*s\" (%zu bytes), want \"%.*s\" (%zu bytes)", (int)got.n_bytes, got.bytes,
             got.n_bytes, (int)n_wanted, wanted, n_wanted);
}

#endif
