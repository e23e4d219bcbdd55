/* SPDX-License-Identifier: MIT
 * Toy models in directories and files for the tests of qrn_quantize: made, quantised, compared. */
#ifndef QUERN_TESTS_QUANTIZE_TOY_H
#define QUERN_TESTS_QUANTIZE_TOY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <quern/quantize.h>
#include "formats/gguf.h"
#include "support/model_test.h"
#include "support/temp.h"
#include "support/toy_model.h"

enum { VOCAB = 96 }; /* of each toy model */

static const char *const members[] = {"config.json", "model.safetensors", "tokenizer.json",
                                      "tokenizer_config.json", "chat_template.jinja"};
enum { N_MEMBERS = sizeof members / sizeof *members };

struct path {
    char text[1024];
};

static inline struct path temp(const char *name)
{
    struct path p;
    (void)snprintf(p.text, sizeof p.text, "%s", temp_path(name));
    return p;
}

static inline struct path in(const struct path *dir, const char *name)
{
    struct path p;
    (void)snprintf(p.text, sizeof p.text, "%.*s/%s", 900, dir->text, name);
    return p;
}

static inline bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static inline bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static inline void write_text(const struct path *path, const char *text)
{
    FILE *f = fopen(path->text, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static inline struct path make_dir(const char *name)
{
    const struct path dir = temp(name);
    assert_int_equal(mkdir(dir.text, 0700), 0);
    return dir;
}

static inline struct path make_toy(enum toy_kind kind)
{
    const struct path dir = make_dir("toy");
    toy_model_write(dir.text, kind);
    return dir;
}

static inline void remove_dir(const struct path *dir)
{
    for (size_t i = 0; i < N_MEMBERS; i++) (void)remove(in(dir, members[i]).text);
    assert_int_equal(rmdir(dir->text), 0);
}

static inline enum qrn_status quantise(const char *path, const char *out, const char *type,
                                       struct qrn_error *err)
{
    const struct qrn_quantize_options o = {.path = path, .out_path = out, .type = type};
    return qrn_quantize(&o, err);
}

static inline void must_quantise(const char *path, const char *out, const char *type)
{
    struct qrn_error err;
    if (quantise(path, out, type, &err) != QRN_OK) fail_msg("%s", err.text);
}

static inline void must_open(const char *path, struct qrn_gguf *gguf)
{
    struct qrn_error err;
    if (qrn_gguf_open(path, NULL, NULL, gguf, &err) != QRN_OK) fail_msg("%s", err.text);
}

static inline void must_be_same_file(const char *a, const char *b)
{
    size_t n, m;
    void *x = read_file(a, &n), *y = read_file(b, &m);
    assert_true(x && y && n > 0);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static inline void must_have_same_tensors(const struct qrn_gguf *a, const struct qrn_gguf *b)
{
    assert_int_equal(a->archive.n_tensors, b->archive.n_tensors);
    for (size_t i = 0; i < a->archive.n_tensors; i++) {
        const struct qrn_archive_tensor *x = &a->archive.tensors[i], *y = &b->archive.tensors[i];
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_bytes, y->n_bytes);
        assert_memory_equal(x->data, y->data, x->n_bytes);
    }
}

static inline void must_fail(const struct qrn_quantize_options *o, enum qrn_status status,
                             const char *fragment)
{
    struct qrn_error err;
    const enum qrn_status s = qrn_quantize(o, &err);
    if (s != status || !strstr(err.text, fragment))
        fail_msg("status %d, text \"%s\"; should be %d with \"%s\"", s, err.text, status, fragment);
    assert_int_equal(qrn_quantize(o, NULL), status);
}

/* A tokenizer with what writers find hard: holes, added tokens beyond the vocabulary, merges of both kinds. */
static const char tokenizer_json[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\\u0120\": 4, "
    "\"\\u0120ab\": 5, \"\\u00c3\\u00a9\": 6, \"\\u00c3\": 7, \"\\u00a9\": 8, \"\\u0143\": 9}, "
    "\"merges\": [[\"a\", \"b\"], \"\\u0120 ab\", [\"\\u00c3\", \"\\u00a9\"]]}, "
    "\"added_tokens\": [{\"id\": 20, \"content\": \"<|end|>\", \"special\": true}, "
    "{\"id\": 21, \"content\": \"<|fim|>\", \"special\": false}, "
    "{\"id\": 22, \"content\": \"<t \\u00e9>\", \"special\": false}], "
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
    "\"pattern\": "
    "{\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": "
    "false, \"use_regex\": false}]}, \"decoder\": {\"type\": \"ByteLevel\"}}";
static const char tokenizer_config[] =
    "{\"eos_token\": \"<|end|>\", \"bos_token\": {\"content\": \"a\"}, \"model_max_length\": "
    "1000000000000000019884624838656, \"chat_template\": [{\"name\": \"tools\", \"template\": "
    "\"T\"}, "
    "{\"name\": \"default\", \"template\": \"D {{x}}\"}]}";

static inline void add_text_files(const struct path *dir)
{
    const struct path json = in(dir, "tokenizer.json"), config = in(dir, "tokenizer_config.json");
    write_text(&json, tokenizer_json);
    write_text(&config, tokenizer_config);
}

#endif
