/* SPDX-License-Identifier: MIT
 * The model's shape from GGUF metadata, as llama.cpp and others write it. */
#include "model/config_check.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/gguf.h"
#include "base/quote.h"

struct source {
    const struct qrn_gguf *gguf;
    const char *prefix; /* of the architecture's keys: "qwen35" */
};

struct key {
    char text[80];
};

static struct key full_key(const struct source *s, const char *key)
{
    struct key k;
    (void)snprintf(k.text, sizeof k.text, "%s.%s", s->prefix, key);
    return k;
}

static const struct qrn_gguf_value *find(const struct source *s, const char *key)
{
    return qrn_gguf_find(s->gguf, full_key(s, key).text);
}

static bool has_tensor(const struct source *s, int64_t layer, const char *name)
{
    char text[80];
    (void)snprintf(text, sizeof text, "blk.%" PRId64 ".%s", layer, name);
    return qrn_archive_find(&s->gguf->archive, text) != NULL;
}

static enum qrn_status missing(const struct source *s, const char *key, struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_FORMAT, "key %s.%s is missing", s->prefix, key);
}

static enum qrn_status wrong_type(const struct source *s, const char *key, const char *wanted,
                                  struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_FORMAT, "key %s.%s is not %s", s->prefix, key, wanted);
}

#define REQUIRED INT64_MIN /* as the value of an absent key */

/* A scalar, or an array by layer of which the values that are not 0 must agree. */
static enum qrn_status get_integer(const struct source *s, const char *key, int64_t absent,
                                   int64_t *out, struct qrn_error *err)
{
    const struct qrn_gguf_value *v = find(s, key);
    if (!v && absent == REQUIRED) return missing(s, key, err);
    *out = absent;
    if (!v || qrn_gguf_i64(s->gguf, full_key(s, key).text, out)) return QRN_OK;
    if (v->type != QRN_GGUF_ARRAY) return wrong_type(s, key, "an integer", err);
    *out = 0;
    for (uint64_t i = 0; i < v->as.array.n; i++) {
        int64_t one;
        if (!qrn_gguf_array_i64(v, i, &one)) return wrong_type(s, key, "made of integers", err);
        if (one != 0 && *out != 0 && one != *out)
            return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                            "key %s.%s differs between layers: %" PRId64 " and %" PRId64, s->prefix,
                            key, *out, one);
        if (one != 0) *out = one;
    }
    return QRN_OK;
}

static enum qrn_status get_number(const struct source *s, const char *key, double absent,
                                  double *out, struct qrn_error *err)
{
    *out = absent;
    if (!find(s, key) || qrn_gguf_f64(s->gguf, full_key(s, key).text, out)) return QRN_OK;
    return wrong_type(s, key, "a number", err);
}

static enum qrn_status get_bool(const struct source *s, const char *key, bool absent, bool *out,
                                struct qrn_error *err)
{
    int64_t value = absent;
    if (find(s, key) && !qrn_gguf_i64(s->gguf, full_key(s, key).text, &value))
        return wrong_type(s, key, "a bool", err);
    *out = value != 0;
    return QRN_OK;
}

static enum qrn_status take_architecture(struct source *s, struct qrn_model_config *c,
                                         struct qrn_error *err)
{
    static const struct {
        const char *name;
        enum qrn_architecture architecture;
    } known[] = {
        {"qwen35", QRN_QWEN35}, {"qwen35moe", QRN_QWEN35MOE}, {"qwen3next", QRN_QWEN3NEXT}};
    struct qrn_span name;
    if (!qrn_gguf_string(s->gguf, "general.architecture", &name))
        return qrn_fail(err, QRN_ERR_FORMAT, "general.architecture is missing or not a string");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (name.n_bytes == strlen(known[i].name) &&
            memcmp(name.bytes, known[i].name, name.n_bytes) == 0) {
            c->architecture = known[i].architecture;
            s->prefix = known[i].name;
            return QRN_OK;
        }
    return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                    "general.architecture %s; known are qwen35, qwen35moe and qwen3next",
                    qrn_quote(name.bytes, name.n_bytes).text);
}

