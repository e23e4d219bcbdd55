/* SPDX-License-Identifier: MIT
 * The model's shape from config.json, as transformers and mlx-lm write it. */
#include "model/config_check.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/quote.h"
#include "model/config_mlx.h"

typedef const struct qrn_json_value json;

/* Keys that hold one integer, and what the classes say where they are absent. */
static const struct {
    const char *key;
    size_t field;
    int64_t absent[3]; /* by enum qrn_architecture */
} integers[] = {
#define FIELD(name) offsetof(struct qrn_model_config, name)
    {"vocab_size", FIELD(vocab_size), {248320, 248320, 151936}},
    {"hidden_size", FIELD(d_model), {4096, 2048, 2048}},
    {"max_position_embeddings", FIELD(context_length), {32768, 32768, 32768}},
    {"mtp_num_hidden_layers", FIELD(n_mtp_layers), {0, 0, 0}},
    {"num_attention_heads", FIELD(n_heads), {16, 16, 16}},
    {"num_key_value_heads", FIELD(n_kv_heads), {4, 2, 2}},
    {"head_dim", FIELD(head_dim), {256, 256, 256}},
    {"linear_num_key_heads", FIELD(n_k_heads), {16, 16, 16}},
    {"linear_num_value_heads", FIELD(n_v_heads), {32, 32, 32}},
    {"linear_key_head_dim", FIELD(d_k), {128, 128, 128}},
    {"linear_value_head_dim", FIELD(d_v), {128, 128, 128}},
    {"linear_conv_kernel_dim", FIELD(conv_kernel), {4, 4, 4}},
    {"intermediate_size", FIELD(d_ff), {12288, 0, 5632}},
    {"num_experts", FIELD(n_experts), {0, 256, 512}},
    {"num_experts_per_tok", FIELD(n_experts_used), {0, 8, 10}},
    {"moe_intermediate_size", FIELD(d_ff_expert), {0, 512, 512}},
    {"shared_expert_intermediate_size", FIELD(d_ff_shared), {0, 512, 512}},
#undef FIELD
};

/* NULL if absent or null. */
static json *member(json *object, const char *key)
{
    json *value = qrn_json_member(object, key);
    return qrn_json_is(value, QRN_JSON_NULL) ? NULL : value;
}

static enum qrn_status wrong_type(const char *key, const char *wanted, struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_FORMAT, "%s is not %s", key, wanted);
}

static enum qrn_status get_integer(json *object, const char *key, int64_t absent, int64_t *out,
                                   struct qrn_error *err)
{
    json *value = member(object, key);
    *out = absent;
    if (!value) return QRN_OK;
    if (value->type != QRN_JSON_INTEGER) return wrong_type(key, "an integer", err);
    *out = value->as.integer;
    return QRN_OK;
}

static enum qrn_status get_number(json *object, const char *key, double absent, double *out,
                                  struct qrn_error *err)
{
    json *value = member(object, key);
    *out = absent;
    if (!value) return QRN_OK;
    return qrn_json_number(value, out) ? QRN_OK : wrong_type(key, "a number", err);
}

static enum qrn_status get_bool(json *object, const char *key, bool absent, bool *out,
                                struct qrn_error *err)
{
    json *value = member(object, key);
    *out = absent;
    if (!value) return QRN_OK;
    if (value->type != QRN_JSON_BOOL) return wrong_type(key, "true or false", err);
    *out = value->as.boolean;
    return QRN_OK;
}

/* An object or NULL. */
static enum qrn_status get_object(json *object, const char *key, json **out, struct qrn_error *err)
{
    *out = member(object, key);
    if (*out && (*out)->type != QRN_JSON_OBJECT) return wrong_type(key, "an object", err);
    return QRN_OK;
}

