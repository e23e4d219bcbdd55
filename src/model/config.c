/* SPDX-License-Identifier: MIT
 * The model's shape: ranges that every reader of it must hold, and giving it back. */
#include "model/config_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

/* X(field, least, most, "its key in config.json", "in GGUF") */
#define RANGE_LIST(X)                                                                              \
    X(d_model, 1, 1 << 20, "hidden_size", "embedding_length")                                      \
    X(vocab_size, 1, 1 << 24, "vocab_size", "rows of token_embd.weight")                           \
    X(context_length, 1, 1 << 30, "max_position_embeddings", "context_length")                     \
    X(n_layers, 1, 1024, "num_hidden_layers", "block_count")                                       \
    X(n_mtp_layers, 0, 16, "mtp_num_hidden_layers", "nextn_predict_layers")                        \
    X(n_heads, 1, 4096, "num_attention_heads", "attention.head_count")                             \
    X(n_kv_heads, 1, 4096, "num_key_value_heads", "attention.head_count_kv")                       \
    X(head_dim, 2, 4096, "head_dim", "attention.key_length")                                       \
    X(n_rot, 2, 4096, "partial_rotary_factor * head_dim", "rope.dimension_count")                  \
    X(n_k_heads, 1, 4096, "linear_num_key_heads", "ssm.group_count")                               \
    X(n_v_heads, 1, 4096, "linear_num_value_heads", "ssm.time_step_rank")                          \
    X(d_k, 1, 4096, "linear_key_head_dim", "ssm.state_size")                                       \
    X(d_v, 1, 4096, "linear_value_head_dim", "ssm.inner_size / ssm.time_step_rank")                \
    X(conv_kernel, 2, 64, "linear_conv_kernel_dim", "ssm.conv_kernel")                             \
    X(n_experts, 0, 4096, "num_experts", "expert_count")

static enum qrn_status check_range(const char *hf, const char *gguf, int64_t value, int64_t least,
                                   int64_t most, struct qrn_error *err)
{
    if (value >= least && value <= most) return QRN_OK;
    return qrn_fail(err, QRN_ERR_FORMAT,
                    "%s (%s in GGUF) is %" PRId64 ", wants %" PRId64 " to %" PRId64, hf, gguf,
                    value, least, most);
}

static enum qrn_status check_mlp(const struct qrn_model_config *c, struct qrn_error *err)
{
    if (c->n_experts == 0)
        return check_range("intermediate_size", "feed_forward_length", c->d_ff, 1, 1 << 22, err);
    QRN_TRY(check_range("num_experts_per_tok", "expert_used_count", c->n_experts_used, 1,
                        c->n_experts, err));
    QRN_TRY(check_range("moe_intermediate_size", "expert_feed_forward_length", c->d_ff_expert, 1,
                        1 << 20, err));
    return check_range("shared_expert_intermediate_size", "expert_shared_feed_forward_length",
                       c->d_ff_shared, 1, 1 << 20, err);
}

/* One of numbers that must divide each other. */
static enum qrn_status check_divides(const char *what, int64_t whole, int64_t part,
                                     struct qrn_error *err)
{
    if (whole % part == 0) return QRN_OK;
    return qrn_fail(err, QRN_ERR_FORMAT, "%s: %" PRId64 " is not a multiple of %" PRId64, what,
                    whole, part);
}

static enum qrn_status check_number(const char *what, double value, double least, double most,
                                    struct qrn_error *err)
{
    if (value >= least && value <= most) return QRN_OK; /* false for NaN */
    return qrn_fail(err, QRN_ERR_FORMAT, "%s is %g, wants %g to %g", what, value, least, most);
}

static enum qrn_status check_yarn(const struct qrn_model_config *c, struct qrn_error *err)
{
    if (c->rope_scaling == QRN_ROPE_SCALING_NONE) return QRN_OK;
    QRN_TRY(check_number("the YaRN factor", c->yarn.factor, 1, 1e6, err));
    QRN_TRY(check_number("beta_fast of YaRN", c->yarn.beta_fast, 1e-3, 1e6, err));
    QRN_TRY(check_number("beta_slow of YaRN", c->yarn.beta_slow, 1e-3, 1e6, err));
    QRN_TRY(check_number("attention_factor of YaRN", c->yarn.attention_factor, 1e-6, 1e6, err));
    return check_range("original_max_position_embeddings", "rope.scaling.original_context_length",
                       c->yarn.original_context, 1, 1 << 30, err);
}

