/* SPDX-License-Identifier: MIT
 * Damaged tokenizer.json files, 20,000 of them made from a good one by changes of its structure
 * and of its bytes: a clear error or a tokenizer that works; no leak, bounded memory, under a
 * second. */
#include "text/tokenizer_test.h"

#include "support/counting_allocator.h"

enum { N_MUTATIONS = 20000 };

/* --- changes of the structure --- */

static json_t *nested(size_t depth)
{
    json_t *inner = json_integer(1);
    for (size_t i = 0; i < depth; i++) {
        json_t *outer = i % 2 ? json_object() : json_array();
        if (i % 2)
            json_object_set_new(outer, "vocab", inner);
        else
            json_array_append_new(outer, inner);
        inner = outer;
    }
    return inner;
}

static json_t *long_string(uint64_t *seed)
{
    const size_t n = random_below(seed, 3000);
    char *const text = malloc(n + 1);
    assert_non_null(text);
    memset(text, "a<\x7f "[random_below(seed, 4)], n);
    json_t *const s = json_stringn(text, n);
    free(text);
    return s;
}

/* Values of every type, also such that are right somewhere else. */
static json_t *random_value(uint64_t *seed)
{
    static const char *const texts[] = {
        "",          " ",       "a b",      "t h",      "th e",        "a",     "ab",
        "\xc4\xa0",  "NFC",     "BPE",      "NFKC",     "ByteLevel",   "Split", "a b c",
        "<|end|>",   "\n",      "Isolated", "Sequence", "\xc2\x80 a",  "  ",    "no such token",
        "\xc3\xa9",  "e\xcc\x81", "\xf0\x9f\x99\x82",
    };
    enum { N_TEXTS = sizeof texts / sizeof *texts };
    static const json_int_t numbers[] = {
        0, 1, -1, 97, 255, 298, 299, 305, 307, 5000, 66763, 66764, 66765, 100000, 2147483647,
        2147483648, 4294967295, 4294967296, INT64_MAX, INT64_MIN,
    };
    switch (random_below(seed, 12)) {
    case 0: return json_null();
    case 1: return json_boolean(random_below(seed, 2));
    case 2: return json_real(random_below(seed, 2) ? 1e300 : 97.0);
    case 3: return json_array();
    case 4: return json_object();
    case 5: return nested(random_below(seed, 100));
    case 6: return long_string(seed);
    case 7:
        return json_pack("[s, s]", texts[random_below(seed, N_TEXTS)],
                         texts[random_below(seed, N_TEXTS)]);
    case 8:
    case 9: return json_integer(numbers[random_below(seed, sizeof numbers / sizeof *numbers)]);
    default: return json_string(texts[random_below(seed, N_TEXTS)]);
    }
}

/* Changes one entry of an object. */
static void change_entry(json_t *object, void *it, uint64_t *seed)
{
    char key[200];
    snprintf(key, sizeof key, "%s", json_object_iter_key(it));
    json_t *const value = json_incref(json_object_iter_value(it));
    switch (random_below(seed, 6)) {
    case 0: json_object_del(object, key); break;
    case 1: json_object_set_new(object, "another", json_incref(value)); break;
    case 2: /* renamed */
        json_object_del(object, key);
        strcat(key, "x");
        json_object_set_new(object, key, json_incref(value));
        break;
    case 3: /* a number that is near */
        if (json_is_integer(value)) {
            const json_int_t change = (json_int_t)random_below(seed, 5) - 2;
            json_object_set_new(object, key, json_integer(json_integer_value(value) + change));
            break;
        }
        /* fallthrough */
    default: json_object_set_new(object, key, random_value(seed)); break;
    }
    json_decref(value);
}

static void change_element(json_t *array, size_t i, uint64_t *seed)
{
    const size_t n = json_array_size(array), other = random_below(seed, n);
    json_t *const value = json_incref(json_array_get(array, i));
    switch (random_below(seed, 6)) {
    case 0: json_array_remove(array, i); break;
    case 1: json_array_insert_new(array, other, json_incref(value)); break;
    case 2: /* exchanged */
        json_array_set_new(array, i, json_incref(json_array_get(array, other)));
        json_array_set_new(array, other, json_incref(value));
        break;
    case 3: json_array_clear(array); break;
    default: json_array_set_new(array, i, random_value(seed)); break;
    }
    json_decref(value);
}