static enum qrn_status take_architecture(json *top, json *text, struct qrn_model_config *c,
                                         struct qrn_error *err)
{
    static const struct {
        const char *model_type;
        enum qrn_architecture architecture;
    } known[] = {
        {"qwen3_5", QRN_QWEN35},        {"qwen3_5_text", QRN_QWEN35},
        {"qwen3_5_moe", QRN_QWEN35MOE}, {"qwen3_5_moe_text", QRN_QWEN35MOE},
        {"qwen3_next", QRN_QWEN3NEXT},
    };
    json *value = member(text, "model_type");
    if (!value) value = member(top, "model_type");
    if (!qrn_json_is(value, QRN_JSON_STRING))
        return qrn_fail(err, QRN_ERR_FORMAT, "model_type is missing or not a string");
    const char *name = value->as.string;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].model_type) == 0) {
            c->architecture = known[i].architecture;
            return QRN_OK;
        }
    return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                    "model_type %s; known are qwen3_5, qwen3_5_moe and qwen3_next",
                    qrn_quote(name, strlen(name)).text);
}

/* A key that must have one value, if it is there. */
static enum qrn_status require_bool(json *text, const char *key, bool wanted, struct qrn_error *err)
{
    bool value;
    QRN_TRY(get_bool(text, key, wanted, &value, err));
    if (value == wanted) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s is %s: this variant is not supported", key,
                    value ? "true" : "false");
}

/* Refuses variants that the classes allow and no released model has. */
static enum qrn_status check_variant(json *text, const struct qrn_model_config *c,
                                     struct qrn_error *err)
{
    QRN_TRY(require_bool(text, "attention_bias", false, err));
    QRN_TRY(require_bool(text, "attn_output_gate", true, err));
    json *act = member(text, "hidden_act");
    if (act && act->type != QRN_JSON_STRING) return wrong_type("hidden_act", "a string", err);
    if (act && strcmp(act->as.string, "silu") != 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "hidden_act %s, supported is silu",
                        qrn_quote(act->as.string, act->n).text);
    if (c->architecture == QRN_QWEN35) return QRN_OK;
    int64_t step;
    QRN_TRY(get_integer(text, "decoder_sparse_step", 1, &step, err));
    json *dense = member(text, "mlp_only_layers");
    if (dense && dense->type != QRN_JSON_ARRAY)
        return wrong_type("mlp_only_layers", "an array", err);
    const uint32_t n_dense = dense ? dense->n : 0;
    if (step != 1 || n_dense != 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "dense layers among the expert layers (decoder_sparse_step %" PRId64
                        ", %" PRIu32 " mlp_only_layers)",
                        step, n_dense);
    return QRN_OK;
}

static enum qrn_status take_integers(json *text, struct qrn_model_config *c, struct qrn_error *err)
{
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int64_t value;
        QRN_TRY(
            get_integer(text, integers[i].key, integers[i].absent[c->architecture], &value, err));
        memcpy((char *)c + integers[i].field, &value, sizeof value);
    }
    if (c->architecture == QRN_QWEN35 && c->n_experts != 0)
        return qrn_fail(err, QRN_ERR_FORMAT, "num_experts is %" PRId64 " in a dense model",
                        c->n_experts);
    if (c->architecture != QRN_QWEN35 && c->n_experts == 0)
        return qrn_fail(err, QRN_ERR_FORMAT, "num_experts is 0 in a mixture of experts");
    return QRN_OK;
}

static enum qrn_status take_layers(json *text, struct qrn_model_config *c, struct qrn_error *err)
{
    static const int64_t absent[] = {32, 40, 48};
    int64_t n_layers, interval;
    QRN_TRY(get_integer(text, "num_hidden_layers", absent[c->architecture], &n_layers, err));
    QRN_TRY(get_integer(text, "full_attention_interval", 4, &interval, err));
    QRN_TRY(qrn_config_layers(c, n_layers, interval, err));
    json *types = member(text, "layer_types");
    if (!types) return QRN_OK;
    if (types->type != QRN_JSON_ARRAY) return wrong_type("layer_types", "an array", err);
    if (types->n != n_layers)
        return qrn_fail(err, QRN_ERR_FORMAT, "layer_types has %" PRIu32 " entries, wants %" PRId64,
                        types->n, n_layers);
    json *type = types + 1;
    for (uint32_t i = 0; i < types->n; i++, type = qrn_json_next(type)) {
        const char *name = type->type == QRN_JSON_STRING ? type->as.string : "";
        c->layer_is_linear[i] = strcmp(name, "linear_attention") == 0;
        if (!c->layer_is_linear[i] && strcmp(name, "full_attention") != 0)
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "layer_types[%" PRIu32 "] is %s, wants \"linear_attention\" or "
                            "\"full_attention\"",
                            i, qrn_quote(name, strlen(name)).text);
    }
    return QRN_OK;
}

