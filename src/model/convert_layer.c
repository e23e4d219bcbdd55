/* SPDX-License-Identifier: MIT
 * The GGUF tensors of one layer of a directory: names in both worlds, order of heads, experts. */
#include <inttypes.h>
#include <stdio.h>
#include "base/error.h"
#include "model/convert_hf.h"

enum dim {
    ONE, D_MODEL, N_CONV, N_VALUE, N_V_HEADS, D_V, KERNEL, /* linear layers */
    N_QUERY_GATE, N_KV, N_ATTENTION, HEAD_DIM,             /* attention layers */
    D_FF, D_FF_SHARED, N_EXPERTS                           /* mlp */
};

static int64_t dim_of(const struct qrn_model_config *c, enum dim dim)
{
    switch (dim) {
    case ONE: return 1;
    case D_MODEL: return c->d_model;
    case N_CONV: return 2 * c->n_k_heads * c->d_k + c->n_v_heads * c->d_v;
    case N_VALUE: return c->n_v_heads * c->d_v;
    case N_V_HEADS: return c->n_v_heads;
    case D_V: return c->d_v;
    case KERNEL: return c->conv_kernel;
    case N_QUERY_GATE: return c->n_heads * 2 * c->head_dim;
    case N_KV: return c->n_kv_heads * c->head_dim;
    case N_ATTENTION: return c->n_heads * c->head_dim;
    case HEAD_DIM: return c->head_dim;
    case D_FF: return c->d_ff;
    case D_FF_SHARED: return c->d_ff_shared;
    case N_EXPERTS: return c->n_experts;
    }
    return 0;
}

enum what {
    MATRIX,       /* [rows, cols] */
    VECTOR,       /* [cols] */
    NORM,         /* [cols], 1 + w */
    HEAD_SCALARS, /* [rows], one for each value head */
    HEAD_DECAYS,  /* the same, as -exp() of what the directory holds */
    HEAD_ROWS,    /* [rows, cols], the last n_value rows by value heads */
    HEAD_COLUMNS, /* [rows, cols], columns by value heads */
};

/* A tensor that is one tensor on both sides. */
struct rule {
    const char *hf, *gguf;
    enum what what;
    enum dim rows, cols;
};

static const struct rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", NORM, ONE, D_MODEL},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", NORM, ONE, D_MODEL},
};

static const struct rule linear_layer[] = {
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", HEAD_ROWS, N_CONV, KERNEL},
    {"linear_attn.A_log", "ssm_a", HEAD_DECAYS, N_V_HEADS, ONE},
    {"linear_attn.dt_bias", "ssm_dt.bias", HEAD_SCALARS, N_V_HEADS, ONE},
    {"linear_attn.norm.weight", "ssm_norm.weight", VECTOR, ONE, D_V},
    {"linear_attn.out_proj.weight", "ssm_out.weight", HEAD_COLUMNS, D_MODEL, N_VALUE},
};

static const struct rule attention_layer[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", MATRIX, N_QUERY_GATE, D_MODEL},
    {"self_attn.k_proj.weight", "attn_k.weight", MATRIX, N_KV, D_MODEL},
    {"self_attn.v_proj.weight", "attn_v.weight", MATRIX, N_KV, D_MODEL},
    {"self_attn.o_proj.weight", "attn_output.weight", MATRIX, D_MODEL, N_ATTENTION},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", NORM, ONE, HEAD_DIM},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", NORM, ONE, HEAD_DIM},
};

static const struct rule dense_mlp[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", MATRIX, D_FF, D_MODEL},
    {"mlp.up_proj.weight", "ffn_up.weight", MATRIX, D_FF, D_MODEL},
    {"mlp.down_proj.weight", "ffn_down.weight", MATRIX, D_MODEL, D_FF},
};

static const struct rule router[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", MATRIX, N_EXPERTS, D_MODEL},
};

static const struct rule shared_expert[] = {
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", VECTOR, ONE, D_MODEL},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", MATRIX, D_FF_SHARED, D_MODEL},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", MATRIX, D_FF_SHARED, D_MODEL},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", MATRIX, D_MODEL, D_FF_SHARED},
};

