/* SPDX-License-Identifier: MIT
 * Reading tokenizers: each documented error, by one change to a tokenizer that is right; variants
 * that are accepted; arrays; GGUF. */
#include "support/temp.h"
#include "text/tokenizer_test.h"

#include <unistd.h>
#include "text/tokenizer_gguf.h"

/* text with its first `from` replaced; free it. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *const at = strstr(text, from);
    if (!at) fail_msg("\"%s\" is not in the text", from);
    const size_t n = strlen(text) + strlen(to) + 1, n_before = (size_t)(at - text);
    char *const out = malloc(n);
    assert_non_null(out);
    snprintf(out, n, "%.*s%s%s", (int)n_before, text, to, at + strlen(from));
    return out;
}

static char *small_json(void)
{
    size_t n;
    char *const text = need_file(SMALL_JSON, &n);
    text[n - 1] = 0; /* was a newline */
    return text;
}

static enum qrn_status create(const char *json, const char *config, struct qrn_tokenizer **t,
                              struct qrn_error *err)
{
    return qrn_tokenizer_create_json((struct qrn_span){json, strlen(json)},
                                     (struct qrn_span){config, strlen(config)}, NULL, t, err);
}

#define U QRN_ERR_UNSUPPORTED
#define F QRN_ERR_FORMAT
static const struct {
    const char *from, *to; /* in small_tokenizer.json */
    enum qrn_status status;
    const char *text; /* a part of the error's */
} errors[] = {
    {"{\"version\"", "[\"version\"", F, "JSON, line 1 column"},
    {"\"BPE\"", "\"BPE\",\"type\":\"BPE\"", F, "key \"type\" occurs twice in one object"},
    {"\"BPE\"", "\"WordPiece\"", U, "model \"WordPiece\" is not supported, only BPE is"},
    {"\"type\":\"BPE\"", "\"type\":3", F, "\"type\" is not a string"},
    {"\"model\":", "\"no model\":", F, "\"model\" is not an object"},
    {"\"dropout\":null", "\"dropout\":0.1", U, "\"dropout\" is not supported"},
    {"\"continuing_subword_prefix\":\"\"", "\"continuing_subword_prefix\":\"##\"", U,
     "\"continuing_subword_prefix\": \"##\" is not supported"},
    {"\"end_of_word_suffix\":\"\"", "\"end_of_word_suffix\":0", F,
     "\"end_of_word_suffix\" is not a string"},
    {"\"byte_fallback\":false", "\"byte_fallback\":true", U,
     "\"byte_fallback\": true is not supported"},
    {"\"ignore_merges\":false", "\"ignore_merges\":\"no\"", F,
     "\"ignore_merges\" is not a boolean"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}", U,
     "normalizer \"NFKC\" is not supported, only NFC is"},
    {"{\"type\":\"NFC\"}", "\"NFC\"", F, "\"normalizer\" is not an object"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}", U,
     "normalizer \"Lowercase\" is not supported"},
    {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\"}", F, "\"normalizers\" is not an array"},
    {"\"pre_tokenizer\":{\"type\":\"Sequence\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"", U,
     "pre_tokenizer \"Whitespace\" is not supported"},
    {"\"type\":\"Split\"", "\"type\":\"Digits\"", U,
     "the first pre_tokenizer \"Digits\" is not supported, only Split is"},
    {"\\\\p{N}|", "\\\\p{N}{1,3}|", U, "others are not supported: (?i:'s|'t|'re"},
    {"\"Regex\"", "\"String\"", U, "a Split without \"Regex\" is not supported"},
    {"\"Isolated\"", "\"Removed\"", U, "behavior \"Removed\" is not supported, only Isolated is"},
    {"\"invert\":false", "\"invert\":true", U, "\"invert\": true is not supported"},
    {"\"add_prefix_space\":false", "\"add_prefix_space\":true", U,
     "\"add_prefix_space\": true is not supported"},
    {"\"use_regex\":false", "\"use_regex\":true", U, "\"use_regex\": true is not supported"},
    {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"", U,
     "decoder \"WordPiece\" is not supported, only ByteLevel is"},
    {"\"decoder\":", "\"no decoder\":", F, "\"decoder\" is not an object"},
    {"\"vocab\":", "\"no vocab\":", F, "\"vocab\" is not an object"},
    {"\"merges\":", "\"no merges\":", F, "\"merges\" is not an array"},
    {"\"added_tokens\":[", "\"added_tokens\":7,\"x\":[", F, "\"added_tokens\" is not an array"},
    {"\"a\":97", "\"a\":-97", F, "the id of token \"a\" is not a whole number"},
    {"\"a\":97", "\"a\":97.0", F, "the id of token \"a\" is not a whole number"},
    {"\"a\":97", "\"a\":98", F, "have the id 98"},
    {"\"a\":97", "\"a\":2147483648", F, "token id 2147483648, wants less than"},
    {"\"a\":97", "\"a\":66768", F, "token id 66768, wants less than 66768 for 308 tokens"},
    {"\"a\":97", "\"a\":99999999999999999999", F, "is not a whole number"},
    {"\"id\":299", "\"id\":\"299\"", F, "the id of added token 0 is not a whole number"},
    {"\"id\":299", "\"id\":97", F, "disagrees with another token"},
    {"\"id\":299", "\"id\":300", F, "disagrees with another token"},
    {"\"content\":\"<|end|>\"", "\"content\":5", F, "\"content\" is not a string"},
    {"\"content\":\"ink\"", "\"content\":\"the\"", F, "disagrees with another token"},
    {"\"content\":\"zz\"", "\"content\":\"the\"", F, "disagrees with another token"},
    {"\"special\":true", "\"special\":1", F, "\"special\" is not a boolean"},
    {"\"lstrip\":false", "\"lstrip\":true", U, "\"lstrip\": true is not supported"},
    {"\"rstrip\":false", "\"rstrip\":true", U, "\"rstrip\": true is not supported"},
    {"\"single_word\":false", "\"single_word\":true", U, "\"single_word\": true is not supported"},
    {"\"<tool \\u00e9>\"", "\"<tool e\\u0301>\"", U, "is not in NFC"},
    {"\"t h\"", "\"t qq\"", F, "merge 0 (\"t\" and \"qq\"): the second is no token"},
    {"\"t h\"", "\"qq h\"", F, "merge 0 (\"qq\" and \"h\"): the first is no token"},
    {"\"t h\"", "\"q q\"", F, "merge 0 (\"q\" and \"q\"): the result is no token"},
    {"\"t h\"", "\"th\"", F, "merge 0 (\"th\") has no space"},
    {"\"t h\"", "\" h\"", F, "merge 0 (\" h\") has no space"},
    {"\"t h\"", "\"t \"", F, "merge 0 (\"t\" and \"\"): the second is no token"},
    {"\"t h\"", "[\"t\"]", F, "merge 0 is neither text nor a pair of texts"},
    {"\"t h\"", "[\"t\",1]", F, "merge 0 is neither text nor a pair of texts"},
    {"\"t h\"", "null", F, "merge 0 is neither text nor a pair of texts"},
    {"\"t h\"", "\"t \xff\"", F, "JSON, line"},
};