/* The scaling of a rope object: "rope_type", or "type" in older files. */
static enum qrn_status take_scaling(json *rope, struct qrn_model_config *c, struct qrn_error *err)
{
    json *type = member(rope, "rope_type");
    if (!type) type = member(rope, "type");
    if (!type) return QRN_OK;
    if (type->type != QRN_JSON_STRING) return wrong_type("rope_type", "a string", err);
    const char *name = type->as.string;
    if (strcmp(name, "default") == 0 || strcmp(name, "mrope") == 0) return QRN_OK;
    if (strcmp(name, "yarn") != 0)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "rope_type %s, supported are default and yarn",
                        qrn_quote(name, strlen(name)).text);

    double mscale, mscale_all, original;
    c->rope_scaling = QRN_ROPE_SCALING_YARN;
    QRN_TRY(get_integer(rope, "original_max_position_embeddings", c->context_length,
                        &c->yarn.original_context, err));
    original = (double)c->yarn.original_context;
    QRN_TRY(get_number(rope, "factor", original > 0 ? (double)c->context_length / original : 0,
                       &c->yarn.factor, err));
    QRN_TRY(get_number(rope, "beta_fast", 32, &c->yarn.beta_fast, err));
    QRN_TRY(get_number(rope, "beta_slow", 1, &c->yarn.beta_slow, err));
    QRN_TRY(get_number(rope, "mscale", 0, &mscale, err));
    QRN_TRY(get_number(rope, "mscale_all_dim", 0, &mscale_all, err));
    QRN_TRY(get_bool(rope, "truncate", true, &c->yarn.truncate, err));
    const double whole = mscale != 0 && mscale_all != 0
                             ? qrn_config_yarn_mscale(c->yarn.factor, mscale) /
                                   qrn_config_yarn_mscale(c->yarn.factor, mscale_all)
                             : qrn_config_yarn_mscale(c->yarn.factor, 1);
    return get_number(rope, "attention_factor", whole, &c->yarn.attention_factor, err);
}

static enum qrn_status take_sections(json *rope, struct qrn_model_config *c, struct qrn_error *err)
{
    json *sections = member(rope, "mrope_section");
    if (!sections) return QRN_OK;
    bool ok = sections->type == QRN_JSON_ARRAY && sections->n <= 4;
    memset(c->rope_sections, 0, sizeof c->rope_sections);
    for (uint32_t i = 0; ok && i < sections->n; i++) {
        ok = sections[1 + i].type == QRN_JSON_INTEGER;
        if (ok) c->rope_sections[i] = sections[1 + i].as.integer;
    }
    return ok ? QRN_OK : wrong_type("mrope_section", "an array of at most 4 integers", err);
}

/* rope_parameters (or rope_scaling, as it was called) wins over the same keys beside it. */
static enum qrn_status take_rope(json *text, struct qrn_model_config *c, struct qrn_error *err)
{
    double partial;
    QRN_TRY(get_number(text, "rope_theta", c->architecture == QRN_QWEN3NEXT ? 1e4 : 1e7,
                       &c->rope_theta, err));
    QRN_TRY(get_number(text, "partial_rotary_factor", 0.25, &partial, err));
    if (c->architecture != QRN_QWEN3NEXT) {
        static const int64_t sections[4] = {11, 11, 10, 0};
        memcpy(c->rope_sections, sections, sizeof sections);
    }
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        json *rope;
        QRN_TRY(get_object(text, places[i], &rope, err));
        if (!rope) continue;
        QRN_TRY(get_number(rope, "rope_theta", c->rope_theta, &c->rope_theta, err));
        QRN_TRY(get_number(rope, "partial_rotary_factor", partial, &partial, err));
        QRN_TRY(take_scaling(rope, c, err));
        QRN_TRY(take_sections(rope, c, err));
    }
    if (!(partial > 0 && partial <= 1))
        return qrn_fail(err, QRN_ERR_FORMAT, "partial_rotary_factor is %g, wants above 0 to 1",
                        partial);
    if (c->head_dim > 0 && c->head_dim <= 4096) /* else refused with the other ranges */
        c->n_rot = (int64_t)floor((double)c->head_dim * partial);
    return QRN_OK;
}

