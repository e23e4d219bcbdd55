/* SPDX-License-Identifier: MIT
 * The tokenizer and the chat template of a directory as metadata of a GGUF file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/convert.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum { MAX_PAD_BYTES = 16 }; /* "[PAD2147483647]" */

/* What GGUF lists, made from what the tokenizer keeps. */
struct tables {
    struct qrn_span *tokens, *merges;
    int32_t *types;
    char *pool, *merge_pool;
    struct qrn_merge *ordered;
    size_t n_tokens, n_merges, n_pool, n_merge_pool;
    const struct qrn_allocator *allocator;
};

static void tables_free(struct tables *t)
{
    qrn_free(t->allocator, t->tokens, t->n_tokens * sizeof *t->tokens);
    qrn_free(t->allocator, t->types, t->n_tokens * sizeof *t->types);
    qrn_free(t->allocator, t->pool, t->n_pool);
    qrn_free(t->allocator, t->merges, t->n_merges * sizeof *t->merges);
    qrn_free(t->allocator, t->ordered, t->n_merges * sizeof *t->ordered);
    qrn_free(t->allocator, t->merge_pool, t->n_merge_pool);
}

static enum qrn_status need(const struct tables *t, size_t n_bytes, void *out,
                            struct qrn_error *err)
{
    void *memory = qrn_alloc(t->allocator, n_bytes);
    if (!memory) return qrn_fail_memory(err, n_bytes, "the vocabulary");
    memcpy(out, &memory, sizeof memory);
    return QRN_OK;
}

/* The character of GPT-2's alphabet that stands for a byte. */
static int32_t character_of(uint8_t byte)
{
    if (byte <= 0x20) return 0x100 + byte;
    if (byte <= 0x7e) return byte;
    if (byte <= 0xa0) return 0x121 + (byte - 0x7f);
    return byte == 0xad ? 0x143 : byte;
}

static size_t put_alphabet(char *out, struct qrn_span bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes.n_bytes; i++)
        n += qrn_utf8_put(out + n, character_of((uint8_t)bytes.bytes[i]));
    return n;
}

/* llama.cpp's converter takes every added token of this look for a control token. */
static bool looks_like_control(struct qrn_span s)
{
    return s.n_bytes >= 4 && memcmp(s.bytes, "<|", 2) == 0 &&
           memcmp(s.bytes + s.n_bytes - 2, "|>", 2) == 0;
}

static enum qrn_status make_tokens(const struct qrn_vocab *v, struct tables *t,
                                   struct qrn_error *err)
{
    QRN_TRY(need(t, t->n_tokens * sizeof *t->tokens, &t->tokens, err));
    QRN_TRY(need(t, t->n_tokens * sizeof *t->types, &t->types, err));
    size_t n_pool = 0, n = 0;
    for (size_t id = 0; id < t->n_tokens; id++) {
        const bool none = id >= v->n_tokens || v->tokens[id].type == QRN_TOKEN_NONE;
        n_pool += none ? MAX_PAD_BYTES : 2 * (size_t)v->tokens[id].n_bytes;
    }
    QRN_TRY(need(t, n_pool, &t->pool, err));
    t->n_pool = n_pool;
    for (size_t id = 0; id < t->n_tokens; id++) {
        char *const text = t->pool + n;
        size_t n_text;
        t->types[id] = id < v->n_tokens ? v->tokens[id].type : QRN_TOKEN_NONE;
        if (t->types[id] == QRN_TOKEN_NONE) {
            n_text = (size_t)snprintf(text, MAX_PAD_BYTES, "[PAD%zu]", id);
            t->types[id] = QRN_TOKEN_UNUSED;
        } else {
            const struct qrn_span bytes = qrn_vocab_bytes(v, id);
            if (t->types[id] == QRN_TOKEN_USER_DEFINED && looks_like_control(bytes))
                t->types[id] = QRN_TOKEN_CONTROL;
            n_text = v->tokens[id].is_literal ? bytes.n_bytes : put_alphabet(text, bytes);
            if (v->tokens[id].is_literal) memcpy(text, bytes.bytes, n_text);
        }
        t->tokens[id] = (struct qrn_span){text, n_text};
        n += n_text;
    }
    return QRN_OK;
}

