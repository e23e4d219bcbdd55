/* SPDX-License-Identifier: MIT
 * From the keys tokenizer.ggml.* of a GGUF file to the arrays of a tokenizer. */
#include "text/tokenizer_gguf.h"

#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "text/tokenizer.h"

/* The arrays that the file's are turned into. */
struct arrays {
    struct qrn_span *tokens, *merges;
    int32_t *types;
    size_t n_tokens, n_merges, n_types;
    char pre[64];
    struct qrn_allocator allocator;
};

static void arrays_free(struct arrays *a)
{
    qrn_free(&a->allocator, a->tokens, a->n_tokens * sizeof *a->tokens);
    qrn_free(&a->allocator, a->merges, a->n_merges * sizeof *a->merges);
    qrn_free(&a->allocator, a->types, a->n_types * sizeof *a->types);
}

static bool is(struct qrn_span s, const char *text)
{
    return s.n_bytes == strlen(text) && !memcmp(s.bytes, text, s.n_bytes);
}

static enum qrn_status read_strings(const struct qrn_gguf *gguf, const char *key,
                                    const struct qrn_allocator *allocator, struct qrn_span **out,
                                    size_t *n_out, struct qrn_error *err)
{
    const struct qrn_gguf_value *const value = qrn_gguf_find(gguf, key);
    if (!value || value->type != QRN_GGUF_ARRAY || value->element != QRN_GGUF_STRING)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s is %s", key,
                        value ? "not an array of strings" : "missing");
    const uint64_t n = value->as.array.n;
    size_t n_bytes;
    if (n > INT32_MAX || !qrn_mul_size((size_t)n, sizeof **out, &n_bytes))
        return qrn_fail(err, QRN_ERR_FORMAT, "%s has %llu strings", key, (unsigned long long)n);
    *out = qrn_alloc(allocator, n_bytes);
    if (!*out) return qrn_fail_memory(err, n_bytes, key);
    *n_out = (size_t)n;
    if (!qrn_gguf_strings(value, *out, n))
        return qrn_fail(err, QRN_ERR_FORMAT, "%s cannot be read as strings", key);
    return QRN_OK;
}

/* Without the key all tokens are ordinary. */
static enum qrn_status read_types(const struct qrn_gguf *gguf, struct arrays *a,
                                  struct qrn_error *err)
{
    static const char key[] = "tokenizer.ggml.token_type";
    const struct qrn_gguf_value *const value = qrn_gguf_find(gguf, key);
    if (!value) return QRN_OK;
    if (value->type != QRN_GGUF_ARRAY || value->as.array.n != a->n_tokens)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s is not an array of %zu types, one for each token",
                        key, a->n_tokens);
    const size_t n_bytes = a->n_tokens * sizeof *a->types;
    a->types = qrn_alloc(&a->allocator, n_bytes);
    if (!a->types) return qrn_fail_memory(err, n_bytes, key);
    a->n_types = a->n_tokens;
    for (size_t i = 0; i < a->n_tokens; i++) {
        int64_t type;
        if (!qrn_gguf_array_i64(value, i, &type) || type < QRN_TOKEN_NORMAL ||
            type > QRN_TOKEN_BYTE)
            return qrn_fail(err, QRN_ERR_FORMAT, "%s: the type of token %zu is not 1 to 6", key, i);
        a->types[i] = (int32_t)type;
    }
    return QRN_OK;
}

/* An id, or -1 for no token: absent, or the 2^32 - 1 that some files write. */
static enum qrn_status read_id(const struct qrn_gguf *gguf, const char *key, size_t n_tokens,
                               int32_t *id, struct qrn_error *err)
{
    int64_t value = -1;
    *id = -1;
    if (!qrn_gguf_find(gguf, key)) return QRN_OK;
    if (!qrn_gguf_i64(gguf, key, &value))
        return qrn_fail(err, QRN_ERR_FORMAT, "%s is not a whole number", key);
    if (value == -1 || value == UINT32_MAX) return QRN_OK;
    if (value < 0 || (uint64_t)value >= n_tokens)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s is %lld, but there are %zu tokens", key,
                        (long long)value, n_tokens);
    *id = (int32_t)value;
    return QRN_OK;
}

static enum qrn_status read_pre(const struct qrn_gguf *gguf, struct arrays *a,
                                struct qrn_error *err)
{
    struct qrn_span pre = {"", 0};
    if (qrn_gguf_find(gguf, "tokenizer.ggml.pre") &&
        !qrn_gguf_string(gguf, "tokenizer.ggml.pre", &pre))
        return qrn_fail(err, QRN_ERR_FORMAT, "tokenizer.ggml.pre is not a string");
    if (pre.n_bytes >= sizeof a->pre || memchr(pre.bytes, 0, pre.n_bytes))
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "tokenizer.ggml.pre is not supported, only qwen2 and qwen35 are");
    memcpy(a->pre, pre.bytes, pre.n_bytes);
    return QRN_OK;
}

static enum qrn_status create(const struct qrn_gguf *gguf, struct arrays *a,
                              const struct qrn_host *host, struct qrn_tokenizer **out,
                              struct qrn_error *err)
{
    struct qrn_tokenizer_tables tables = {0};
    QRN_TRY(read_pre(gguf, a, err));
    QRN_TRY(read_strings(gguf, "tokenizer.ggml.tokens", &a->allocator, &a->tokens, &a->n_tokens,
                         err));
    QRN_TRY(read_strings(gguf, "tokenizer.ggml.merges", &a->allocator, &a->merges, &a->n_merges,
                         err));
    QRN_TRY(read_types(gguf, a, err));
    QRN_TRY(read_id(gguf, "tokenizer.ggml.bos_token_id", a->n_tokens, &tables.bos, err));
    QRN_TRY(read_id(gguf, "tokenizer.ggml.eos_token_id", a->n_tokens, &tables.eos, err));
    QRN_TRY(read_id(gguf, "tokenizer.ggml.padding_token_id", a->n_tokens, &tables.pad, err));
    tables.tokens = a->tokens;
    tables.types = a->types;
    tables.n_tokens = a->n_tokens;
    tables.merges = a->merges;
    tables.n_merges = a->n_merges;
    tables.pre = a->pre;
    return qrn_tokenizer_create(&tables, host, out, err);
}

enum qrn_status qrn_tokenizer_create_gguf(const struct qrn_gguf *gguf, const struct qrn_host *host,
                                          struct qrn_tokenizer **out, struct qrn_error *err)
{
    struct qrn_span model;
    if (!qrn_gguf_find(gguf, "tokenizer.ggml.model")) {
        *out = NULL;
        return QRN_OK;
    }
    if (!qrn_gguf_string(gguf, "tokenizer.ggml.model", &model))
        return qrn_fail(err, QRN_ERR_FORMAT, "tokenizer.ggml.model is not a string");
    if (is(model, "none") || is(model, "no_vocab")) {
        *out = NULL;
        return QRN_OK;
    }
    if (!is(model, "gpt2"))
        return qrn_tokenizer_refuse(
            qrn_fail(err, QRN_ERR_UNSUPPORTED,
                     "tokenizer \"%.*s\" is not supported, only gpt2 (byte-level BPE) is",
                     model.n_bytes < 60 ? (int)model.n_bytes : 60, model.bytes),
            err);
    struct arrays a = {.allocator = host ? host->allocator : (struct qrn_allocator){0}};
    const enum qrn_status status = create(gguf, &a, host, out, err);
    arrays_free(&a);
    return status == QRN_OK ? QRN_OK : qrn_tokenizer_refuse(status, err);
}
