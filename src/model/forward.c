/* SPDX-License-Identifier: MIT
 * The forward pass: a layer as a list of ops, one line each. */
#include "model/forward.h"

#include <math.h>
#include "model/pass.h"

/* Gated DeltaNet: normed -> normed. */
static void linear_mixer(struct pass *p, const struct qrn_linear_weights *l, int64_t i_linear)
{
    const struct qrn_model_config *c = p->c;
    const struct qrn_seq_sizes *sizes = &p->stage->sizes;
    const int64_t n_k = c->n_k_heads * c->d_k, n_v = c->n_v_heads * c->d_v;
    const struct qrn_matrix *const in[] = {&l->qkv, &l->z, &l->b, &l->a};
    struct qrn_tensor made[4];
    if (rounds_many(p) && !goes_on(p, &l->z, &l->b)) {
        /* a device may fetch the large product's weights while the gates' is made */
        project(p, in + 2, 2, made + 2);
        project(p, in, 2, made);
    } else {
        project(p, in, 4, made);
    }
    const struct qrn_tensor qkv = made[0], z = made[1], b = made[2], a = made[3];
    const struct qrn_tensor conv = take(p, 2 * n_k + n_v), o = take(p, n_v),
                            g = take(p, c->n_v_heads), beta = take(p, c->n_v_heads);
    const struct qrn_tensor qk =
        qrn_tensor_split_last(qrn_tensor_slice(conv, 1, 0, 2 * n_k), 2 * c->n_k_heads, c->d_k);
    const struct qrn_tensor q = qrn_tensor_slice(qk, 1, 0, c->n_k_heads),
                            k = qrn_tensor_slice(qk, 1, c->n_k_heads, c->n_k_heads);
    const struct qrn_tensor v =
        qrn_tensor_split_last(qrn_tensor_slice(conv, 1, 2 * n_k, n_v), c->n_v_heads, c->d_v);
    const struct qrn_tensor o_heads = qrn_tensor_split_last(o, c->n_v_heads, c->d_v);

    const struct qrn_tensor rounded = take_for(p, &l->out, n_v, c->d_v);
    const struct qrn_tensor none = {0};

    EMIT(p->e, ssm_conv_history, .x = qkv, .weight = l->conv, .seq_begin = p->seq_begin,
         .position = p->seq_position,
         .history = qrn_tensor_1d(QRN_ADDRESS, p->w->tables.history, p->s.n_seqs),
         .history_offset = (size_t)(i_linear * p->s.n_history) * sizes->history_row, .out = conv,
         .n_history = p->s.n_history);
    EMIT(p->e, l2_norm, .x = qk, .out = qk, .eps = 1e-6f);
    EMIT(p->e, gdn_gates, .a = a, .b = b, .a_scale = l->a_scale, .dt_bias = l->dt_bias, .g = g,
         .beta = beta);
    EMIT(p->e, gdn_open_chunk, .q = q, .k = k, .v = v, .g = g, .beta = beta,
         .seq_begin = p->seq_begin, .position = p->seq_position,
         .state = qrn_tensor_2d(QRN_ADDRESS, p->w->tables.state, p->s.n_seqs, 3),
         .rows = qrn_tensor_2d(QRN_ADDRESS, p->w->tables.rows, p->s.n_seqs, 2), .out = o_heads,
         .state_offset = (size_t)i_linear * sizes->state_layer,
         .rows_offset = (size_t)i_linear * sizes->rows_layer, .scale = 1.0f / sqrtf((float)c->d_k),
         .head_map = p->model->weights.head_map, .acts = acts_of(p), .settled = true,
         .drops_inputs = true);
    EMIT(p->e, rms_norm, .x = o_heads, .weight = l->norm,
         .gate = qrn_tensor_split_last(z, c->n_v_heads, c->d_v),
         .out = rounded.n_dims ? none : o_heads, .eps = (float)c->rms_eps,
         .rounded = rounded.n_dims ? qrn_tensor_split_last(rounded, c->n_v_heads, c->d_v) : none);
    matmul(p, &l->out, form_for(p, &l->out, o, rounded), p->normed);
}

