/* SPDX-License-Identifier: MIT
 * qrn_quantize writes a model's tokenizer: tokens, types, merges, ids, templates. */
#include "model/quantize_toy.h"

static struct qrn_span string_of(const struct qrn_gguf *gguf, const char *key)
{
    struct qrn_span s = {0};
    if (!qrn_gguf_string(gguf, key, &s)) fail_msg("no string %s", key);
    return s;
}

static bool is(struct qrn_span s, const char *text)
{
    return s.n_bytes == strlen(text) && memcmp(s.bytes, text, s.n_bytes) == 0;
}

/* Tokens as they are written, holes and rows beyond the vocabulary, types, merges in order, ids. */
static void test_text(void **state)
{
    (void)state;
    static const struct {
        int id;
        const char *text;
        int type;
    } tokens[] = {{0, "a", 1},
                  {2, "ab", 1},
                  {3, "[PAD3]", 5},
                  {4, "\xc4\xa0", 1},
                  {6, "\xc3\x83\xc2\xa9", 1},
                  {9, "\xc5\x83", 1},
                  {20, "<|end|>", 3},
                  {21, "<|fim|>", 3},
                  {22, "<t \xc3\xa9>", 4},
                  {23, "[PAD23]", 5},
                  {95, "[PAD95]", 5}};
    const struct path dir = make_toy(TOY_DENSE), out = temp("text.gguf");
    struct qrn_gguf gguf;
    struct qrn_span all[VOCAB], merges[3];
    int64_t id = -1;
    add_text_files(&dir);
    must_quantise(dir.text, out.text, "F16");
    must_open(out.text, &gguf);
    assert_true(is(string_of(&gguf, "tokenizer.ggml.pre"), "qwen2"));
    assert_true(is(string_of(&gguf, "tokenizer.chat_template"), "D {{x}}"));
    const struct qrn_gguf_value *list = qrn_gguf_find(&gguf, "tokenizer.ggml.tokens"),
                                *types = qrn_gguf_find(&gguf, "tokenizer.ggml.token_type"),
                                *pairs = qrn_gguf_find(&gguf, "tokenizer.ggml.merges");
    assert_int_equal(list->as.array.n, VOCAB);
    assert_true(qrn_gguf_strings(list, all, VOCAB));
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        assert_true(is(all[tokens[i].id], tokens[i].text));
        assert_true(qrn_gguf_array_i64(types, (uint64_t)tokens[i].id, &id));
        assert_int_equal(id, tokens[i].type);
    }
    assert_int_equal(pairs->as.array.n, 3);
    assert_true(qrn_gguf_strings(pairs, merges, 3));
    assert_true(is(merges[0], "a b") && is(merges[1], "\xc4\xa0 ab"));
    assert_true(is(merges[2], "\xc3\x83 \xc2\xa9"));
    assert_true(qrn_gguf_i64(&gguf, "tokenizer.ggml.eos_token_id", &id) && id == 20);
    assert_true(qrn_gguf_i64(&gguf, "tokenizer.ggml.bos_token_id", &id) && id == 0);
    assert_null(qrn_gguf_find(&gguf, "tokenizer.ggml.padding_token_id"));
    qrn_gguf_close(&gguf);
    const struct path jinja = in(&dir, "chat_template.jinja");
    write_text(&jinja, "from the file");
    must_quantise(dir.text, out.text, "F16");
    must_open(out.text, &gguf);
    assert_true(is(string_of(&gguf, "tokenizer.chat_template"), "from the file"));
    qrn_gguf_close(&gguf);
    remove_dir(&dir);
}

/* Without a tokenizer the file says so, and how many rows there are.  One that cannot be read would
 * be lost: that is refused. */
static void test_no_text(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), out = temp("text.gguf");
    struct qrn_gguf gguf;
    int64_t rows = 0;
    must_quantise(dir.text, out.text, "F16");
    must_open(out.text, &gguf);
    assert_true(is(string_of(&gguf, "tokenizer.ggml.model"), "none"));
    assert_true(qrn_gguf_i64(&gguf, "qwen35moe.vocab_size", &rows) && rows == VOCAB);
    qrn_gguf_close(&gguf);
    const struct path json = in(&dir, "tokenizer.json");
    write_text(&json, "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}");
    must_fail(&(struct qrn_quantize_options){.path = dir.text, .out_path = out.text, .type = "F16"},
              QRN_ERR_UNSUPPORTED, "Unigram");
    remove_dir(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
