/* SPDX-License-Identifier: MIT
 * Every allocation fails once: an error, nothing leaked, the next call works. */
#include "support/temp.h"
#include "text/tokenizer_test.h"

#include <unistd.h>
#include "support/counting_allocator.h"
#include "text/tokenizer_gguf.h"

/* Many kinds of work: repairs, normal form, long runs of marks, long words, added tokens. */
static char text[4000];
static size_t n_text;

static void make_text(void)
{
    static const char beginning[] = "the and <|end|> e\xcc\x81 \xff\xfe<think> 12 ";
    memcpy(text, beginning, sizeof beginning - 1);
    n_text = sizeof beginning - 1;
    for (int i = 0; i < 50; i++) {
        memcpy(text + n_text, i % 2 ? "\xcc\x81" : "\xcc\x96", 2);
        n_text += 2;
    }
    for (int i = 0; i < 1000; i++) text[n_text++] = "abb"[i % 3];
}

/* From reading to text and back. */
static enum qrn_status run(const struct qrn_host *host, struct qrn_span json)
{
    struct qrn_tokenizer *t = NULL;
    struct qrn_detokenizer *d = NULL;
    struct qrn_token_list ids = {0};
    struct qrn_string decoded = {0};
    struct qrn_error err = {0};
    struct qrn_span config = {"{\"eos_token\":\"<|end|>\"}", 23}, piece;
    config.n_bytes = strlen(config.bytes);
    enum qrn_status status = qrn_tokenizer_create_json(json, config, host, &t, &err);
    if (status == QRN_OK)
        status = qrn_tokenizer_encode(t, text, n_text, QRN_ENCODE_CONTROL, &ids, &err);
    if (status == QRN_OK) status = qrn_tokenizer_decode(t, ids.ids, ids.n_ids, 0, &decoded, &err);
    if (status == QRN_OK) status = qrn_detokenizer_create(t, 0, &d, &err);
    for (size_t i = 0; status == QRN_OK && i < ids.n_ids; i++)
        status = qrn_detokenizer_push(d, ids.ids[i], &piece, &err);
    if (status != QRN_OK) assert_int_equal(err.status, status);
    qrn_detokenizer_free(d);
    qrn_string_free(&decoded);
    qrn_token_list_free(&ids);
    qrn_tokenizer_free(t);
    return status;
}

static void fail_each(struct qrn_span json)
{
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    assert_int_equal(run(&host, json), QRN_OK);
    const size_t n_calls = c.n_calls;
    assert_int_equal(c.live_blocks, 0);
    for (size_t n = 1; n <= n_calls; n++) {
        for (int after = 0; after < 2; after++) {
            counting_allocator_reset(&c);
            c.fail_at = n;
            c.fail_after = after;
            const enum qrn_status status = run(&host, json);
            if (status != QRN_ERR_MEMORY)
                fail_msg("allocation %zu of %zu fails: %s", n, n_calls, qrn_status_name(status));
            assert_int_equal(c.live_blocks, 0);
            assert_int_equal(c.n_bad_frees, 0);
        }
    }
    counting_allocator_reset(&c);
    assert_int_equal(run(&host, json), QRN_OK);
    print_message("%zu allocations, each failed\n", n_calls);
}

static void test_each_allocation(void **state)
{
    (void)state;
    struct qrn_span json;
    char *const bytes = need_file(SMALL_JSON, &json.n_bytes);
    json.bytes = bytes;
    make_text();
    fail_each(json);
    free(bytes);
}

/* A list that holds something keeps it when the next call fails. */
static void test_what_was_there_stays(void **state)
{
    (void)state;
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    struct qrn_tokenizer *const t = open_tokenizer(SMALL_JSON, &host);
    struct qrn_token_list ids = {0};
    struct qrn_string decoded = {0};
    struct qrn_error err;
    make_text();
    assert_int_equal(qrn_tokenizer_encode(t, "12", 2, 0, &ids, &err), QRN_OK);
    assert_int_equal(qrn_tokenizer_decode(t, ids.ids, 2, 0, &decoded, &err), QRN_OK);
    int32_t many[500];
    for (size_t i = 0; i < 500; i++) many[i] = 'x';
    for (size_t n = 1; n < 30; n++) {
        counting_allocator_reset(&c);
        c.fail_at = n;
        const enum qrn_status a = qrn_tokenizer_encode(t, text, n_text, 0, &ids, &err);
        if (a != QRN_OK) assert_int_equal(ids.n_ids, 2);
        assert_int_equal(ids.ids[0], '1');
        counting_allocator_reset(&c);
        c.fail_at = n;
        const enum qrn_status b = qrn_tokenizer_decode(t, many, 500, 0, &decoded, &err);
        if (b != QRN_OK) assert_string_equal(decoded.bytes, "12");
        ids.n_ids = decoded.n_bytes = 2;
        decoded.bytes[2] = 0;
    }
    qrn_token_list_free(&ids);
    qrn_string_free(&decoded);
    qrn_tokenizer_free(t);
    assert_int_equal(c.live_blocks, 0);
}

static void test_gguf(void **state)
{
    (void)state;
    static const struct qrn_span tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"<e>", 3}};
    static const struct qrn_span merges[] = {{"a b", 3}};
    static const int32_t types[] = {1, 1, 1, 3};
    const char *path = temp_path("tokenizer.gguf");
    struct qrn_gguf_writer *w;
    struct qrn_gguf gguf = {0};
    struct qrn_error err;
    assert_int_equal(qrn_gguf_writer_create(path, NULL, &w, &err), QRN_OK);
    qrn_gguf_write_string(w, "tokenizer.ggml.model", (struct qrn_span){"gpt2", 4});
    qrn_gguf_write_string(w, "tokenizer.ggml.pre", (struct qrn_span){"qwen2", 5});
    qrn_gguf_write_strings(w, "tokenizer.ggml.tokens", tokens, 4);
    qrn_gguf_write_i32s(w, "tokenizer.ggml.token_type", types, 4);
    qrn_gguf_write_strings(w, "tokenizer.ggml.merges", merges, 1);
    assert_int_equal(qrn_gguf_writer_finish(w, &err), QRN_OK);
    assert_int_equal(qrn_gguf_open(path, NULL, NULL, &gguf, &err), QRN_OK);
    unlink(path);
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    struct qrn_tokenizer *t = NULL;
    assert_int_equal(qrn_tokenizer_create_gguf(&gguf, &host, &t, &err), QRN_OK);
    qrn_tokenizer_free(t);
    const size_t n_calls = c.n_calls;
    for (size_t n = 1; n <= n_calls; n++) {
        counting_allocator_reset(&c);
        c.fail_at = n;
        assert_int_equal(qrn_tokenizer_create_gguf(&gguf, &host, &t, &err), QRN_ERR_MEMORY);
        assert_int_equal(c.live_blocks, 0);
    }
    qrn_gguf_close(&gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_what_was_there_stays),
        cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