static enum qrn_status take_sizes(const struct source *s, struct qrn_model_config *c,
                                  struct qrn_error *err)
{
    QRN_TRY(get_integer(s, "embedding_length", REQUIRED, &c->d_model, err));
    QRN_TRY(get_integer(s, "context_length", REQUIRED, &c->context_length, err));
    QRN_TRY(get_integer(s, "attention.head_count", REQUIRED, &c->n_heads, err));
    QRN_TRY(get_integer(s, "attention.head_count_kv", REQUIRED, &c->n_kv_heads, err));
    QRN_TRY(get_integer(s, "attention.key_length", REQUIRED, &c->head_dim, err));
    int64_t value_length;
    QRN_TRY(get_integer(s, "attention.value_length", c->head_dim, &value_length, err));
    if (value_length != c->head_dim)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "attention.value_length %" PRId64 " differs from key_length %" PRId64,
                        value_length, c->head_dim);
    QRN_TRY(get_number(s, "attention.layer_norm_rms_epsilon", 1e-6, &c->rms_eps, err));
    QRN_TRY(get_integer(s, "ssm.conv_kernel", REQUIRED, &c->conv_kernel, err));
    QRN_TRY(get_integer(s, "ssm.state_size", REQUIRED, &c->d_k, err));
    QRN_TRY(get_integer(s, "ssm.group_count", REQUIRED, &c->n_k_heads, err));
    QRN_TRY(get_integer(s, "ssm.time_step_rank", REQUIRED, &c->n_v_heads, err));
    int64_t inner;
    QRN_TRY(get_integer(s, "ssm.inner_size", REQUIRED, &inner, err));
    if (c->n_v_heads < 1 || inner % c->n_v_heads != 0)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "ssm.inner_size %" PRId64
                        " is not a multiple of ssm.time_step_rank %" PRId64,
                        inner, c->n_v_heads);
    c->d_v = inner / c->n_v_heads;
    return QRN_OK;
}

static enum qrn_status take_mlp(const struct source *s, struct qrn_model_config *c,
                                struct qrn_error *err)
{
    c->norm_topk = true;
    if (c->architecture == QRN_QWEN35)
        return get_integer(s, "feed_forward_length", REQUIRED, &c->d_ff, err);
    QRN_TRY(get_integer(s, "feed_forward_length", 0, &c->d_ff, err));
    QRN_TRY(get_integer(s, "expert_count", REQUIRED, &c->n_experts, err));
    if (c->n_experts < 1)
        return qrn_fail(err, QRN_ERR_FORMAT, "expert_count is %" PRId64 " in a mixture of experts",
                        c->n_experts);
    QRN_TRY(get_integer(s, "expert_used_count", REQUIRED, &c->n_experts_used, err));
    QRN_TRY(get_integer(s, "expert_feed_forward_length", REQUIRED, &c->d_ff_expert, err));
    QRN_TRY(
        get_integer(s, "expert_shared_feed_forward_length", c->d_ff_expert, &c->d_ff_shared, err));
    return get_bool(s, "expert_weights_norm", true, &c->norm_topk, err);
}