/* Goes down at random and changes what is there. */
static void change_structure(json_t *value, uint64_t *seed)
{
    for (;;) {
        const bool stop = random_below(seed, 4) == 0;
        if (json_is_object(value) && json_object_size(value)) {
            void *it = json_object_iter(value);
            for (size_t i = random_below(seed, json_object_size(value)); i; i--)
                it = json_object_iter_next(value, it);
            json_t *const child = json_object_iter_value(it);
            if (stop || !(json_is_object(child) || json_is_array(child))) {
                change_entry(value, it, seed);
                return;
            }
            value = child;
        } else if (json_is_array(value) && json_array_size(value)) {
            const size_t i = random_below(seed, json_array_size(value));
            json_t *const child = json_array_get(value, i);
            if (stop || !(json_is_object(child) || json_is_array(child))) {
                change_element(value, i, seed);
                return;
            }
            value = child;
        } else {
            return;
        }
    }
}

/* Most of a tokenizer is its vocabulary, merges and added tokens: go there more often. */
static void change_tree(json_t *root, uint64_t *seed)
{
    json_t *const model = json_object_get(root, "model");
    json_t *const parts[] = {root, root, json_object_get(root, "added_tokens"),
                             json_object_get(model, "vocab"), json_object_get(model, "merges")};
    json_t *const part = parts[random_below(seed, sizeof parts / sizeof *parts)];
    change_structure(part ? part : root, seed);
}

/* --- changes of the bytes --- */

static char *change_bytes(char *text, size_t *n_bytes, uint64_t *seed)
{
    static const char *const pieces[] = {
        "\"", "\\", "{", "}", "[", "]", ",", ":", "\\ud800", "\\u0000", "\xff", "\xc0\x80", "-",
        "\xed\xa0\x80", "1e999", "99999999999999999999", "\"vocab\":{},", "\"a\":1,", "null",
        "[[[[[[[[[[[[[[",
    };
    const size_t n = *n_bytes, at = random_below(seed, n + 1);
    switch (random_below(seed, 4)) {
    case 0: *n_bytes = at; return text; /* cut */
    case 1:
        if (at < n) text[at] = (char)random_below(seed, 256);
        return text;
    case 2: { /* a part gone */
        const size_t n_gone = random_below(seed, n - at + 1);
        memmove(text + at, text + at + n_gone, n - at - n_gone);
        *n_bytes = n - n_gone;
        return text;
    }
    default: break;
    }
    const size_t n_times = random_below(seed, 20) ? 1 : 3000;
    const char *const piece = pieces[random_below(seed, sizeof pieces / sizeof *pieces)];
    const size_t n_piece = strlen(piece), n_more = n_piece * n_times;
    char *const longer = realloc(text, n + n_more + 1);
    assert_non_null(longer);
    memmove(longer + at + n_more, longer + at, n - at);
    for (size_t i = 0; i < n_times; i++) memcpy(longer + at + i * n_piece, piece, n_piece);
    *n_bytes = n + n_more;
    return longer;
}