/* Rows before the value heads, then each head's, in the order of GGUF. */
static enum qrn_status add_heads(const struct qrn_hf_list *l, const struct qrn_row_run *whole,
                                 int64_t before, int64_t per_head)
{
    const struct qrn_model_config *c = &l->files->config;
    if (before) QRN_TRY(qrn_convert_add_rows(l->list, whole, 0, before, l->err));
    for (int64_t i = 0; i < c->n_v_heads; i++)
        QRN_TRY(qrn_convert_add_rows(l->list, whole, before + qrn_hf_old_head(c, i) * per_head,
                                     per_head, l->err));
    return QRN_OK;
}

static enum qrn_status apply(const struct qrn_hf_list *l, const struct rule *rules, size_t n_rules)
{
    const struct qrn_model_config *c = &l->files->config;
    for (const struct rule *r = rules; r < rules + n_rules; r++) {
        const int64_t shape[2] = {dim_of(c, r->rows), dim_of(c, r->cols)};
        struct qrn_row_run run;
        QRN_TRY(qrn_hf_rows(l, r->hf, shape[0], shape[1], &run));
        switch (r->what) {
        case MATRIX:
            QRN_TRY(qrn_hf_begin(l, r->gguf, 2, shape, QRN_AS_IS));
            QRN_TRY(qrn_convert_add_rows(l->list, &run, 0, shape[0], l->err));
            break;
        case VECTOR:
        case NORM:
            QRN_TRY(qrn_hf_begin(l, r->gguf, 1, shape + 1,
                                 r->what == NORM && l->is_raw ? QRN_PLUS_ONE : QRN_AS_IS));
            QRN_TRY(qrn_convert_add_rows(l->list, &run, 0, 1, l->err));
            break;
        case HEAD_SCALARS:
        case HEAD_DECAYS:
            QRN_TRY(qrn_hf_begin(l, r->gguf, 1, shape,
                                 r->what == HEAD_DECAYS ? QRN_MINUS_EXP : QRN_AS_IS));
            QRN_TRY(add_heads(l, &run, 0, 1));
            break;
        case HEAD_ROWS:
            QRN_TRY(qrn_hf_begin(l, r->gguf, 2, shape, QRN_AS_IS));
            QRN_TRY(add_heads(l, &run, shape[0] - dim_of(c, N_VALUE), c->d_v));
            break;
        case HEAD_COLUMNS:
            QRN_TRY(qrn_hf_begin(l, r->gguf, 2, shape, QRN_AS_IS));
            QRN_TRY(qrn_convert_add_rows(l->list, &run, 0, shape[0], l->err));
            if (c->architecture != QRN_QWEN3NEXT && c->n_k_heads != c->n_v_heads)
                l->list->tensors[l->list->n_tensors - 1].head_columns = c->d_v;
            break;
        }
    }
    return QRN_OK;
}
#define APPLY(rules) QRN_TRY(apply(l, rules, sizeof rules / sizeof *rules))

/* --- input projections of linear layers --- */

/* Where the rows of a key head (q, k) or a value head (v, z, b, a) are. */
struct head_rows {
    struct qrn_row_run whole;
    int64_t first, n; /* of the first head of a key head's group, or of key head 0 */
    int64_t group;    /* from one key head to the next */
    int64_t step;     /* from one value head of a group to the next */
};

struct projections {
    struct head_rows q, k, v, z, b, a;
};

/* Both tensors of each kind may be one, grouped by key head: d_k of q, d_k of k, r d_v of v, r d_v
 * of z; r of b, r of a (r value heads for each key head). */