static enum qrn_status take_yarn(const struct source *s, struct qrn_model_config *c,
                                 struct qrn_error *err)
{
    const struct qrn_gguf_value *v = find(s, "rope.scaling.type");
    if (!v) return QRN_OK;
    if (v->type != QRN_GGUF_STRING) return wrong_type(s, "rope.scaling.type", "a string", err);
    const struct qrn_span type = v->as.string;
    if (type.n_bytes == 4 && memcmp(type.bytes, "none", 4) == 0) return QRN_OK;
    if (type.n_bytes != 4 || memcmp(type.bytes, "yarn", 4) != 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "rope.scaling.type %s, supported are none and yarn",
                        qrn_quote(type.bytes, type.n_bytes).text);
    double factor;
    c->rope_scaling = QRN_ROPE_SCALING_YARN;
    c->yarn.truncate = true;
    QRN_TRY(get_number(s, "rope.scaling.factor", 1, &c->yarn.factor, err));
    QRN_TRY(get_integer(s, "rope.scaling.original_context_length", c->context_length,
                        &c->yarn.original_context, err));
    QRN_TRY(get_number(s, "rope.scaling.yarn_beta_fast", 32, &c->yarn.beta_fast, err));
    QRN_TRY(get_number(s, "rope.scaling.yarn_beta_slow", 1, &c->yarn.beta_slow, err));
    QRN_TRY(get_number(s, "rope.scaling.attn_factor", 1, &factor, err));
    QRN_TRY(get_number(s, "rope.scaling.yarn_attn_factor", factor, &factor, err));
    c->yarn.attention_factor = factor * qrn_config_yarn_mscale(c->yarn.factor, 1);
    return QRN_OK;
}

static enum qrn_status take_rope(const struct source *s, struct qrn_model_config *c,
                                 struct qrn_error *err)
{
    static const char name[] = "rope.dimension_sections";
    QRN_TRY(get_number(s, "rope.freq_base", 1e7, &c->rope_theta, err));
    QRN_TRY(get_integer(s, "rope.dimension_count", c->head_dim / 4, &c->n_rot, err));
    const struct qrn_gguf_value *v = find(s, name);
    if (v && (v->type != QRN_GGUF_ARRAY || v->as.array.n > 4))
        return wrong_type(s, name, "an array of at most 4 integers", err);
    for (uint64_t i = 0; v && i < v->as.array.n; i++)
        if (!qrn_gguf_array_i64(v, i, &c->rope_sections[i]))
            return wrong_type(s, name, "an array of at most 4 integers", err);
    return take_yarn(s, c, err);
}

/* Tensors say best what a layer is; without any, a list, then the interval. */
static enum qrn_status take_layers(const struct source *s, struct qrn_model_config *c,
                                   struct qrn_error *err)
{
    static const char list[] = "attention.recurrent_layers";
    int64_t n_blocks, interval;
    QRN_TRY(get_integer(s, "block_count", REQUIRED, &n_blocks, err));
    QRN_TRY(get_integer(s, "nextn_predict_layers", 0, &c->n_mtp_layers, err));
    QRN_TRY(get_integer(s, "full_attention_interval", 4, &interval, err));
    if (c->n_mtp_layers < 0 || c->n_mtp_layers >= n_blocks || n_blocks > 2048)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "block_count is %" PRId64 ", nextn_predict_layers %" PRId64, n_blocks,
                        c->n_mtp_layers);
    if (!find(s, "nextn_predict_layers"))
        while (c->n_mtp_layers < n_blocks - 1 &&
               has_tensor(s, n_blocks - 1 - c->n_mtp_layers, "nextn.eh_proj.weight"))
            c->n_mtp_layers++;
    QRN_TRY(qrn_config_layers(c, n_blocks - c->n_mtp_layers, interval, err));
    const struct qrn_gguf_value *v = find(s, list);
    if (v && v->type != QRN_GGUF_ARRAY) return wrong_type(s, list, "an array of bools", err);
    if (v && v->as.array.n < (uint64_t)c->n_layers)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s has %" PRIu64 " entries, wants %" PRId64, list,
                        v->as.array.n, c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t linear = c->layer_is_linear[i];
        if (v && !qrn_gguf_array_i64(v, (uint64_t)i, &linear))
            return wrong_type(s, list, "an array of bools", err);
        if (has_tensor(s, i, "ssm_a") || has_tensor(s, i, "ssm_out.weight"))
            linear = 1;
        else if (has_tensor(s, i, "attn_q.weight"))
            linear = 0;
        c->layer_is_linear[i] = linear != 0;
    }
    return QRN_OK;
}