static char *mutate(const json_t *good, uint64_t *seed, size_t *n_bytes)
{
    json_t *const root = json_deep_copy(good);
    for (size_t left = random_below(seed, 3) + 1; left; left--) change_tree(root, seed);
    const size_t n = json_dumpb(root, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    char *text = malloc(n + 1);
    assert_non_null(text);
    *n_bytes = json_dumpb(root, text, n, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(root);
    if (random_below(seed, 4) == 0) text = change_bytes(text, n_bytes, seed);
    return text;
}

/* --- what comes of them --- */

/* Refusals by check: the error's text without what differs from file to file. */
struct tally {
    char texts[200][120];
    size_t counts[200], n;
};

static void count(struct tally *tally, const char *text)
{
    char kind[120];
    size_t n = 0;
    bool in_quotes = false;
    for (; *text && n + 2 < sizeof kind && strncmp(text, ": (?i", 5); text++) {
        if (*text == '"') in_quotes = !in_quotes;
        const bool is_digit = *text >= '0' && *text <= '9';
        if (in_quotes || is_digit || (n && *text == '"' && kind[n - 1] == '"')) continue;
        kind[n++] = *text;
    }
    kind[n] = 0;
    size_t i = 0;
    while (i < tally->n && strcmp(tally->texts[i], kind)) i++;
    if (i == 200) return;
    if (i == tally->n) strcpy(tally->texts[tally->n++], kind);
    tally->counts[i]++;
}

/* A tokenizer that was made must work, whatever its file said. */
static void use(const struct qrn_tokenizer *t)
{
    static const char text[] = "the and abab<|end|>\xc3\xa9 e\xcc\x81 <think>zzz \xff'll 12\n\n";
    struct qrn_token_list ids = {0};
    struct qrn_string decoded = {0};
    struct qrn_error err = {0};
    const enum qrn_status status =
        qrn_tokenizer_encode(t, text, sizeof text - 1, QRN_ENCODE_CONTROL, &ids, &err);
    if (status != QRN_OK && status != QRN_ERR_UNSUPPORTED) fail_msg("encoding: %s", err.text);
    assert_int_equal(
        qrn_tokenizer_decode(t, ids.ids, ids.n_ids, QRN_DECODE_CONTROL, &decoded, &err), QRN_OK);
    for (int32_t id = -1; id <= qrn_tokenizer_vocab_size(t); id += id < 400 ? 1 : 997) {
        struct qrn_span bytes;
        decoded.n_bytes = 0;
        const bool is_token = qrn_tokenizer_token(t, id, &bytes) != QRN_TOKEN_NONE;
        assert_int_equal(qrn_tokenizer_decode(t, &id, 1, 0, &decoded, &err) == QRN_OK, is_token);
        if (is_token && bytes.n_bytes) (void)qrn_tokenizer_find(t, bytes.bytes, bytes.n_bytes);
    }
    qrn_token_list_free(&ids);
    qrn_string_free(&decoded);
}

static void test_mutations(void **state)
{
    (void)state;
    static struct tally tally;
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    json_t *const good = load_json(SMALL_JSON);
    uint64_t seed = 20260101;
    size_t n_loaded = 0, n_not_json = 0, peak = 0;
    double slowest = 0;
    for (int i = 0; i < N_MUTATIONS; i++) {
        size_t n_bytes;
        char *const text = mutate(good, &seed, &n_bytes);
        struct qrn_tokenizer *t = NULL;
        struct qrn_error err = {0};
        const double start = seconds();
        counting_allocator_reset(&c);
        const enum qrn_status status = qrn_tokenizer_create_json(
            (struct qrn_span){text, n_bytes}, (struct qrn_span){0}, &host, &t, &err);
        if (status == QRN_OK) {
            n_loaded++;
            use(t);
            qrn_tokenizer_free(t);
        } else {
            assert_true(status == QRN_ERR_FORMAT || status == QRN_ERR_UNSUPPORTED);
            assert_int_equal(err.status, status);
            assert_true(strlen(err.text) > 20);
            n_not_json += !strncmp(err.text, "tokenizer.json: JSON", 20);
            count(&tally, err.text);
        }
        const double took = seconds() - start;
        if (took > slowest) slowest = took;
        if (took > 1) fail_msg("mutation %d took %.1f s", i, took);
        assert_int_equal(c.live_blocks, 0);
        assert_int_equal(c.n_bad_frees, 0);
        if (c.peak_bytes > peak) peak = c.peak_bytes;
        assert_true(c.peak_bytes <= 4 * n_bytes + ((size_t)64 << 20));
        free(text);
    }
    json_decref(good);
    print_message("%d files: %zu loaded, %zu not JSON; at most %zu bytes of memory, %.3f s\n",
                  N_MUTATIONS, n_loaded, n_not_json, peak, slowest);
    for (size_t i = 0; i < tally.n; i++)
        print_message("%6zu  %s\n", tally.counts[i], tally.texts[i]);
    assert_true(n_not_json < N_MUTATIONS / 2);
    assert_true(n_loaded > N_MUTATIONS / 20);
}

/* Files of nothing but values. */
static void test_memory_of_the_parser(void **state)
{
    (void)state;
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    static const char *const units[] = {"[],", "{},", "0,", "\"\",", "[[", "\"a", "\\\"", "{\"a\":",
                                        "[\"a\",\"b\"],", "\"\\u0000\","};
    const size_t n_bytes = 2000000;
    char *const text = malloc(n_bytes);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        for (int in_merges = 0; in_merges < 2; in_merges++) {
            const char *const before = in_merges ? "{\"model\":{\"merges\":[" : "[";
            const size_t n_before = strlen(before), n_unit = strlen(units[i]);
            struct qrn_tokenizer *t = NULL;
            struct qrn_error err;
            memcpy(text, before, n_before);
            for (size_t k = n_before; k < n_bytes; k++)
                text[k] = units[i][(k - n_before) % n_unit];
            counting_allocator_reset(&c);
            const double start = seconds();
            assert_int_equal(qrn_tokenizer_create_json((struct qrn_span){text, n_bytes},
                                                       (struct qrn_span){0}, &host, &t, &err),
                             QRN_ERR_FORMAT);
            assert_true(seconds() - start < 1);
            assert_int_equal(c.live_blocks, 0);
            assert_true(c.peak_bytes <= 4 * n_bytes + ((size_t)64 << 20));
        }
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_memory_of_the_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