static enum qrn_status find_projections(const struct qrn_hf_list *l, struct projections *p)
{
    static const char qkvz[] = "linear_attn.in_proj_qkvz.weight",
                      ba[] = "linear_attn.in_proj_ba.weight";
    const struct qrn_model_config *c = &l->files->config;
    const int64_t n = c->n_k_heads, r = c->n_v_heads / n, d_k = c->d_k, d_v = c->d_v;
    struct qrn_row_run one, other;
    if (qrn_hf_has(l, qkvz)) {
        const int64_t group = 2 * d_k + 2 * r * d_v;
        QRN_TRY(qrn_hf_rows(l, qkvz, n * group, c->d_model, &one));
        p->q = (struct head_rows){one, 0, d_k, group, 0};
        p->k = (struct head_rows){one, d_k, d_k, group, 0};
        p->v = (struct head_rows){one, 2 * d_k, d_v, group, d_v};
        p->z = (struct head_rows){one, 2 * d_k + r * d_v, d_v, group, d_v};
    } else {
        QRN_TRY(
            qrn_hf_rows(l, "linear_attn.in_proj_qkv.weight", dim_of(c, N_CONV), c->d_model, &one));
        QRN_TRY(
            qrn_hf_rows(l, "linear_attn.in_proj_z.weight", dim_of(c, N_VALUE), c->d_model, &other));
        p->q = (struct head_rows){one, 0, d_k, d_k, 0};
        p->k = (struct head_rows){one, n * d_k, d_k, d_k, 0};
        p->v = (struct head_rows){one, 2 * n * d_k, d_v, r * d_v, d_v};
        p->z = (struct head_rows){other, 0, d_v, r * d_v, d_v};
    }
    if (qrn_hf_has(l, ba)) {
        QRN_TRY(qrn_hf_rows(l, ba, 2 * n * r, c->d_model, &one));
        p->b = (struct head_rows){one, 0, 1, 2 * r, 1};
        p->a = (struct head_rows){one, r, 1, 2 * r, 1};
    } else {
        QRN_TRY(qrn_hf_rows(l, "linear_attn.in_proj_b.weight", n * r, c->d_model, &one));
        QRN_TRY(qrn_hf_rows(l, "linear_attn.in_proj_a.weight", n * r, c->d_model, &other));
        p->b = (struct head_rows){one, 0, 1, r, 1};
        p->a = (struct head_rows){other, 0, 1, r, 1};
    }
    return QRN_OK;
}

/* The rows of value head h, or of key head h / r for q and k (r value heads for each key head). */
static enum qrn_status add_head(const struct qrn_hf_list *l, const struct head_rows *rows,
                                int64_t h)
{
    const int64_t r = l->files->config.n_v_heads / l->files->config.n_k_heads;
    return qrn_convert_add_rows(l->list, &rows->whole,
                                rows->first + h / r * rows->group + h % r * rows->step, rows->n,
                                l->err);
}

/* Begins a matrix; adds the value heads in the order of GGUF, behind q and k if they are given. */
static enum qrn_status add_projection(const struct qrn_hf_list *l, const char *gguf, int64_t n_rows,
                                      const struct head_rows *q, const struct head_rows *k,
                                      const struct head_rows *values)
{
    const struct qrn_model_config *c = &l->files->config;
    const int64_t shape[2] = {n_rows, c->d_model}, r = c->n_v_heads / c->n_k_heads;
    QRN_TRY(qrn_hf_begin(l, gguf, 2, shape, QRN_AS_IS));
    for (int64_t h = 0; h < c->n_k_heads && q; h++) QRN_TRY(add_head(l, q, h * r));
    for (int64_t h = 0; h < c->n_k_heads && k; h++) QRN_TRY(add_head(l, k, h * r));
    for (int64_t i = 0; i < c->n_v_heads; i++) QRN_TRY(add_head(l, values, qrn_hf_old_head(c, i)));
    return QRN_OK;
}

/* qwen3next keeps b and a together, by key head. */
static enum qrn_status add_ba(const struct qrn_hf_list *l, const struct projections *p)
{
    const struct qrn_model_config *c = &l->files->config;
    const int64_t shape[2] = {2 * c->n_v_heads, c->d_model}, r = c->n_v_heads / c->n_k_heads;
    QRN_TRY(qrn_hf_begin(l, "ssm_ba.weight", 2, shape, QRN_AS_IS));
    for (int64_t h = 0; h < c->n_v_heads; h += r) {
        for (int64_t i = 0; i < r; i++) QRN_TRY(add_head(l, &p->b, h + i));
        for (int64_t i = 0; i < r; i++) QRN_TRY(add_head(l, &p->a, h + i));
    }
    return QRN_OK;
}

static enum qrn_status list_projections(const struct qrn_hf_list *l)
{
    const struct qrn_model_config *c = &l->files->config;
    struct projections p;
    QRN_TRY(find_projections(l, &p));
    QRN_TRY(add_projection(l, "attn_qkv.weight", dim_of(c, N_CONV), &p.q, &p.k, &p.v));
    QRN_TRY(add_projection(l, "attn_gate.weight", dim_of(c, N_VALUE), NULL, NULL, &p.z));
    if (c->architecture == QRN_QWEN3NEXT) return add_ba(l, &p);
    QRN_TRY(add_projection(l, "ssm_beta.weight", c->n_v_heads, NULL, NULL, &p.b));
    return add_projection(l, "ssm_alpha.weight", c->n_v_heads, NULL, NULL, &p.a);
}