static int by_rank(const void *a, const void *b)
{
    const struct qrn_merge *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The tokens that a merge joins. */
static struct qrn_span left_of(const struct tables *t, size_t i)
{
    return t->tokens[t->ordered[i].pair >> 32];
}

static struct qrn_span right_of(const struct tables *t, size_t i)
{
    return t->tokens[t->ordered[i].pair & UINT32_MAX];
}

static enum qrn_status make_merges(const struct qrn_merges *m, struct tables *t,
                                   struct qrn_error *err)
{
    size_t n_merges = 0, n_pool = 0, n = 0;
    for (size_t i = 0; i < m->n_slots; i++) n_merges += m->slots[i].rank != QRN_NO_MERGE;
    QRN_TRY(need(t, n_merges * sizeof *t->ordered, &t->ordered, err));
    t->n_merges = n_merges;
    QRN_TRY(need(t, n_merges * sizeof *t->merges, &t->merges, err));
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].rank != QRN_NO_MERGE) t->ordered[n++] = m->slots[i];
    if (n) qsort(t->ordered, n, sizeof *t->ordered, by_rank);
    for (size_t i = 0; i < n; i++) n_pool += left_of(t, i).n_bytes + 1 + right_of(t, i).n_bytes;
    QRN_TRY(need(t, n_pool, &t->merge_pool, err));
    t->n_merge_pool = n_pool;
    char *at = t->merge_pool;
    for (size_t i = 0; i < n; i++) {
        const struct qrn_span left = left_of(t, i), right = right_of(t, i);
        t->merges[i] = (struct qrn_span){at, left.n_bytes + 1 + right.n_bytes};
        memcpy(at, left.bytes, left.n_bytes);
        at[left.n_bytes] = ' ';
        memcpy(at + left.n_bytes + 1, right.bytes, right.n_bytes);
        at += t->merges[i].n_bytes;
    }
    return QRN_OK;
}

static void write_id(struct qrn_gguf_writer *w, const char *key, int64_t id, int64_t vocab_size)
{
    if (id >= 0 && id < vocab_size) qrn_gguf_write_u32(w, key, (uint32_t)id);
}

static void write_tables(const struct qrn_tokenizer *k, const struct qrn_model_config *c,
                         const struct tables *t, struct qrn_gguf_writer *w)
{
    const struct qrn_span pre =
        k->split.has_marks ? (struct qrn_span){"qwen35", 6} : (struct qrn_span){"qwen2", 5};
    const int64_t bos = k->bos >= 0 ? k->bos : c->bos;
    const int64_t eos = k->eos >= 0 ? k->eos : c->n_eos ? c->eos[0] : -1;
    qrn_gguf_write_string(w, "tokenizer.ggml.model", (struct qrn_span){"gpt2", 4});
    qrn_gguf_write_string(w, "tokenizer.ggml.pre", pre);
    qrn_gguf_write_strings(w, "tokenizer.ggml.tokens", t->tokens, t->n_tokens);
    qrn_gguf_write_i32s(w, "tokenizer.ggml.token_type", t->types, t->n_tokens);
    qrn_gguf_write_strings(w, "tokenizer.ggml.merges", t->merges, t->n_merges);
    write_id(w, "tokenizer.ggml.bos_token_id", bos, c->vocab_size);
    write_id(w, "tokenizer.ggml.eos_token_id", eos, c->vocab_size);
    write_id(w, "tokenizer.ggml.padding_token_id", k->pad, c->vocab_size);
    if (bos >= 0) qrn_gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
}

static enum qrn_status write_tokenizer(const struct qrn_tokenizer *k,
                                       const struct qrn_model_config *c,
                                       const struct qrn_allocator *allocator,
                                       struct qrn_gguf_writer *w, struct qrn_error *err)
{
    if (k->ignore_merges)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "\"ignore_merges\" cannot be said in GGUF");
    if (k->vocab.n_tokens > (size_t)c->vocab_size)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "the tokenizer has ids up to %zu, but the embedding %" PRId64 " rows",
                        k->vocab.n_tokens - 1, c->vocab_size);
    struct tables t = {.n_tokens = (size_t)c->vocab_size, .allocator = allocator};
    enum qrn_status s = make_tokens(&k->vocab, &t, err);
    if (s == QRN_OK) s = make_merges(&k->merges, &t, err);
    if (s == QRN_OK) write_tables(k, c, &t, w);
    tables_free(&t);
    return s;
}