static void rotate(struct pass *p, struct qrn_tensor heads)
{
    const struct qrn_model_config *c = p->c;
    struct qrn_rope_scaling scaling = {0};
    if (c->rope_scaling == QRN_ROPE_SCALING_YARN)
        scaling = (struct qrn_rope_scaling){.factor = (float)c->yarn.factor,
                                            .original_context = (float)c->yarn.original_context,
                                            .beta_fast = (float)c->yarn.beta_fast,
                                            .beta_slow = (float)c->yarn.beta_slow,
                                            .attention_factor = (float)c->yarn.attention_factor};
    EMIT(p->e, rope, .x = heads, .positions = p->positions, .out = heads, .n_rot = c->n_rot,
         .theta = c->rope_theta, .mode = QRN_ROPE_NEOX, .scaling = scaling);
}

/* Gated attention: normed -> normed. */
static void attention_mixer(struct pass *p, const struct qrn_attention_weights *l,
                            int64_t i_attention)
{
    const struct qrn_model_config *c = p->c;
    const int64_t d = c->head_dim, offset = i_attention * (int64_t)p->stage->sizes.page_layer;
    const struct qrn_matrix *const in[] = {&l->q, &l->k, &l->v};
    struct qrn_tensor made[3];
    project(p, in, 3, made);
    const struct qrn_tensor qg = made[0], k = made[1], v = made[2], o = take(p, c->n_heads * d);
    const struct qrn_tensor pairs =
        qrn_tensor_split_last(qg, c->n_heads, 2 * d); /* [query | gate] */
    const struct qrn_tensor q = qrn_tensor_slice(pairs, 2, 0, d),
                            gate = qrn_tensor_slice(pairs, 2, d, d);
    const struct qrn_tensor k_heads = qrn_tensor_split_last(k, c->n_kv_heads, d),
                            v_heads = qrn_tensor_split_last(v, c->n_kv_heads, d),
                            o_heads = qrn_tensor_split_last(o, c->n_heads, d);

    const struct qrn_tensor rounded = take_for(p, &l->out, c->n_heads * d, d);

    norm(p, q, l->q_norm, q);
    norm(p, k_heads, l->k_norm, k_heads);
    rotate(p, q);
    rotate(p, k_heads);
    EMIT(p->e, kv_append_paged, .k = k_heads, .v = v_heads, .seq_begin = p->seq_begin,
         .position = p->seq_position, .pages = p->pages, .page_offset = offset,
         .kv_type = p->model->kv_dtype);
    EMIT(p->e, attention_paged, .q = q, .seq_begin = p->seq_begin, .position = p->seq_position,
         .pages = p->pages, .out = o_heads, .n_kv_heads = c->n_kv_heads, .page_offset = offset,
         .kv_type = p->model->kv_dtype, .scale = 1.0f / sqrtf((float)d), .acts = acts_of(p));
    EMIT(p->e, sigmoid_mul, .x = o_heads, .gate = gate,
         .out = rounded.n_dims ? qrn_tensor_split_last(rounded, c->n_heads, d) : o_heads);
    matmul(p, &l->out, form_for(p, &l->out, o, rounded), p->normed);
}

/* What SwiGLU has between its products. */
struct mlp_rows {
    struct qrn_tensor gate, up, middle; /* middle: in the form that down takes */
};

static struct mlp_rows gate_and_up(struct pass *p, const struct qrn_mlp_weights *m, int64_t d_ff)
{
    const struct qrn_matrix *const in[] = {&m->gate, &m->up};
    struct qrn_tensor made[2];
    project(p, in, 2, made);
    const struct qrn_tensor rounded = take_for(p, &m->down, d_ff, d_ff);
    return (struct mlp_rows){made[0], made[1], rounded.n_dims ? rounded : made[0]};
}

static void multiply_gate(struct pass *p, const struct mlp_rows *r)
{
    EMIT(p->e, silu_mul, .gate = r->gate, .up = r->up, .out = r->middle, .drops_inputs = true);
}