/* --- experts --- */

enum { GATE, UP, DOWN };
static const char *const expert_gguf[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight",
                                          "ffn_down_exps.weight"};
static const char *const expert_hf[] = {"gate_proj", "up_proj", "down_proj"};

static enum qrn_status begin_experts(const struct qrn_hf_list *l, int which, int64_t shape[3])
{
    const struct qrn_model_config *c = &l->files->config;
    shape[0] = c->n_experts;
    shape[1] = which == DOWN ? c->d_model : c->d_ff_expert;
    shape[2] = which == DOWN ? c->d_ff_expert : c->d_model;
    return qrn_hf_begin(l, expert_gguf[which], 3, shape, QRN_AS_IS);
}

/* mlp.experts.E.<which>.weight, one tensor an expert. */
static enum qrn_status list_separate(const struct qrn_hf_list *l, int which)
{
    int64_t shape[3];
    QRN_TRY(begin_experts(l, which, shape));
    for (int64_t e = 0; e < shape[0]; e++) {
        char suffix[64];
        struct qrn_row_run run;
        (void)snprintf(suffix, sizeof suffix, "mlp.experts.%" PRId64 ".%s.weight", e,
                       expert_hf[which]);
        QRN_TRY(qrn_hf_rows(l, suffix, shape[1], shape[2], &run));
        QRN_TRY(qrn_convert_add_rows(l->list, &run, 0, shape[1], l->err));
    }
    return QRN_OK;
}

static enum qrn_status list_stacked(const struct qrn_hf_list *l, int which, const char *suffix)
{
    int64_t shape[3];
    struct qrn_row_run run;
    QRN_TRY(begin_experts(l, which, shape));
    QRN_TRY(qrn_hf_rows(l, suffix, shape[0] * shape[1], shape[2], &run));
    return qrn_convert_add_rows(l->list, &run, 0, shape[0] * shape[1], l->err);
}

/* Halves of one tensor: for each expert d_ff rows of gate, then d_ff of up. */
static enum qrn_status list_half(const struct qrn_hf_list *l, int which, const char *suffix)
{
    int64_t shape[3];
    struct qrn_row_run run;
    QRN_TRY(begin_experts(l, which, shape));
    QRN_TRY(qrn_hf_rows(l, suffix, shape[0] * 2 * shape[1], shape[2], &run));
    for (int64_t e = 0; e < shape[0]; e++)
        QRN_TRY(qrn_convert_add_rows(l->list, &run, (2 * e + (which == UP)) * shape[1], shape[1],
                                     l->err));
    return QRN_OK;
}

static enum qrn_status list_experts(const struct qrn_hf_list *l)
{
    const bool separate = qrn_hf_has(l, "mlp.experts.0.down_proj.weight");
    const bool mlx = qrn_hf_has(l, "mlp.switch_mlp.down_proj.weight");
    const char *folder = mlx ? "mlp.switch_mlp." : "mlp.experts.", *ending = mlx ? ".weight" : "";
    char both[64], one[64];
    (void)snprintf(both, sizeof both, "%sgate_up_proj%s", folder, ending);
    for (int which = GATE; which <= DOWN; which++) {
        (void)snprintf(one, sizeof one, "%s%s%s", folder, expert_hf[which], ending);
        if (separate)
            QRN_TRY(list_separate(l, which));
        else if (which != DOWN && qrn_hf_has(l, both))
            QRN_TRY(list_half(l, which, both));
        else
            QRN_TRY(list_stacked(l, which, one));
    }
    return QRN_OK;
}

enum qrn_status qrn_hf_list_layer(const struct qrn_hf_list *l)
{
    const struct qrn_model_config *c = &l->files->config;
    APPLY(every_layer);
    if (c->layer_is_linear[l->i_layer]) {
        APPLY(linear_layer);
        QRN_TRY(list_projections(l));
    } else {
        APPLY(attention_layer);
    }
    if (!c->n_experts) {
        APPLY(dense_mlp);
        return QRN_OK;
    }
    APPLY(router);
    if (c->d_ff_shared) APPLY(shared_expert);
    return list_experts(l);
}