enum qrn_status qrn_config_check(const struct qrn_model_config *c, struct qrn_error *err)
{
#define X(field, least, most, hf, gguf) QRN_TRY(check_range(hf, gguf, c->field, least, most, err));
    RANGE_LIST(X)
#undef X
    QRN_TRY(check_mlp(c, err));
    QRN_TRY(check_divides("attention heads per key-value head", c->n_heads, c->n_kv_heads, err));
    QRN_TRY(check_divides("linear value heads per key head", c->n_v_heads, c->n_k_heads, err));
    QRN_TRY(check_divides("rotary dims in pairs", c->n_rot, 2, err));
    if (c->n_rot > c->head_dim)
        return qrn_fail(err, QRN_ERR_FORMAT, "%" PRId64 " rotary dims in heads of %" PRId64,
                        c->n_rot, c->head_dim);
    QRN_TRY(check_number("rms_norm_eps", c->rms_eps, 1e-12, 1, err));
    QRN_TRY(check_number("rope_theta", c->rope_theta, 1, 1e15, err));
    for (int i = 0; i < 4; i++)
        QRN_TRY(check_range("a section of mrope_section", "rope.dimension_sections",
                            c->rope_sections[i], 0, 4096, err));
    return check_yarn(c, err);
}

enum qrn_status qrn_config_add_eos(struct qrn_model_config *c, int64_t id, struct qrn_error *err)
{
    if (id < 0 || id > INT32_MAX)
        return qrn_fail(err, QRN_ERR_FORMAT, "end token %" PRId64 ", wants 0 to %" PRId32, id,
                        INT32_MAX);
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return QRN_OK;
    if (c->n_eos == QRN_CONFIG_MAX_EOS)
        return qrn_fail(err, QRN_ERR_FORMAT, "more than %d end tokens", QRN_CONFIG_MAX_EOS);
    c->eos[c->n_eos++] = (int32_t)id;
    return QRN_OK;
}

enum qrn_status qrn_config_layers(struct qrn_model_config *c, int64_t n_layers, int64_t interval,
                                  struct qrn_error *err)
{
    QRN_TRY(check_range("num_hidden_layers", "block_count - nextn_predict_layers", n_layers, 1,
                        1024, err));
    QRN_TRY(
        check_range("full_attention_interval", "full_attention_interval", interval, 1, 1024, err));
    c->layer_is_linear = qrn_alloc(&c->allocator, (size_t)n_layers * sizeof *c->layer_is_linear);
    if (!c->layer_is_linear) return qrn_fail_memory(err, (size_t)n_layers, "the kinds of layers");
    c->n_layers = n_layers;
    for (int64_t i = 0; i < n_layers; i++) c->layer_is_linear[i] = (i + 1) % interval != 0;
    return QRN_OK;
}

double qrn_config_yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

void qrn_config_free(struct qrn_model_config *c)
{
    qrn_free(&c->allocator, c->layer_is_linear, (size_t)c->n_layers * sizeof *c->layer_is_linear);
    for (size_t i = 0; c->overrides && i < c->n_overrides; i++)
        qrn_strfree(&c->allocator, c->overrides[i].path);
    qrn_free(&c->allocator, c->overrides, c->n_overrides * sizeof *c->overrides);
    *c = (struct qrn_model_config){0};
}

static int compare_path(const void *path, const void *override)
{
    return strcmp(path, ((const struct qrn_mlx_override *) override)->path);
}

struct qrn_mlx_quant qrn_config_mlx_quant(const struct qrn_model_config *c, const char *path)
{
    const struct qrn_mlx_override *found = NULL;
    if (c->n_overrides)
        found = bsearch(path, c->overrides, c->n_overrides, sizeof *c->overrides, compare_path);
    return found ? found->quant : c->mlx;
}