/* SwiGLU: normed -> out. */
static void dense_mlp(struct pass *p, const struct qrn_mlp_weights *m, int64_t d_ff,
                      struct qrn_tensor out)
{
    const struct mlp_rows rows = gate_and_up(p, m, d_ff);
    multiply_gate(p, &rows);
    matmul(p, &m->down, rows.middle, out);
}

static void expert_product(struct pass *p, const struct qrn_matrix *m, struct qrn_tensor x,
                           struct qrn_tensor ids, struct qrn_tensor out)
{
    EMIT(p->e, matmul_id, .w = m->w, .scales = m->scales, .biases = m->biases, .x = x, .ids = ids,
         .out = out, .activation = activation_of(p, m), .layout = m->layout,
         .any_order = rounds_many(p));
}

static void expert_normed(struct pass *p, const struct qrn_matrix *m, struct qrn_tensor ids,
                          struct qrn_tensor out)
{
    const struct qrn_tensor x = form_for(p, m, p->normed, p->rounded);
    expert_product(p, m, qrn_tensor_split_last(x, 1, p->c->d_model), ids, out);
}

/* Chosen experts and, if there is one, the shared expert: normed -> normed.  What both do alike comes one
 * after the other, so that a device may make one launch of it. */
static void moe_mlp(struct pass *p, const struct qrn_layer_weights *l)
{
    const struct qrn_model_config *c = p->c;
    const int64_t top = c->n_experts_used, ff = c->d_ff_expert;
    const struct qrn_tensor logits = take(p, c->n_experts), weights = take(p, top);
    struct qrn_tensor ids = take(p, top);
    ids.dtype = QRN_I32;
    const struct qrn_tensor gate = qrn_tensor_split_last(take(p, top * ff), top, ff),
                            up = qrn_tensor_split_last(take(p, top * ff), top, ff),
                            down =
                                qrn_tensor_split_last(take(p, top * c->d_model), top, c->d_model);
    const struct qrn_tensor rounded = take_for(p, &l->moe.down, top * ff, ff);
    const struct mlp_rows rows = {gate, up,
                                  rounded.n_dims ? qrn_tensor_split_last(rounded, top, ff) : gate};
    struct qrn_tensor shared = {0}, shared_gate = {0};
    struct mlp_rows shared_rows = {0};

    matmul_normed(p, &l->moe.router, logits);
    if (c->d_ff_shared) {
        shared_gate = take(p, 1);
        matmul_normed(p, &l->moe.shared_gate, shared_gate);
    }
    EMIT(p->e, moe_route, .logits = logits, .ids = ids, .weights = weights,
         .normalise = c->norm_topk);
    expert_normed(p, &l->moe.gate, ids, gate);
    expert_normed(p, &l->moe.up, ids, up);
    if (c->d_ff_shared) {
        shared = take(p, c->d_model);
        shared_rows = gate_and_up(p, &l->mlp, c->d_ff_shared);
        multiply_gate(p, &shared_rows);
    }
    multiply_gate(p, &rows);
    expert_product(p, &l->moe.down, rows.middle, ids, down);
    if (c->d_ff_shared) matmul(p, &l->mlp.down, shared_rows.middle, shared);
    EMIT(p->e, moe_combine, .experts = down, .weights = weights, .shared = shared,
         .shared_gate = shared_gate, .out = p->normed);
}

void qrn_forward_embedding(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s)
{
    struct pass p = begin(e, model, s);
    const struct qrn_matrix *m = &model->weights.embedding;
    EMIT(e, embedding, .table = m->w, .scales = m->scales, .biases = m->biases,
         .ids = qrn_tensor_1d(QRN_I32, p.w->tables.ids, s.n_tokens), .out = p.x,
         .layout = m->layout);
}

/* How many layers of the stage below i_layer are of the kind of i_layer: its place in states or in
 * pages. */
static int64_t index_of_kind(const struct pass *p, int64_t i_layer)
{
    const struct qrn_weights *w = &p->model->weights;
    int64_t n = 0;
    for (int64_t i = p->stage->begin; i < i_layer; i++)
        n += w->layers[i].is_linear == w->layers[i_layer].is_linear;
    return n;
}