static void test_errors(void **state)
{
    (void)state;
    char *const json = small_json();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        char *const bad = replaced(json, errors[i].from, errors[i].to);
        struct qrn_tokenizer *t = NULL;
        struct qrn_error err = {0};
        const enum qrn_status status = create(bad, "", &t, &err);
        if (status != errors[i].status || err.status != status ||
            strncmp(err.text, "tokenizer.json: ", 16) || !strstr(err.text, errors[i].text))
            fail_msg("%s -> %s gives %s: %s\nwant %s", errors[i].from, errors[i].to,
                     qrn_status_name(status), err.text, errors[i].text);
        assert_null(t);
        assert_int_equal(create(bad, "", &t, NULL), status);
        free(bad);
    }
    free(json);
}

static void test_more_errors(void **state)
{
    (void)state;
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err;
    assert_int_equal(create("", "", &t, &err), F);
    assert_int_equal(create("[]", "", &t, &err), F);
    assert_string_equal(err.text, "tokenizer.json: \"the whole\" is not an object");
    assert_int_equal(qrn_tokenizer_create_json((struct qrn_span){0}, (struct qrn_span){0}, NULL, &t,
                                               &err),
                     F);
    assert_int_equal(qrn_tokenizer_create_json((struct qrn_span){"{}", 2}, (struct qrn_span){0},
                                               NULL, NULL, &err),
                     QRN_ERR_ARGUMENT);
    char *const json = small_json();
    char name[1100] = "";
    memset(name, 'x', 1025);
    char *const bad = replaced(json, "<|end|>", name);
    assert_int_equal(create(bad, "", &t, &err), U);
    assert_string_equal(err.text, "tokenizer.json: added token 299 has 1025 bytes, at most 1024 "
                                  "are supported");
    free(bad);
    name[1024] = 0;
    char *const good = replaced(json, "<|end|>", name);
    assert_int_equal(create(good, "", &t, &err), QRN_OK);
    qrn_tokenizer_free(t);
    free(good);
    assert_int_equal(create(json, "[]", &t, &err), F);
    assert_string_equal(err.text, "tokenizer_config.json: \"the whole\" is not an object");
    assert_int_equal(create(json, "{\"eos_token\":1}", &t, &err), F);
    assert_string_equal(err.text, "tokenizer_config.json: \"eos_token\" is not a string");
    assert_int_equal(create(json, "{", &t, &err), F);
    free(json);
}

