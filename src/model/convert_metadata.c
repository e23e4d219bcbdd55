/* SPDX-License-Identifier: MIT
 * The metadata of a GGUF file: copied from another, or made from a directory's config. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "model/config_check.h"
#include "model/convert.h"

static const char file_type_key[] = "general.file_type";
static const char version_key[] = "general.quantization_version";

static bool is(struct qrn_span s, const char *text)
{
    return s.n_bytes == strlen(text) && memcmp(s.bytes, text, s.n_bytes) == 0;
}

/* All but what we write ourselves and what joins the files of a split set. */
static void copy_values(const struct qrn_gguf *gguf, struct qrn_gguf_writer *w)
{
    static const char *const dropped[] = {file_type_key, version_key, "split.no", "split.count",
                                          "split.tensors.count"};
    for (size_t i = 0; i < gguf->n_values; i++) {
        bool keep = true;
        for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++)
            if (is(gguf->values[i].key, dropped[k])) keep = false;
        if (keep) qrn_gguf_write_value(w, &gguf->values[i]);
    }
}

/* --- from config.json --- */

struct keys {
    const struct qrn_model_config *config;
    const char *prefix; /* "qwen35" */
    struct qrn_gguf_writer *w;
};

struct key {
    char text[80];
};

static struct key full_key(const struct keys *k, const char *key)
{
    struct key full;
    (void)snprintf(full.text, sizeof full.text, "%s.%s", k->prefix, key);
    return full;
}

static void write_u32(const struct keys *k, const char *key, int64_t value)
{
    qrn_gguf_write_u32(k->w, full_key(k, key).text, (uint32_t)value);
}

static void write_f32(const struct keys *k, const char *key, double value)
{
    qrn_gguf_write_f32(k->w, full_key(k, key).text, (float)value);
}

static enum qrn_status write_yarn(const struct keys *k, struct qrn_error *err)
{
    const struct qrn_model_config *c = k->config;
    if (c->rope_scaling == QRN_ROPE_SCALING_NONE) return QRN_OK;
    if (!c->yarn.truncate)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "YaRN without \"truncate\" cannot be said in GGUF");
    qrn_gguf_write_string(k->w, full_key(k, "rope.scaling.type").text,
                          (struct qrn_span){"yarn", 4});
    write_f32(k, "rope.scaling.factor", c->yarn.factor);
    write_u32(k, "rope.scaling.original_context_length", c->yarn.original_context);
    write_f32(k, "rope.scaling.yarn_beta_fast", c->yarn.beta_fast);
    write_f32(k, "rope.scaling.yarn_beta_slow", c->yarn.beta_slow);
    /* What a reader multiplies by: the key times the usual function of factor. */
    const double usual = qrn_config_yarn_mscale(c->yarn.factor, 1);
    if (fabs(c->yarn.attention_factor / usual - 1) > 1e-6)
        write_f32(k, "rope.scaling.yarn_attn_factor", c->yarn.attention_factor / usual);
    return QRN_OK;
}

static enum qrn_status write_rope(const struct keys *k, struct qrn_error *err)
{
    const struct qrn_model_config *c = k->config;
    int32_t sections[4];
    for (int i = 0; i < 4; i++) sections[i] = (int32_t)c->rope_sections[i];
    if (c->architecture != QRN_QWEN3NEXT)
        qrn_gguf_write_i32s(k->w, full_key(k, "rope.dimension_sections").text, sections, 4);
    write_f32(k, "rope.freq_base", c->rope_theta);
    write_u32(k, "rope.dimension_count", c->n_rot);
    return write_yarn(k, err);
}

static void write_experts(const struct keys *k)
{
    const struct qrn_model_config *c = k->config;
    if (!c->n_experts) return;
    write_u32(k, "expert_count", c->n_experts);
    write_u32(k, "expert_used_count", c->n_experts_used);
    write_u32(k, "expert_feed_forward_length", c->d_ff_expert);
    write_u32(k, "expert_shared_feed_forward_length", c->d_ff_shared);
    if (!c->norm_topk) qrn_gguf_write_bool(k->w, full_key(k, "expert_weights_norm").text, false);
}

