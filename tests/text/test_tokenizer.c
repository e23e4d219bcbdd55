/* SPDX-License-Identifier: MIT
 * Texts to ids and back, against what Hugging Face's tokenizers give: fairy_tokenizer.json and
 * small_tokenizer_texts.json in tests/data. */
#include "text/tokenizer_test.h"

#include <utf8proc.h>
#include "support/shared.h"
#include "text/tokenizer_gguf.h"

static struct qrn_span span_of(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    assert_true(json_is_string(value));
    return (struct qrn_span){json_string_value(value), json_string_length(value)};
}

static void check_decoded(const struct qrn_tokenizer *t, const struct qrn_token_list *ids,
                          unsigned flags, struct qrn_span wanted)
{
    struct qrn_string text = {0};
    struct qrn_error err;
    assert_int_equal(qrn_tokenizer_decode(t, ids->ids, ids->n_ids, flags, &text, &err), QRN_OK);
    assert_text((struct qrn_span){text.bytes, text.n_bytes}, wanted.bytes, wanted.n_bytes);
    assert_int_equal(text.bytes[text.n_bytes], 0);
    qrn_string_free(&text);
}

static size_t check_references(const struct qrn_tokenizer *t, const char *path)
{
    json_t *const entries = load_json(path);
    const size_t n = json_array_size(entries);
    struct qrn_token_list ids = {0};
    struct qrn_error err;
    for (size_t i = 0; i < n; i++) {
        const json_t *const entry = json_array_get(entries, i);
        const struct qrn_span text = span_of(entry, "text");
        ids.n_ids = 0;
        assert_int_equal(qrn_tokenizer_encode(t, text.bytes, text.n_bytes, QRN_ENCODE_CONTROL, &ids,
                                              &err),
                         QRN_OK);
        assert_ids(&ids, json_object_get(entry, "ids"), text.bytes);
        check_decoded(t, &ids, QRN_DECODE_CONTROL, span_of(entry, "decoded"));
        if (json_object_get(entry, "shown")) check_decoded(t, &ids, 0, span_of(entry, "shown"));
    }
    qrn_token_list_free(&ids);
    json_decref(entries);
    return n;
}

static void test_fairy(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(FAIRY_JSON, NULL);
    assert_int_equal(check_references(t, "tests/data/fairy_tokenizer.json"), 55);
    qrn_tokenizer_free(t);
}

/* NFC, the Qwen2 regex, merges in both spellings, an added token after normalisation. */
static void test_small(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    assert_true(check_references(t, "tests/data/small_tokenizer_texts.json") > 200);
    qrn_tokenizer_free(t);
}