static const struct {
    const char *from, *to;
} variants[] = {
    {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"},
    {"\"type\":\"BPE\",", ""},
    {"\"dropout\":null", "\"dropout\":0"},
    {"\"continuing_subword_prefix\":\"\"", "\"continuing_subword_prefix\":null"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
     "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"},
    {"\"t h\"", "[\"t\",\"h\"]"},
    {"\"t h\"", "\"t h\",\"t h\""}, /* the rank of the first counts */
};

static void expect(const struct qrn_tokenizer *t, const char *text, const int32_t *ids, size_t n)
{
    struct qrn_token_list list = {0};
    struct qrn_error err;
    assert_int_equal(qrn_tokenizer_encode(t, text, strlen(text), 0, &list, &err), QRN_OK);
    assert_int_equal(list.n_ids, n);
    assert_memory_equal(list.ids, ids, n * sizeof *ids);
    qrn_token_list_free(&list);
}
#define EXPECT(t, text, ...)                         \
    expect(t, text, (const int32_t[]){__VA_ARGS__}, \
           sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_variants(void **state)
{
    (void)state;
    char *const json = small_json();
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char *const other = replaced(json, variants[i].from, variants[i].to);
        struct qrn_tokenizer *t = NULL;
        struct qrn_error err;
        if (create(other, "", &t, &err) != QRN_OK) fail_msg("%s: %s", variants[i].to, err.text);
        EXPECT(t, "the 1e\xcc\x81", 257, ' ', '1', 277);
        qrn_tokenizer_free(t);
        free(other);
    }
    free(json);
}

static struct qrn_tokenizer *variant(const char *from, const char *to, const char *config)
{
    char *const json = small_json();
    char *const other = replaced(json, from, to);
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err;
    if (create(other, config, &t, &err) != QRN_OK) fail_msg("%s: %s", to, err.text);
    free(other);
    free(json);
    return t;
}

static void test_meaning_of_variants(void **state)
{
    (void)state;
    struct qrn_tokenizer *t = variant("{\"type\":\"NFC\"}", "null", "");
    EXPECT(t, "1e\xcc\x81", '1', 'e', 0xcc, 0x81);
    qrn_tokenizer_free(t);
    /* A word that is a token, but that merges do not reach any more. */
    t = variant("\"t h\",", "", "");
    EXPECT(t, "the", 't', 259); /* "he" */
    qrn_tokenizer_free(t);
    /* A hole, and an id far above the others. */
    t = variant("\"id\":306", "\"id\":5000", "");
    assert_int_equal(qrn_tokenizer_vocab_size(t), 5001);
    assert_int_equal(qrn_tokenizer_token(t, 306, NULL), QRN_TOKEN_NONE);
    assert_int_equal(qrn_tokenizer_token(t, 5000, NULL), QRN_TOKEN_CONTROL);
    qrn_tokenizer_free(t);
    /* A byte without a token is an error only when it is met. */
    t = variant("\"q\":113,", "", "");
    struct qrn_token_list ids = {0};
    struct qrn_error err;
    assert_int_equal(qrn_tokenizer_encode(t, "12", 2, 0, &ids, &err), QRN_OK);
    char text[100];
    memset(text, 'q', sizeof text);
    for (size_t n = 1; n <= sizeof text; n += 99) {
        assert_int_equal(qrn_tokenizer_encode(t, text, n, 0, &ids, &err), U);
        assert_string_equal(err.text,
                            "the text has a byte 0x71, for which the vocabulary has no token");
        assert_int_equal(ids.n_ids, 2);
    }
    qrn_token_list_free(&ids);
    qrn_tokenizer_free(t);
}

static void test_ignore_merges(void **state)
{
    (void)state;
    char *const json = small_json();
    char *const without = replaced(json, "\"t h\",", "");
    char *const ignoring =
        replaced(without, "\"ignore_merges\":false", "\"ignore_merges\":true");
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err;
    if (create(ignoring, "", &t, &err) != QRN_OK) fail_msg("%s", err.text);
    EXPECT(t, "the", 257);            /* a word that is a token stays whole */
    EXPECT(t, "thex", 't', 259, 'x'); /* others are merged */
    qrn_tokenizer_free(t);
    free(ignoring);
    free(without);
    free(json);
}

static void test_config(void **state)
{
    (void)state;
    struct qrn_tokenizer *t = variant(
        "\"version\"", "\"version\"",
        "{\"model_max_length\":1000000000000000019884624838656,\"eos_token\":\"<|end|>\","
        "\"bos_token\":null,\"pad_token\":{\"content\":\"<think>\",\"lstrip\":false}}");
    assert_int_equal(qrn_tokenizer_eos(t), 299);
    assert_int_equal(qrn_tokenizer_bos(t), -1);
    assert_int_equal(qrn_tokenizer_pad(t), 301);
    qrn_tokenizer_free(t);
    t = variant("\"version\"", "\"version\"", "{\"eos_token\":\"<|nothing|>\"}");
    assert_int_equal(qrn_tokenizer_eos(t), -1);
    qrn_tokenizer_free(t);
}

/* --- arrays --- */

#define S(text) {text, sizeof(text) - 1}
static const struct qrn_span tokens[] = {
    S("a"), S("b"), S("\xc4\xa0"), S("ab"), S("\xc4\xa0""ab"), S("<e>"), S("<u>"), S("[PAD7]"),
    S("a"), S("b c"), S("\xc3\xa9"),
};
static const int32_t types[] = {1, 1, 1, 1, 1, 3, 4, 5, 1, 1, 1};
static const struct qrn_span merges[] = {S("a b"), S("\xc4\xa0 ab"), S("a b")};

static struct qrn_tokenizer_tables good_tables(void)
{
    return (struct qrn_tokenizer_tables){
        .tokens = tokens,
        .types = types,
        .n_tokens = sizeof tokens / sizeof *tokens,
        .merges = merges,
        .n_merges = sizeof merges / sizeof *merges,
        .pre = "qwen35",
        .bos = -1,
        .eos = 5,
        .pad = 7,
    };
}

static void check_tables_tokenizer(const struct qrn_tokenizer *t)
{
    struct qrn_string text = {0};
    struct qrn_error err;
    EXPECT(t, "ab ab<u>a", 3, 4, 6, 0);
    assert_int_equal(qrn_tokenizer_eos(t), 5);
    assert_int_equal(qrn_tokenizer_bos(t), -1);
    assert_int_equal(qrn_tokenizer_pad(t), 7);
    const int32_t ids[] = {4, 5, 7, 6, 8, 9, 10};
    assert_int_equal(qrn_tokenizer_decode(t, ids, 7, 0, &text, &err), QRN_OK);
    assert_string_equal(text.bytes, " ab<u>ab c\xef\xbf\xbd"); /* the last is the byte E9 */
    text.n_bytes = 0;
    assert_int_equal(qrn_tokenizer_decode(t, ids, 3, QRN_DECODE_CONTROL, &text, &err), QRN_OK);
    assert_string_equal(text.bytes, " ab<e>");
    qrn_string_free(&text);
}

static void test_tables(void **state)
{
    (void)state;
    struct qrn_tokenizer *t;
    struct qrn_error err;
    struct qrn_tokenizer_tables tables = good_tables();
    assert_int_equal(qrn_tokenizer_create(&tables, NULL, &t, &err), QRN_OK);
    check_tables_tokenizer(t);
    qrn_tokenizer_free(t);
    tables.types = NULL;
    assert_int_equal(qrn_tokenizer_create(&tables, NULL, &t, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_token(t, 5, NULL), QRN_TOKEN_NORMAL);
    qrn_tokenizer_free(t);
    /* None at all: everything but text works. */
    tables = (struct qrn_tokenizer_tables){.pre = "qwen2", .bos = -1, .eos = -1, .pad = -1};
    assert_int_equal(qrn_tokenizer_create(&tables, NULL, &t, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_vocab_size(t), 0);
    qrn_tokenizer_free(t);
}

static void expect_error(const struct qrn_tokenizer_tables *tables, enum qrn_status status,
                         const char *text)
{
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err = {0};
    assert_int_equal(qrn_tokenizer_create(tables, NULL, &t, &err), status);
    assert_null(t);
    if (text) assert_string_equal(err.text, text);
}

static void test_table_errors(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_tokenizer_tables x = good_tables();
    expect_error(NULL, QRN_ERR_ARGUMENT, "tables or out is NULL");
    assert_int_equal(qrn_tokenizer_create(&x, NULL, NULL, &err), QRN_ERR_ARGUMENT);
    x.tokens = NULL;
    expect_error(&x, QRN_ERR_ARGUMENT, "tokens or merges is NULL");
    x = good_tables();
    x.merges = NULL;
    expect_error(&x, QRN_ERR_ARGUMENT, NULL);
    x = good_tables();
    x.pre = "llama-bpe";
    expect_error(&x, U, "pre-tokenizer \"llama-bpe\" is not supported, only qwen2 and qwen35 are");
    x.pre = NULL;
    expect_error(&x, U, NULL);
    x = good_tables();
    x.eos = 11;
    expect_error(&x, F, "eos is token 11, but there are 11 tokens");
    x = good_tables();
    x.bos = -2;
    expect_error(&x, F, "bos is token -2, but there are 11 tokens");
    x = good_tables();
    x.pad = INT32_MAX;
    expect_error(&x, F, NULL);
    int32_t bad_types[11];
    memcpy(bad_types, types, sizeof types);
    x = good_tables();
    x.types = bad_types;
    bad_types[3] = 0;
    expect_error(&x, F, "token 3 has type 0, wants 1 to 6");
    bad_types[3] = 7;
    expect_error(&x, F, NULL);
    const struct qrn_span bad_merges[] = {S("a b"), S("b a")};
    x = good_tables();
    x.merges = bad_merges;
    x.n_merges = 2;
    expect_error(&x, F, "merge 1 (\"b\" and \"a\"): the result is no token");
}

/* --- GGUF --- */

struct gguf_case {
    const char *model, *pre;
    bool no_tokens, no_merges, no_types, types_as_text, model_as_number;
    size_t n_types;
    uint32_t eos;
};

/* Writes a file, opens it, makes its tokenizer. */
static enum qrn_status from_gguf(const struct gguf_case *c, struct qrn_tokenizer **t,
                                 struct qrn_error *err)
{
    const char *path = temp_path("tokenizer.gguf");
    struct qrn_gguf_writer *w;
    struct qrn_gguf gguf = {0};
    assert_int_equal(qrn_gguf_writer_create(path, NULL, &w, err), QRN_OK);
    qrn_gguf_write_string(w, "general.architecture", (struct qrn_span){"qwen35", 6});
    if (c->model_as_number)
        qrn_gguf_write_u32(w, "tokenizer.ggml.model", 1);
    else if (c->model)
        qrn_gguf_write_string(w, "tokenizer.ggml.model",
                              (struct qrn_span){c->model, strlen(c->model)});
    if (c->pre)
        qrn_gguf_write_string(w, "tokenizer.ggml.pre", (struct qrn_span){c->pre, strlen(c->pre)});
    if (!c->no_tokens) qrn_gguf_write_strings(w, "tokenizer.ggml.tokens", tokens, 11);
    if (c->types_as_text)
        qrn_gguf_write_strings(w, "tokenizer.ggml.token_type", tokens, 11);
    else if (!c->no_types)
        qrn_gguf_write_i32s(w, "tokenizer.ggml.token_type", types, c->n_types);
    if (!c->no_merges) qrn_gguf_write_strings(w, "tokenizer.ggml.merges", merges, 3);
    qrn_gguf_write_u32(w, "tokenizer.ggml.eos_token_id", c->eos);
    qrn_gguf_write_u32(w, "tokenizer.ggml.padding_token_id", 7);
    qrn_gguf_write_u32(w, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    if (qrn_gguf_writer_finish(w, err) != QRN_OK) fail_msg("%s", err->text);
    if (qrn_gguf_open(path, NULL, NULL, &gguf, err) != QRN_OK) fail_msg("%s", err->text);
    const enum qrn_status status = qrn_tokenizer_create_gguf(&gguf, NULL, t, err);
    qrn_gguf_close(&gguf);
    unlink(path);
    return status;
}

static const struct {
    struct gguf_case c;
    enum qrn_status status;
    const char *text;
} gguf_errors[] = {
    {{"llama", "qwen2", .n_types = 11}, U,
     "tokenizer \"llama\" is not supported, only gpt2 (byte-level BPE) is"},
    {{"gpt2", "llama-bpe", .n_types = 11}, U,
     "pre-tokenizer \"llama-bpe\" is not supported, only qwen2 and qwen35 are"},
    {{"gpt2", NULL, .n_types = 11}, U,
     "pre-tokenizer \"\" is not supported, only qwen2 and qwen35 are"},
    {{"gpt2", "qwen2", .no_tokens = true, .n_types = 11}, F, "tokenizer.ggml.tokens is missing"},
    {{"gpt2", "qwen2", .no_merges = true, .n_types = 11}, F, "tokenizer.ggml.merges is missing"},
    {{"gpt2", "qwen2", .n_types = 10}, F,
     "tokenizer.ggml.token_type is not an array of 11 types, one for each token"},
    {{"gpt2", "qwen2", .types_as_text = true}, F,
     "tokenizer.ggml.token_type: the type of token 0 is not 1 to 6"},
    {{"gpt2", "qwen2", .n_types = 11, .eos = 11}, F,
     "tokenizer.ggml.eos_token_id is 11, but there are 11 tokens"},
    {{.model_as_number = true, .n_types = 11}, F, "tokenizer.ggml.model is not a string"},
};

static void test_gguf(void **state)
{
    (void)state;
    struct qrn_tokenizer *t = NULL;
    struct qrn_error err = {0};
    struct gguf_case c = {"gpt2", "qwen35", .n_types = 11, .eos = 5};
    if (from_gguf(&c, &t, &err) != QRN_OK) fail_msg("%s", err.text);
    check_tables_tokenizer(t);
    qrn_tokenizer_free(t);
    c.no_types = true;
    if (from_gguf(&c, &t, &err) != QRN_OK) fail_msg("%s", err.text);
    qrn_tokenizer_free(t);
    static const char *const none[] = {NULL, "none", "no_vocab"};
    for (size_t i = 0; i < 3; i++) {
        c.model = none[i];
        assert_int_equal(from_gguf(&c, &t, &err), QRN_OK);
        assert_null(t);
    }
    for (size_t i = 0; i < sizeof gguf_errors / sizeof *gguf_errors; i++) {
        t = NULL;
        const enum qrn_status status = from_gguf(&gguf_errors[i].c, &t, &err);
        assert_null(t);
        assert_int_equal(status, gguf_errors[i].status);
        assert_string_equal(err.text, gguf_errors[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_more_errors),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_meaning_of_variants),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_table_errors),
        cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