static struct forms mixer_forms(const struct pass *p, const struct qrn_layer_weights *l)
{
    struct forms f = {false, QRN_F32};
    const struct qrn_linear_weights *n = &l->linear;
    const struct qrn_attention_weights *a = &l->attention;
    const struct qrn_matrix *const linear[] = {&n->qkv, &n->z, &n->b, &n->a};
    const struct qrn_matrix *const attention[] = {&a->q, &a->k, &a->v};
    for (int i = 0; i < (l->is_linear ? 4 : 3); i++)
        add_form(p, &f, l->is_linear ? linear[i] : attention[i]);
    return f;
}

static struct forms mlp_forms(const struct pass *p, const struct qrn_layer_weights *l)
{
    const bool has_shared = p->c->d_ff_shared > 0;
    struct forms f = {false, QRN_F32};
    const struct qrn_moe_weights *m = &l->moe;
    const struct qrn_matrix *const moe[] = {&m->gate, &m->up, &m->router, &m->shared_gate};
    for (int i = 0; l->is_moe && i < (has_shared ? 4 : 3); i++) add_form(p, &f, moe[i]);
    if (l->is_moe && !has_shared) return f;
    add_form(p, &f, &l->mlp.gate);
    add_form(p, &f, &l->mlp.up);
    return f;
}

void qrn_forward_layer(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s,
                       int64_t i_layer)
{
    struct pass p = begin(e, model, s);
    const struct qrn_layer_weights *l = &model->weights.layers[i_layer];
    const int64_t index = index_of_kind(&p, i_layer);
    const bool is_first = i_layer == p.stage->begin, is_last = i_layer == p.stage->end - 1;
    const struct qrn_tensor none = {0};
    /* Unless somebody looks at x between layers, it takes up the mlp's part with the next norm. */
    norm_stream(&p, is_first || s.apart ? none : p.normed, l->mixer_norm, mixer_forms(&p, l));
    p.free = p.w->mixer;
    if (l->is_linear)
        linear_mixer(&p, &l->linear, index);
    else
        attention_mixer(&p, &l->attention, index);
    norm_stream(&p, p.normed, l->mlp_norm, mlp_forms(&p, l));
    p.free = p.w->mlp;
    if (l->is_moe)
        moe_mlp(&p, l);
    else
        dense_mlp(&p, &l->mlp, p.c->d_ff, p.normed);
    if (s.apart || (is_last && !(s.to_logits && p.stage->is_last)))
        EMIT(e, add, .x = p.x, .y = p.normed, .out = p.x);
}

void qrn_forward_logits(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s)
{
    struct pass p = begin(e, model, s);
    const struct qrn_matrix *m = &model->weights.head;
    struct forms f = {false, QRN_F32};
    add_form(&p, &f, m);
    norm_stream(&p, p.normed, model->weights.norm, f);
    matmul_normed(&p, m, qrn_tensor_2d(QRN_F32, p.w->logits, s.n_tokens, p.c->vocab_size));
}

void qrn_forward_head(struct qrn_emitter *e, struct qrn_model *model, int64_t n)
{
    struct pass p = begin(e, model, (struct qrn_step_shape){.n_tokens = n});
    struct qrn_workspace *w = p.w;
    const struct qrn_matrix *m = &model->weights.head;
    const int64_t d = p.c->d_model;
    p.free = w->mlp;
    const struct qrn_tensor x = qrn_tensor_2d(QRN_F32, w->x, w->max_tokens, d),
                            rows = qrn_tensor_2d(QRN_F32, w->head_normed + QRN_HEAD_ROWS * d, n, d),
                            normed = qrn_tensor_2d(QRN_F32, w->head_normed, n, d),
                            rounded = take_for(&p, m, d, d),
                            logits = qrn_tensor_2d(QRN_F32, w->logits, n, p.c->vocab_size);
    EMIT(e, embedding, .table = x, .ids = qrn_tensor_1d(QRN_I32, w->tables.head_rows, n),
         .out = rows);
    EMIT(e, rms_norm, .x = rows, .weight = model->weights.norm, .out = normed,
         .eps = (float)p.c->rms_eps, .rounded = rounded);
    matmul(&p, m, form_for(&p, m, normed, rounded), logits);
}