/* An id, a list of ids or null. */
static enum qrn_status take_eos(json *object, struct qrn_model_config *c, struct qrn_error *err)
{
    json *eos = member(object, "eos_token_id");
    if (!eos) return QRN_OK;
    if (eos->type == QRN_JSON_INTEGER) return qrn_config_add_eos(c, eos->as.integer, err);
    if (eos->type != QRN_JSON_ARRAY) return wrong_type("eos_token_id", "an integer or a list", err);
    for (uint32_t i = 0; i < eos->n; i++) {
        if (eos[1 + i].type != QRN_JSON_INTEGER)
            return wrong_type("eos_token_id", "a list of integers", err);
        QRN_TRY(qrn_config_add_eos(c, eos[1 + i].as.integer, err));
    }
    return QRN_OK;
}

static enum qrn_status take_tokens(json *top, json *text, struct qrn_model_config *c,
                                   struct qrn_error *err)
{
    int64_t bos;
    QRN_TRY(get_integer(top, "bos_token_id", -1, &bos, err));
    QRN_TRY(get_integer(text, "bos_token_id", bos, &bos, err));
    if (bos < -1 || bos > INT32_MAX)
        return qrn_fail(err, QRN_ERR_FORMAT, "bos_token_id is %" PRId64, bos);
    c->bos = (int32_t)bos;
    QRN_TRY(take_eos(top, c, err));
    return text == top ? QRN_OK : take_eos(text, c, err);
}

static enum qrn_status take_all(json *top, struct qrn_model_config *c, struct qrn_error *err)
{
    if (top->type != QRN_JSON_OBJECT) return qrn_fail(err, QRN_ERR_FORMAT, "it is not an object");
    json *text;
    QRN_TRY(get_object(top, "text_config", &text, err));
    if (!text) text = top;
    QRN_TRY(take_architecture(top, text, c, err));
    QRN_TRY(check_variant(text, c, err));
    QRN_TRY(take_integers(text, c, err));
    QRN_TRY(take_layers(text, c, err));
    QRN_TRY(get_number(text, "rms_norm_eps", 1e-6, &c->rms_eps, err));
    QRN_TRY(take_rope(text, c, err));
    QRN_TRY(take_tokens(top, text, c, err));
    QRN_TRY(get_bool(text, "tie_word_embeddings", false, &c->tied_embeddings, err));
    QRN_TRY(get_bool(top, "tie_word_embeddings", c->tied_embeddings, &c->tied_embeddings, err));
    /* qwen3_5_moe has no such key: it always divides. */
    c->norm_topk = true;
    if (c->architecture == QRN_QWEN3NEXT)
        QRN_TRY(get_bool(text, "norm_topk_prob", true, &c->norm_topk, err));
    QRN_TRY(qrn_config_take_quantization(top, c, err));
    return qrn_config_check(c, err);
}

static enum qrn_status parse(const char *name, const char *text, size_t n_text,
                             const struct qrn_host *host, struct qrn_model_config *c,
                             enum qrn_status (*take)(json *, struct qrn_model_config *,
                                                     struct qrn_error *),
                             struct qrn_error *err)
{
    struct qrn_json parsed;
    enum qrn_status s = qrn_json_parse(text, n_text, qrn_json_budget(n_text), host, &parsed, err);
    if (s == QRN_OK) s = take(parsed.values, c, err);
    qrn_json_free(&parsed);
    return s == QRN_OK ? s : qrn_error_prefix(err, s, "%s", name);
}

enum qrn_status qrn_config_from_hf(const char *text, size_t n_text, const char *generation,
                                   size_t n_generation, const struct qrn_host *host,
                                   struct qrn_model_config *config, struct qrn_error *err)
{
    *config = (struct qrn_model_config){.bos = -1};
    if (host) config->allocator = host->allocator;
    enum qrn_status s = parse("config.json", text, n_text, host, config, take_all, err);
    if (s == QRN_OK && generation)
        s = parse("generation_config.json", generation, n_generation, host, config, take_eos, err);
    if (s != QRN_OK) qrn_config_free(config);
    return s;
}