static void encode_both(const struct qrn_tokenizer *a, const struct qrn_tokenizer *b,
                        const char *text, size_t n_bytes)
{
    struct qrn_token_list x = {0}, y = {0};
    struct qrn_error err;
    assert_int_equal(qrn_tokenizer_encode(a, text, n_bytes, QRN_ENCODE_CONTROL, &x, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_encode(b, text, n_bytes, QRN_ENCODE_CONTROL, &y, &err), QRN_OK);
    assert_int_equal(x.n_ids, y.n_ids);
    if (x.n_ids) assert_memory_equal(x.ids, y.ids, x.n_ids * sizeof *x.ids);
    qrn_token_list_free(&x);
    qrn_token_list_free(&y);
}

/* The GGUF file holds fairy's tokenizer, which the reader takes for Qwen3.5's: with NFC, as the one
 * that mlx-lm wrote says too.  Both must agree on everything, and with fairy's on texts in NFC. */
static void test_gguf(void **state)
{
    (void)state;
    const char *const path = shared_path("models/gguf/fairy-Q4_0.gguf");
    const char *const mlx_path = shared_path("models/fairy-mlx-4bit/tokenizer.json");
    if (!path || !mlx_path) skip();
    struct qrn_gguf gguf = {0};
    struct qrn_error err;
    struct qrn_tokenizer *t = NULL;
    assert_int_equal(qrn_gguf_open(path, NULL, NULL, &gguf, &err), QRN_OK);
    if (qrn_tokenizer_create_gguf(&gguf, NULL, &t, &err) != QRN_OK) fail_msg("%s", err.text);
    qrn_gguf_close(&gguf);
    struct qrn_tokenizer *const mlx = open_tokenizer(mlx_path, NULL);
    struct qrn_tokenizer *const fairy = open_tokenizer(FAIRY_JSON, NULL);
    assert_int_equal(qrn_tokenizer_vocab_size(t), qrn_tokenizer_vocab_size(fairy));
    assert_int_equal(qrn_tokenizer_eos(t), qrn_tokenizer_find(fairy, "<|im_end|>", 10));

    json_t *const entries = load_json("tests/data/fairy_tokenizer.json");
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const struct qrn_span text = span_of(json_array_get(entries, i), "text");
        encode_both(t, mlx, text.bytes, text.n_bytes);
        utf8proc_uint8_t *nfc = NULL;
        const utf8proc_ssize_t n_nfc =
            utf8proc_map((const utf8proc_uint8_t *)text.bytes, (utf8proc_ssize_t)text.n_bytes, &nfc,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        assert_true(n_nfc >= 0);
        encode_both(t, fairy, (const char *)nfc, (size_t)n_nfc);
        free(nfc);
    }
    for (int32_t id = 0; id < qrn_tokenizer_vocab_size(t); id++) {
        struct qrn_span a, b;
        assert_int_equal(qrn_tokenizer_token(t, id, &a), qrn_tokenizer_token(fairy, id, &b));
        assert_text(a, b.bytes, b.n_bytes);
    }
    json_decref(entries);
    qrn_tokenizer_free(t);
    qrn_tokenizer_free(mlx);
    qrn_tokenizer_free(fairy);
}

static void expect(const struct qrn_tokenizer *t, unsigned flags, const char *text, size_t n_bytes,
                   const int32_t *ids, size_t n_ids)
{
    struct qrn_token_list list = {0};
    struct qrn_error err;
    assert_int_equal(qrn_tokenizer_encode(t, text, n_bytes, flags, &list, &err), QRN_OK);
    json_t *const wanted = json_array();
    for (size_t i = 0; i < n_ids; i++) json_array_append_new(wanted, json_integer(ids[i]));
    assert_ids(&list, wanted, text);
    json_decref(wanted);
    qrn_token_list_free(&list);
}
#define EXPECT(t, flags, text, ...)                                       \
    expect(t, flags, text, sizeof(text) - 1, (const int32_t[]){__VA_ARGS__}, \
           sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* Ids of small_tokenizer.json: bytes are their own ids; 299 <|end|> and 306 zzz are CONTROL, 300
 * <|end|>x, 301 <think>, 305 zz USER_DEFINED. */
static void test_control_tokens_only_if_asked_for(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    EXPECT(t, QRN_ENCODE_CONTROL, "<|end|>", 299);
    EXPECT(t, 0, "<|end|>", '<', '|', 'e', 264, '|', '>'); /* 264: a half of "and" */
    EXPECT(t, 0, "<|end|>x", 300);
    EXPECT(t, 0, "1<think>2", '1', 301, '2');
    EXPECT(t, QRN_ENCODE_CONTROL, "zzz", 306);
    EXPECT(t, 0, "zzz", 305, 'z');
    qrn_tokenizer_free(t);
}

/* The text is the bytes between the quotes; what is not UTF-8 counts as U+FFFD (EF BF BD). */
static void test_bytes_that_are_not_utf8(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    EXPECT(t, 0, "1\xff", '1', 0xef, 0xbf, 0xbd);
    EXPECT(t, 0, "\xe4\xbd", 0xef, 0xbf, 0xbd);
    EXPECT(t, 0, "\xed\xa0\x80", 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd);
    EXPECT(t, 0, "\xf4\xbf\xbf\xbf""1", 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 0xef,
           0xbf, 0xbd, '1');
    EXPECT(t, 0, "\xf0\x9f\x99<think>", 0xef, 0xbf, 0xbd, 301);
    EXPECT(t, 0, "1\0""2", '1', 0, '2');
    qrn_tokenizer_free(t);
}

/* Random bytes: ids decode to the text with each error replaced, the same as decoding bytes one by
 * one, since every byte is a token. */
static void test_random_bytes_come_back(void **state)
{
    (void)state;
    /* Fairy's does not normalise. */
    struct qrn_tokenizer *const t = open_tokenizer(FAIRY_JSON, NULL);
    uint64_t seed = 1;
    int32_t byte_ids[256];
    for (int b = 0; b < 256; b++) {
        const char c = (char)b;
        byte_ids[b] = qrn_tokenizer_find(t, &c, 1);
        assert_true(byte_ids[b] >= 0);
    }
    for (int round = 0; round < 3000; round++) {
        char text[64];
        int32_t single[64];
        const size_t n = random_below(&seed, sizeof text);
        for (size_t i = 0; i < n; i++) {
            const size_t kind = random_below(&seed, 4);
            text[i] = 'a';
            if (kind == 0) text[i] = (char)random_below(&seed, 256);
            if (kind == 1) text[i] = (char)(0x80 + i % 64);
            if (kind == 3) text[i] = (char)(0xe0 + random_below(&seed, 20));
            single[i] = byte_ids[(uint8_t)text[i]];
        }
        struct qrn_token_list ids = {0};
        struct qrn_string a = {0}, b = {0};
        struct qrn_error err;
        assert_int_equal(qrn_tokenizer_encode(t, text, n, 0, &ids, &err), QRN_OK);
        assert_int_equal(qrn_tokenizer_decode(t, ids.ids, ids.n_ids, 0, &a, &err), QRN_OK);
        assert_int_equal(qrn_tokenizer_decode(t, single, n, 0, &b, &err), QRN_OK);
        assert_text((struct qrn_span){a.bytes, a.n_bytes}, b.bytes, b.n_bytes);
        qrn_token_list_free(&ids);
        qrn_string_free(&a);
        qrn_string_free(&b);
    }
    qrn_tokenizer_free(t);
}

static void test_lists_are_appended_to(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    struct qrn_token_list ids = {0};
    struct qrn_string text = {0};
    struct qrn_error err;
    assert_int_equal(qrn_tokenizer_encode(t, "1", 1, 0, &ids, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_encode(t, "23", 2, 0, &ids, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_encode(t, NULL, 0, 0, &ids, &err), QRN_OK);
    assert_int_equal(ids.n_ids, 3);
    assert_int_equal(qrn_tokenizer_decode(t, ids.ids, 1, 0, &text, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_decode(t, ids.ids + 1, 2, 0, &text, &err), QRN_OK);
    assert_string_equal(text.bytes, "123");
    const int32_t bad[] = {'4', 999999};
    assert_int_equal(qrn_tokenizer_decode(t, bad, 2, 0, &text, &err), QRN_ERR_ARGUMENT);
    assert_string_equal(text.bytes, "123");
    qrn_token_list_free(&ids);
    qrn_string_free(&text);
    qrn_token_list_free(&ids);
    qrn_string_free(&text);
    qrn_tokenizer_free(t);
}

static void test_looking(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    struct qrn_span bytes;
    assert_int_equal(qrn_tokenizer_vocab_size(t), 307);
    assert_int_equal(qrn_tokenizer_bos(t), -1);
    assert_int_equal(qrn_tokenizer_eos(t), -1);
    assert_int_equal(qrn_tokenizer_pad(t), -1);
    assert_int_equal(qrn_tokenizer_token(t, 299, &bytes), QRN_TOKEN_CONTROL);
    assert_text(bytes, "<|end|>", 7);
    assert_int_equal(qrn_tokenizer_token(t, 301, NULL), QRN_TOKEN_USER_DEFINED);
    assert_int_equal(qrn_tokenizer_token(t, 32, &bytes), QRN_TOKEN_NORMAL);
    assert_text(bytes, " ", 1);
    assert_int_equal(qrn_tokenizer_token(t, INT32_MIN, &bytes), QRN_TOKEN_NONE);
    assert_text(bytes, "", 0);
    assert_int_equal(qrn_tokenizer_token(t, -1, &bytes), QRN_TOKEN_NONE);
    assert_int_equal(qrn_tokenizer_token(t, 307, &bytes), QRN_TOKEN_NONE);
    assert_int_equal(qrn_tokenizer_find(t, "<|end|>", 7), 299);
    assert_int_equal(qrn_tokenizer_find(t, "<tool \xc3\xa9>", 9), 303);
    assert_int_equal(qrn_tokenizer_find(t, "ink", 3), 298);
    assert_int_equal(qrn_tokenizer_find(t, "the", 3), 257);
    assert_int_equal(qrn_tokenizer_find(t, "th", 2), 256);
    assert_int_equal(qrn_tokenizer_find(t, "quern", 5), -1);
    assert_int_equal(qrn_tokenizer_find(t, "", 0), -1);
    qrn_tokenizer_free(t);
    qrn_tokenizer_free(NULL);
}

static void test_misuse(void **state)
{
    (void)state;
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    struct qrn_token_list ids = {0};
    struct qrn_string text = {0};
    struct qrn_detokenizer *d;
    struct qrn_error err;
    const int32_t none = 307, a = 'a';
    assert_int_equal(qrn_tokenizer_encode(NULL, "a", 1, 0, &ids, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_tokenizer_encode(t, NULL, 1, 0, &ids, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_tokenizer_encode(t, "a", 1, 0, NULL, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_tokenizer_encode(t, "a", 1, 2, &ids, &err), QRN_ERR_ARGUMENT);
    assert_string_equal(err.text, "encode flags 0x2 are not known");
    assert_int_equal(qrn_tokenizer_encode(t, "a", (size_t)1 << 30, 0, &ids, &err), QRN_ERR_LIMIT);
    assert_string_equal(err.text,
                        "the text has 1073741824 bytes, at most 1073741823 can be encoded");
    assert_int_equal(qrn_tokenizer_decode(NULL, &a, 1, 0, &text, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_tokenizer_decode(t, NULL, 1, 0, &text, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_tokenizer_decode(t, &a, 1, 0, NULL, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_tokenizer_decode(t, &a, 1, 8, &text, &err), QRN_ERR_ARGUMENT);
    assert_string_equal(err.text, "decode flags 0x8 are not known");
    assert_int_equal(qrn_tokenizer_decode(t, &none, 1, 0, &text, &err), QRN_ERR_ARGUMENT);
    assert_string_equal(err.text, "token 307 does not exist, the vocabulary has 307");
    assert_int_equal(qrn_tokenizer_decode(t, &none, 1, 0, &text, NULL), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_detokenizer_create(NULL, 0, &d, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_detokenizer_create(t, 0, NULL, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_detokenizer_create(t, 4, &d, &err), QRN_ERR_ARGUMENT);
    assert_int_equal(ids.n_ids, 0);
    assert_int_equal(text.n_bytes, 0);
    qrn_string_free(&text);
    qrn_token_list_free(NULL);
    qrn_string_free(NULL);
    qrn_tokenizer_free(t);
}

/* Each text of a megabyte within two seconds, where a quadratic way would take minutes. */
static void test_long_texts(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        const char *why;
    } cases[] = {
        {"a", "one word, few merges"},
        {"ab", "one word, merges everywhere"},
        {"e\xcc\x81", "one run that normalises"},
        {"\xcc\x81\xcc\x96", "marks that change their order"},
        {" ", "one run of spaces"},
        {" \n", "newlines and spaces"},
        {"zz", "added tokens"},
        {"<|end|", "almost added tokens"},
        {"'", "punctuation that could begin a contraction"},
        {"\xf0\x9f\x99", "nothing is UTF-8"},
        {"1", "one word each"},
    };
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, NULL);
    const size_t n = 1000000;
    char *const text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n_unit = strlen(cases[i].unit);
        for (size_t k = 0; k < n; k++) text[k] = cases[i].unit[k % n_unit];
        struct qrn_token_list ids = {0};
        struct qrn_error err;
        const double start = seconds();
        assert_int_equal(qrn_tokenizer_encode(t, text, n, QRN_ENCODE_CONTROL, &ids, &err), QRN_OK);
        const double took = seconds() - start;
        print_message("%-45s %7zu ids %6.3f s\n", cases[i].why, ids.n_ids, took);
        assert_true(ids.n_ids > 0);
        if (took > 2) fail_msg("%s: %.1f s", cases[i].why, took);
        qrn_token_list_free(&ids);
    }
    free(text);
    qrn_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fairy),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_control_tokens_only_if_asked_for),
        cmocka_unit_test(test_bytes_that_are_not_utf8),
        cmocka_unit_test(test_random_bytes_come_back),
        cmocka_unit_test(test_lists_are_appended_to),
        cmocka_unit_test(test_looking),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_long_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