/* The interval that says the same as the list of layers; 4, the usual one, where none does: readers
 * that know the list prefer it. */
static int64_t interval_of(const struct qrn_model_config *c)
{
    for (int64_t n = 0; n <= c->n_layers + 1; n++) {
        const int64_t interval = n == 0 ? 4 : n;
        bool agrees = true;
        for (int64_t i = 0; i < c->n_layers; i++)
            if (c->layer_is_linear[i] != ((i + 1) % interval != 0)) agrees = false;
        if (agrees) return interval;
    }
    return 4;
}

static enum qrn_status write_config(const struct keys *k, struct qrn_error *err)
{
    const struct qrn_model_config *c = k->config;
    write_u32(k, "block_count", c->n_layers);
    write_u32(k, "context_length", c->context_length);
    write_u32(k, "embedding_length", c->d_model);
    if (c->d_ff) write_u32(k, "feed_forward_length", c->d_ff);
    write_u32(k, "attention.head_count", c->n_heads);
    write_u32(k, "attention.head_count_kv", c->n_kv_heads);
    write_u32(k, "attention.key_length", c->head_dim);
    write_u32(k, "attention.value_length", c->head_dim);
    write_f32(k, "attention.layer_norm_rms_epsilon", c->rms_eps);
    write_experts(k);
    write_u32(k, "ssm.conv_kernel", c->conv_kernel);
    write_u32(k, "ssm.state_size", c->d_k);
    write_u32(k, "ssm.group_count", c->n_k_heads);
    write_u32(k, "ssm.time_step_rank", c->n_v_heads);
    write_u32(k, "ssm.inner_size", c->n_v_heads * c->d_v);
    qrn_gguf_write_bools(k->w, full_key(k, "attention.recurrent_layers").text, c->layer_is_linear,
                         (uint64_t)c->n_layers);
    write_u32(k, "full_attention_interval", interval_of(c));
    return write_rope(k, err);
}

/* "models/fairy/" -> "fairy" */
static struct qrn_span last_part(const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/') n--;
    size_t first = n;
    while (first && path[first - 1] != '/') first--;
    return (struct qrn_span){path + first, n - first};
}

static void write_general(const struct keys *k, const struct qrn_model_options *o)
{
    qrn_gguf_write_string(k->w, "general.architecture",
                          (struct qrn_span){k->prefix, strlen(k->prefix)});
    qrn_gguf_write_string(k->w, "general.type", (struct qrn_span){"model", 5});
    const struct qrn_span name = o->path && !o->source ? last_part(o->path) : (struct qrn_span){0};
    if (name.n_bytes && !is(name, ".") && !is(name, ".."))
        qrn_gguf_write_string(k->w, "general.name", name);
}

/* --- all of it --- */

static enum qrn_status make_values(const struct qrn_model_files *files,
                                   const struct qrn_model_options *o, struct qrn_gguf_writer *w,
                                   struct qrn_error *err)
{
    static const char *const architectures[] = {
        [QRN_QWEN35] = "qwen35", [QRN_QWEN35MOE] = "qwen35moe", [QRN_QWEN3NEXT] = "qwen3next"};
    const struct keys k = {&files->config, architectures[files->config.architecture], w};
    write_general(&k, o);
    QRN_TRY(write_config(&k, err));
    if (files->tokenizer) return qrn_convert_text(files->tokenizer, &files->config, o, w, err);
    QRN_TRY(qrn_convert_no_text(o, err));
    qrn_gguf_write_string(w, "tokenizer.ggml.model", (struct qrn_span){"none", 4});
    write_u32(&k, "vocab_size", files->config.vocab_size);
    return QRN_OK;
}

enum qrn_status qrn_convert_metadata(const struct qrn_model_files *files,
                                     const struct qrn_model_options *options,
                                     const struct qrn_recipe_target *target,
                                     struct qrn_gguf_writer *w, struct qrn_error *err)
{
    if (files->format == QRN_FORMAT_GGUF)
        copy_values(&files->gguf, w);
    else
        QRN_TRY(make_values(files, options, w, err));
    qrn_gguf_write_u32(w, version_key, 2);
    qrn_gguf_write_u32(w, file_type_key, (uint32_t)target->file_type);
    return QRN_OK;
}
