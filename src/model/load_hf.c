/* SPDX-License-Identifier: MIT
 * Weights of a directory of safetensors, as Hugging Face or MLX name them. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/load.h"
#include "model/load_projections.h"

static enum qrn_status find_prefix(struct loader *ld)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
                                           "model."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[LOAD_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (!qrn_load_find(ld, name)) continue;
        (void)snprintf(ld->prefix, sizeof ld->prefix, "%s", prefixes[i]);
        return QRN_OK;
    }
    return qrn_fail(ld->err, QRN_ERR_FORMAT,
                    "there is no tensor \"embed_tokens.weight\" under \"model.\", "
                    "\"model.language_model.\" or \"language_model.model.\"");
}

/* MLX turns conv1d.weight [C, 1, K] into [C, K, 1], and adds the one to the norms then. */
static bool is_raw(struct loader *ld)
{
    for (int64_t i = 0; i < ld->config->n_layers; i++) {
        if (!ld->config->layer_is_linear[i]) continue;
        char name[LOAD_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%slayers.%lld.linear_attn.conv1d.weight", ld->prefix,
                       (long long)i);
        const struct qrn_archive_tensor *t = qrn_load_find(ld, name);
        return !t || t->n_dims < 1 || t->shape[t->n_dims - 1] != 1 || ld->config->conv_kernel == 1;
    }
    return ld->files->format != QRN_FORMAT_MLX;
}

static enum qrn_status load_experts(struct loader *ld, int64_t i_layer, struct qrn_moe_weights *m)
{
    static const struct expert_names hf = {.gate_up = "mlp.experts.gate_up_proj",
                                           .gate = "mlp.experts.gate_proj",
                                           .up = "mlp.experts.up_proj",
                                           .down = "mlp.experts.down_proj"};
    static const struct expert_names mlx = {.gate_up = "mlp.switch_mlp.gate_up_proj.weight",
                                            .gate = "mlp.switch_mlp.gate_proj.weight",
                                            .up = "mlp.switch_mlp.up_proj.weight",
                                            .down = "mlp.switch_mlp.down_proj.weight"};
    char name[LOAD_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%slayers.%lld.mlp.experts.0.down_proj.weight", ld->prefix,
                   (long long)i_layer);
    if (qrn_load_find(ld, name)) return qrn_load_separate_experts(ld, i_layer, m);
    (void)snprintf(name, sizeof name, "%slayers.%lld.%s", ld->prefix, (long long)i_layer, mlx.down);
    return qrn_load_stacked_experts(ld, i_layer, qrn_load_find(ld, name) ? &mlx : &hf, m);
}

static enum qrn_status load_layer(struct loader *ld, int64_t i_layer, struct qrn_layer_weights *l)
{
    static const struct projection_names names = {.qkvz = "linear_attn.in_proj_qkvz.weight",
                                                  .qkv = "linear_attn.in_proj_qkv.weight",
                                                  .z = "linear_attn.in_proj_z.weight",
                                                  .ba = "linear_attn.in_proj_ba.weight",
                                                  .b = "linear_attn.in_proj_b.weight",
                                                  .a = "linear_attn.in_proj_a.weight",
                                                  .dt_bias = "linear_attn.dt_bias",
                                                  .dt_bias_other = "linear_attn.dt_bias"};
    qrn_load_enter_layer(ld, i_layer);
    QRN_TRY(qrn_load_layer_by_rules(ld, i_layer, l));
    if (l->is_linear) QRN_TRY(qrn_load_linear_projections(ld, i_layer, &names, &l->linear));
    return l->is_moe ? load_experts(ld, i_layer, &l->moe) : QRN_OK;
}

static enum qrn_status load_ends(struct loader *ld)
{
    const struct qrn_model_config *c = ld->config;
    struct qrn_weights *w = ld->weights;
    struct row_run embedding, head;
    char name[LOAD_NAME_BYTES];
    qrn_load_enter_layer(ld, c->n_layers);
    (void)snprintf(name, sizeof name, "%sembed_tokens.weight", ld->prefix);
    QRN_TRY(qrn_load_run(ld, name, &embedding));
    head = embedding;
    if (!c->tied_embeddings) {
        const char *other = "language_model.lm_head.weight";
        QRN_TRY(qrn_load_run(ld, qrn_load_find(ld, other) ? other : "lm_head.weight", &head));
        w->n_parameters += c->vocab_size * c->d_model;
    }
    QRN_TRY(qrn_load_matrix(ld, &head, 1, 0, c->vocab_size, c->d_model, BIG, &w->head));
    QRN_TRY(qrn_load_embedding(ld, &embedding, c->tied_embeddings ? &w->head : NULL, c->vocab_size,
                               c->d_model, &w->embedding));
    (void)snprintf(name, sizeof name, "%snorm.weight", ld->prefix);
    return qrn_load_vector(ld, name, c->d_model, ld->raw_hf ? PLUS_ONE : AS_IS, &w->norm);
}

enum qrn_status qrn_load_hf(struct loader *ld)
{
    if (ld->config->quant == QRN_QUANT_FP8)
        return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                        "weights of FP8 with scales by tiles cannot be read");
    QRN_TRY(find_prefix(ld));
    ld->raw_hf = is_raw(ld);
    for (int64_t i = 0; i < ld->config->n_layers; i++)
        QRN_TRY(load_layer(ld, i, &ld->weights->layers[i]));
    return load_ends(ld);
}
