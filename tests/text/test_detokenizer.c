/* SPDX-License-Identifier: MIT
 * Token by token: every text that comes out is whole characters, and all of them joined are what
 * decoding at once gives, wherever the ids are cut. */
#include "text/tokenizer_test.h"

#include "text/utf8.h"

static void append(struct qrn_string *s, struct qrn_span text)
{
    char *const bytes = realloc(s->bytes, s->n_bytes + text.n_bytes + 1);
    assert_non_null(bytes);
    if (text.n_bytes) memcpy(bytes + s->n_bytes, text.bytes, text.n_bytes);
    s->bytes = bytes;
    s->n_bytes += text.n_bytes;
}

/* All ids and then the end. */
static void check_stream(const struct qrn_tokenizer *t, struct qrn_detokenizer *d, unsigned flags,
                         const int32_t *ids, size_t n_ids)
{
    struct qrn_string joined = {0}, wanted = {0};
    struct qrn_error err;
    struct qrn_span piece;
    for (size_t i = 0; i < n_ids; i++) {
        assert_int_equal(qrn_detokenizer_push(d, ids[i], &piece, &err), QRN_OK);
        assert_int_equal(qrn_utf8_n_valid(piece.bytes, piece.n_bytes), piece.n_bytes);
        append(&joined, piece);
    }
    append(&joined, qrn_detokenizer_finish(d));
    assert_int_equal(qrn_detokenizer_finish(d).n_bytes, 0);
    assert_int_equal(qrn_tokenizer_decode(t, ids, n_ids, flags, &wanted, &err), QRN_OK);
    assert_text((struct qrn_span){joined.bytes, joined.n_bytes}, wanted.bytes, wanted.n_bytes);
    free(joined.bytes);
    qrn_string_free(&wanted);
}

/* Every beginning of every text, as the ids that its text gets and as one id for each byte: cut
 * anywhere, also inside characters. */
static void check_text(const struct qrn_tokenizer *t, unsigned flags, const char *text, size_t n)
{
    struct qrn_detokenizer *d;
    struct qrn_token_list ids = {0};
    struct qrn_error err;
    assert_int_equal(qrn_detokenizer_create(t, flags, &d, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_encode(t, text, n, QRN_ENCODE_CONTROL, &ids, &err), QRN_OK);
    for (size_t n_ids = 0; n_ids <= ids.n_ids; n_ids++) check_stream(t, d, flags, ids.ids, n_ids);
    int32_t *const bytes = malloc((n + 1) * sizeof *bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) bytes[i] = qrn_tokenizer_find(t, text + i, 1);
    for (size_t n_ids = 0; n_ids <= n; n_ids += n < 100 ? 1 : 13)
        check_stream(t, d, flags, bytes, n_ids);
    free(bytes);
    qrn_token_list_free(&ids);
    qrn_detokenizer_free(d);
}

static void check_file(const char *tokenizer_path, const char *texts_path)
{
    struct qrn_tokenizer *const t = open_tokenizer(tokenizer_path, NULL);
    json_t *const entries = load_json(texts_path);
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *const text = json_object_get(json_array_get(entries, i), "text");
        check_text(t, 0, json_string_value(text), json_string_length(text));
        check_text(t, QRN_DECODE_CONTROL, json_string_value(text), json_string_length(text));
    }
    json_decref(entries);
    qrn_tokenizer_free(t);
}

static void test_every_split(void **state)
{
    (void)state;
    check_file(FAIRY_JSON, "tests/data/fairy_tokenizer.json");
    check_file(SMALL_JSON, "tests/data/small_tokenizer_texts.json");
}

/* Random ids join into anything, mostly not UTF-8. */
static void test_random_ids(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(FAIRY_JSON, NULL);
    struct qrn_detokenizer *d;
    struct qrn_error err;
    uint64_t seed = 7;
    assert_int_equal(qrn_detokenizer_create(t, QRN_DECODE_CONTROL, &d, &err), QRN_OK);
    for (int round = 0; round < 20000; round++) {
        int32_t ids[24];
        const size_t n = random_below(&seed, 24);
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)random_below(&seed, random_below(&seed, 2) ? 256 : 4096);
        check_stream(t, d, QRN_DECODE_CONTROL, ids, n);
    }
    qrn_detokenizer_free(d);
    qrn_tokenizer_free(t);
}

/* small_tokenizer.json has each byte as the id of its value; 299 is <|end|>. */
static void test_held_back(void **state)
{
    (void)state;
    static const struct {
        int32_t id;
        const char *text;
    } steps[] = {
        {'a', "a"},
        {0xf0, ""},
        {0x9f, ""},
        {0x99, ""},
        {0x82, "\xf0\x9f\x99\x82"},
        {0xe4, ""},
        {'b', "\xef\xbf\xbd""b"},
        {0xff, "\xef\xbf\xbd"},
        {0xe4, ""},
        {299, ""},
        {0xbd, ""},
        {0xa0, "\xe4\xbd\xa0"},
        {0xc3, ""},
        {301, "\xef\xbf\xbd<think>"},
        {0xf0, ""},
    };
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    struct qrn_detokenizer *d;
    struct qrn_error err;
    struct qrn_span piece;
    assert_int_equal(qrn_detokenizer_create(t, 0, &d, &err), QRN_OK);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(qrn_detokenizer_push(d, steps[i].id, &piece, &err), QRN_OK);
        assert_text(piece, steps[i].text, strlen(steps[i].text));
    }
    /* An id that does not exist changes nothing. */
    assert_int_equal(qrn_detokenizer_push(d, -1, &piece, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(piece.n_bytes, 0);
    assert_int_equal(qrn_detokenizer_push(d, 0x9f, &piece, &err), QRN_OK);
    assert_text(piece, "", 0);
    assert_text(qrn_detokenizer_finish(d), "\xef\xbf\xbd", 3);
    assert_text(qrn_detokenizer_finish(d), "", 0);
    assert_int_equal(qrn_detokenizer_push(d, 'c', &piece, &err), QRN_OK);
    assert_text(piece, "c", 1);
    qrn_detokenizer_free(d);
    qrn_detokenizer_free(NULL);
    qrn_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),
        cmocka_unit_test(test_random_ids),
        cmocka_unit_test(test_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
