/* SPDX-License-Identifier: MIT
 * Weights of a GGUF file. */
#include <stdio.h>

#include "base/error.h"
#include "model/load.h"
#include "model/load_projections.h"

static enum qrn_status load_layer(struct loader *ld, int64_t i_layer, struct qrn_layer_weights *l)
{
    static const struct projection_names projections = {.qkvz = "ssm_in.weight",
                                                        .qkv = "attn_qkv.weight",
                                                        .z = "attn_gate.weight",
                                                        .ba = "ssm_ba.weight",
                                                        .b = "ssm_beta.weight",
                                                        .a = "ssm_alpha.weight",
                                                        .dt_bias = "ssm_dt.bias",
                                                        .dt_bias_other = "ssm_dt"};
    static const struct expert_names experts = {.gate_up = "ffn_gate_up_exps.weight",
                                                .gate = "ffn_gate_exps.weight",
                                                .up = "ffn_up_exps.weight",
                                                .down = "ffn_down_exps.weight"};
    qrn_load_enter_layer(ld, i_layer);
    QRN_TRY(qrn_load_layer_by_rules(ld, i_layer, l));
    if (l->is_linear) QRN_TRY(qrn_load_linear_projections(ld, i_layer, &projections, &l->linear));
    return l->is_moe ? qrn_load_stacked_experts(ld, i_layer, &experts, &l->moe) : QRN_OK;
}

enum qrn_status qrn_load_gguf(struct loader *ld)
{
    const struct qrn_model_config *c = ld->config;
    struct qrn_weights *w = ld->weights;
    struct row_run embedding, head;
    for (int64_t i = 0; i < c->n_layers; i++) QRN_TRY(load_layer(ld, i, &w->layers[i]));
    qrn_load_enter_layer(ld, c->n_layers);
    QRN_TRY(qrn_load_run(ld, "token_embd.weight", &embedding));
    head = embedding;
    const bool tied = !qrn_load_find(ld, "output.weight");
    if (!tied) {
        QRN_TRY(qrn_load_run(ld, "output.weight", &head));
        w->n_parameters += c->vocab_size * c->d_model;
    }
    QRN_TRY(qrn_load_matrix(ld, &head, 1, 0, c->vocab_size, c->d_model, BIG, &w->head));
    QRN_TRY(qrn_load_embedding(ld, &embedding, tied ? &w->head : NULL, c->vocab_size, c->d_model,
                               &w->embedding));
    return qrn_load_vector(ld, "output_norm.weight", c->d_model, AS_IS, &w->norm);
}
