/* SPDX-License-Identifier: MIT
 * Which tensor is which weight: one row for each, with its name in both worlds. */
#include <stdio.h>

#include "base/error.h"
#include "model/load.h"

enum dim {
    D_MODEL,
    N_CONV,
    N_VALUE,
    N_V_HEADS,
    D_V,
    KERNEL, /* linear layers */
    N_QUERY_GATE,
    N_KV,
    N_ATTENTION,
    HEAD_DIM, /* attention layers */
    D_FF,
    D_FF_SHARED,
    N_EXPERTS,
    ONE /* mlp */
};

static int64_t dim_of(const struct qrn_model_config *c, enum dim dim)
{
    const int64_t dims[] = {
        [D_MODEL] = c->d_model,
        [N_CONV] = 2 * c->n_k_heads * c->d_k + c->n_v_heads * c->d_v,
        [N_VALUE] = c->n_v_heads * c->d_v,
        [N_V_HEADS] = c->n_v_heads,
        [D_V] = c->d_v,
        [KERNEL] = c->conv_kernel,
        [N_QUERY_GATE] = c->n_heads * 2 * c->head_dim,
        [N_KV] = c->n_kv_heads * c->head_dim,
        [N_ATTENTION] = c->n_heads * c->head_dim,
        [HEAD_DIM] = c->head_dim,
        [D_FF] = c->d_ff,
        [D_FF_SHARED] = c->d_ff_shared,
        [N_EXPERTS] = c->n_experts,
        [ONE] = 1,
    };
    return dims[dim];
}

enum kind { VECTOR, MATRIX, GATE }; /* GATE: a matrix whose product is a gate or a route */

struct rule {
    size_t at; /* in struct qrn_layer_weights */
    enum kind kind;
    enum dim rows, cols; /* of a vector: their product is its length */
    const char *hf, *gguf;
    enum change change; /* from what Hugging Face stores to what the ops want */
};
#define AT(field) offsetof(struct qrn_layer_weights, field)

static const struct rule every_layer[] = {
    {AT(mixer_norm), VECTOR, D_MODEL, ONE, "input_layernorm.weight", "attn_norm.weight", PLUS_ONE},
    {AT(mlp_norm), VECTOR, D_MODEL, ONE, "post_attention_layernorm.weight",
     "post_attention_norm.weight", PLUS_ONE},
};

static const struct rule linear_layer[] = {
    {AT(linear.conv), VECTOR, N_CONV, KERNEL, "linear_attn.conv1d.weight", "ssm_conv1d.weight",
     AS_IS},
    {AT(linear.a_scale), VECTOR, N_V_HEADS, ONE, "linear_attn.A_log", "ssm_a", MINUS_EXP},
    {AT(linear.norm), VECTOR, D_V, ONE, "linear_attn.norm.weight", "ssm_norm.weight", AS_IS},
    {AT(linear.out), MATRIX, D_MODEL, N_VALUE, "linear_attn.out_proj.weight", "ssm_out.weight",
     AS_IS},
};

static const struct rule attention_layer[] = {
    {AT(attention.q), MATRIX, N_QUERY_GATE, D_MODEL, "self_attn.q_proj.weight", "attn_q.weight",
     AS_IS},
    {AT(attention.k), MATRIX, N_KV, D_MODEL, "self_attn.k_proj.weight", "attn_k.weight", AS_IS},
    {AT(attention.v), MATRIX, N_KV, D_MODEL, "self_attn.v_proj.weight", "attn_v.weight", AS_IS},
    {AT(attention.out), MATRIX, D_MODEL, N_ATTENTION, "self_attn.o_proj.weight",
     "attn_output.weight", AS_IS},
    {AT(attention.q_norm), VECTOR, HEAD_DIM, ONE, "self_attn.q_norm.weight", "attn_q_norm.weight",
     PLUS_ONE},
    {AT(attention.k_norm), VECTOR, HEAD_DIM, ONE, "self_attn.k_norm.weight", "attn_k_norm.weight",
     PLUS_ONE},
};

static const struct rule dense_mlp[] = {
    {AT(mlp.gate), MATRIX, D_FF, D_MODEL, "mlp.gate_proj.weight", "ffn_gate.weight", AS_IS},
    {AT(mlp.up), MATRIX, D_FF, D_MODEL, "mlp.up_proj.weight", "ffn_up.weight", AS_IS},
    {AT(mlp.down), MATRIX, D_MODEL, D_FF, "mlp.down_proj.weight", "ffn_down.weight", AS_IS},
};

static const struct rule moe_mlp[] = {
    {AT(moe.router), GATE, N_EXPERTS, D_MODEL, "mlp.gate.weight", "ffn_gate_inp.weight", AS_IS},
};

static const struct rule shared_expert[] = {
    {AT(moe.shared_gate), GATE, ONE, D_MODEL, "mlp.shared_expert_gate.weight",
     "ffn_gate_inp_shexp.weight", AS_IS},
    {AT(mlp.gate), MATRIX, D_FF_SHARED, D_MODEL, "mlp.shared_expert.gate_proj.weight",
     "ffn_gate_shexp.weight", AS_IS},
    {AT(mlp.up), MATRIX, D_FF_SHARED, D_MODEL, "mlp.shared_expert.up_proj.weight",
     "ffn_up_shexp.weight", AS_IS},
    {AT(mlp.down), MATRIX, D_MODEL, D_FF_SHARED, "mlp.shared_expert.down_proj.weight",
     "ffn_down_shexp.weight", AS_IS},
};

static enum qrn_status apply(struct loader *ld, int64_t i_layer, struct qrn_layer_weights *l,
                             const struct rule *rules, size_t n_rules)
{
    const bool gguf = ld->files->format == QRN_FORMAT_GGUF;
    for (size_t i = 0; i < n_rules; i++) {
        const struct rule *r = &rules[i];
        const int64_t rows = dim_of(ld->config, r->rows), cols = dim_of(ld->config, r->cols);
        void *field = (char *)l + r->at;
        char name[LOAD_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s%s%lld.%s", ld->prefix, gguf ? "blk." : "layers.",
                       (long long)i_layer, gguf ? r->gguf : r->hf);
        /* MLX adds the one itself but keeps the logarithm; GGUF holds both changed. */
        const bool changed = !gguf && (ld->raw_hf || r->change == MINUS_EXP);
        if (r->kind == VECTOR)
            QRN_TRY(qrn_load_vector(ld, name, rows * cols, changed ? r->change : AS_IS, field));
        else
            QRN_TRY(
                qrn_load_named_matrix(ld, name, rows, cols, r->kind == GATE ? SMALL : BIG, field));
    }
    return QRN_OK;
}
#define APPLY(rules) QRN_TRY(apply(ld, i_layer, l, rules, sizeof rules / sizeof *rules))

enum qrn_status qrn_load_layer_by_rules(struct loader *ld, int64_t i_layer,
                                        struct qrn_layer_weights *l)
{
    APPLY(every_layer);
    if (l->is_linear)
        APPLY(linear_layer);
    else
        APPLY(attention_layer);
    if (!l->is_moe) {
        APPLY(dense_mlp);
        return QRN_OK;
    }
    APPLY(moe_mlp);
    if (ld->config->d_ff_shared) APPLY(shared_expert);
    return QRN_OK;
}