/* --- the chat template --- */

/* A file of the directory or the source; zeroes if it is not there. */
static enum qrn_status open_optional(const struct qrn_model_options *o, const char *name,
                                     struct qrn_file *file, struct qrn_error *err)
{
    enum { MAX_PATH = 4096 };
    struct qrn_error own;
    enum qrn_status s;
    *file = (struct qrn_file){0};
    if (o->source) {
        s = qrn_file_open_source(o->source, name, &o->host, file, &own);
    } else {
        char path[MAX_PATH];
        if (snprintf(path, sizeof path, "%s/%s", o->path, name) >= MAX_PATH)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "the path is longer than %d bytes", MAX_PATH);
        s = qrn_file_open(path, &o->host, file, &own);
    }
    if (s == QRN_OK || s == QRN_ERR_IO) return QRN_OK;
    if (err) *err = own;
    return s;
}

/* A string, or of a list of named ones the one named "default". */
static void write_template_of(const struct qrn_json_value *config, struct qrn_gguf_writer *w)
{
    const struct qrn_json_value *value = qrn_json_member(config, "chat_template");
    if (qrn_json_is(value, QRN_JSON_ARRAY)) {
        const struct qrn_json_value *one = value + 1, *chosen = NULL;
        for (uint32_t i = 0; i < value->n && !chosen; i++, one = qrn_json_next(one)) {
            const struct qrn_json_value *name = qrn_json_member(one, "name");
            if (qrn_json_is(name, QRN_JSON_STRING) && strcmp(name->as.string, "default") == 0)
                chosen = qrn_json_member(one, "template");
        }
        value = chosen;
    }
    if (qrn_json_is(value, QRN_JSON_STRING))
        qrn_gguf_write_string(w, "tokenizer.chat_template",
                              (struct qrn_span){value->as.string, value->n});
}

static enum qrn_status write_template(const struct qrn_model_options *o, struct qrn_gguf_writer *w,
                                      struct qrn_error *err)
{
    struct qrn_file file;
    QRN_TRY(open_optional(o, "chat_template.jinja", &file, err));
    if (file.bytes) {
        qrn_gguf_write_string(w, "tokenizer.chat_template",
                              (struct qrn_span){(const char *)file.bytes, file.n_bytes});
        qrn_file_close(&file);
        return QRN_OK;
    }
    QRN_TRY(open_optional(o, "tokenizer_config.json", &file, err));
    if (!file.n_bytes) {
        qrn_file_close(&file);
        return QRN_OK;
    }
    struct qrn_json json;
    const enum qrn_status s = qrn_json_parse(file.bytes, file.n_bytes,
                                             qrn_json_budget(file.n_bytes), &o->host, &json, err);
    if (s == QRN_OK) write_template_of(json.values, w);
    qrn_json_free(&json);
    qrn_file_close(&file);
    return s == QRN_OK ? s : qrn_error_prefix(err, s, "tokenizer_config.json");
}

enum qrn_status qrn_convert_text(const struct qrn_tokenizer *tokenizer,
                                 const struct qrn_model_config *config,
                                 const struct qrn_model_options *options, struct qrn_gguf_writer *w,
                                 struct qrn_error *err)
{
    QRN_TRY(write_tokenizer(tokenizer, config, &options->host.allocator, w, err));
    return write_template(options, w, err);
}

enum qrn_status qrn_convert_no_text(const struct qrn_model_options *options, struct qrn_error *err)
{
    struct qrn_file file;
    struct qrn_tokenizer *tokenizer = NULL;
    QRN_TRY(open_optional(options, "tokenizer.json", &file, err));
    if (!file.bytes) return QRN_OK;
    const struct qrn_span json = {(const char *)file.bytes, file.n_bytes};
    const enum qrn_status s =
        qrn_tokenizer_create_json(json, (struct qrn_span){0}, &options->host, &tokenizer, err);
    qrn_tokenizer_free(tokenizer);
    qrn_file_close(&file);
    if (s == QRN_OK)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "tokenizer_config.json cannot be used");
    return qrn_error_prefix(err, s, "tokenizer.json");
}