/* Control tokens that end a text in every model of the family, besides those that the file names.
 */
static enum qrn_status take_eos_by_name(const struct source *s, const struct qrn_gguf_value *tokens,
                                        struct qrn_model_config *c, struct qrn_error *err)
{
    static const char *const names[] = {"<|im_end|>", "<|endoftext|>"};
    const struct qrn_gguf_value *types = qrn_gguf_find(s->gguf, "tokenizer.ggml.token_type");
    if (!types) return QRN_OK;
    const uint8_t *at = tokens->as.array.bytes;
    for (uint64_t i = 0; i < tokens->as.array.n; i++) {
        struct qrn_gguf_value rest = *tokens;
        struct qrn_span token = {0};
        int64_t type;
        rest.as.array.bytes = at;
        (void)qrn_gguf_strings(&rest, &token, 1);
        at = (const uint8_t *)token.bytes + token.n_bytes;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (token.n_bytes == strlen(names[k]) &&
                memcmp(token.bytes, names[k], token.n_bytes) == 0 &&
                qrn_gguf_array_i64(types, i, &type) && type == 3)
                QRN_TRY(qrn_config_add_eos(c, (int64_t)i, err));
    }
    return QRN_OK;
}

static enum qrn_status take_vocabulary(const struct source *s, struct qrn_model_config *c,
                                       struct qrn_error *err)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    const struct qrn_gguf_value *tokens = qrn_gguf_find(s->gguf, "tokenizer.ggml.tokens");
    const struct qrn_archive_tensor *embedding =
        qrn_archive_find(&s->gguf->archive, "token_embd.weight");
    const bool listed =
        tokens && tokens->type == QRN_GGUF_ARRAY && tokens->element == QRN_GGUF_STRING;
    if (tokens && !listed)
        return qrn_fail(err, QRN_ERR_FORMAT, "tokenizer.ggml.tokens is not an array of strings");
    if (embedding && embedding->n_dims == 2)
        c->vocab_size = embedding->shape[0];
    else if (listed && tokens->as.array.n < INT32_MAX)
        c->vocab_size = (int64_t)tokens->as.array.n;
    else
        QRN_TRY(get_integer(s, "vocab_size", REQUIRED, &c->vocab_size, err));

    int64_t id;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (qrn_gguf_i64(s->gguf, ends[i], &id) && id >= 0 && id < c->vocab_size)
            QRN_TRY(qrn_config_add_eos(c, id, err));
    if (listed) QRN_TRY(take_eos_by_name(s, tokens, c, err));
    c->bos = -1;
    if (qrn_gguf_i64(s->gguf, "tokenizer.ggml.bos_token_id", &id) && id >= 0 && id < c->vocab_size)
        c->bos = (int32_t)id;
    return QRN_OK;
}

static enum qrn_status take_all(struct source *s, struct qrn_model_config *c, struct qrn_error *err)
{
    QRN_TRY(take_architecture(s, c, err));
    QRN_TRY(take_sizes(s, c, err));
    QRN_TRY(take_mlp(s, c, err));
    QRN_TRY(take_rope(s, c, err));
    QRN_TRY(take_layers(s, c, err));
    QRN_TRY(take_vocabulary(s, c, err));
    c->tied_embeddings = qrn_archive_find(&s->gguf->archive, "output.weight") == NULL;
    QRN_TRY(get_bool(s, "ssm.v_head_reordered", c->architecture != QRN_QWEN3NEXT, &c->heads_tiled,
                     err));
    return qrn_config_check(c, err);
}

enum qrn_status qrn_config_from_gguf(const struct qrn_gguf *gguf, const struct qrn_host *host,
                                     struct qrn_model_config *config, struct qrn_error *err)
{
    *config = (struct qrn_model_config){.bos = -1};
    if (host) config->allocator = host->allocator;
    struct source s = {.gguf = gguf};
    const enum qrn_status status = take_all(&s, config, err);
    if (status != QRN_OK) qrn_config_free(config);
    return status;
}
