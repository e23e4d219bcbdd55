/* SPDX-License-Identifier: MIT
 * The forward pass: a layer as a list of ops, one line each. */
#include "model/forward.h"

#include <math.h>
#include "core/device_impl.h"

static void emit(struct qrn_emitter *e, enum qrn_op_id op, const void *args)
{
    if (e->encoder)
        qrn_op_record(e->encoder, op, args);
    else if (e->status == QRN_OK)
        e->status = qrn_op_call(e->device, op, args, &e->error);
}
#define EMIT(e, op, ...) emit(e, QRN_OP_##op, &(const struct qrn_##op##_args){__VA_ARGS__})

/* What the functions below work on. */
struct pass {
    struct qrn_emitter *e;
    const struct qrn_model_config *c;
    const struct qrn_model *model;
    struct qrn_workspace *w;
    struct qrn_step_shape s;
    struct qrn_tensor x, normed;                          /* [n_tokens, d_model] */
    struct qrn_tensor positions, seq_begin, seq_position; /* tables of the step */
    struct qrn_tensor pages;
    float *free; /* of the arena in use */
};

static struct pass begin(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s)
{
    struct qrn_workspace *w = &model->work;
    const struct qrn_model_config *c = &model->files.config;
    return (struct pass){
        .e = e,
        .c = c,
        .model = model,
        .w = w,
        .s = s,
        .x = qrn_tensor_2d(QRN_F32, w->x, s.n_tokens, c->d_model),
        .normed = qrn_tensor_2d(QRN_F32, w->normed, s.n_tokens, c->d_model),
        .positions = qrn_tensor_1d(QRN_I32, w->positions, s.n_tokens),
        .seq_begin = qrn_tensor_1d(QRN_I32, w->seq_begin, s.n_seqs + 1),
        .seq_position = qrn_tensor_1d(QRN_I32, w->seq_position, s.n_seqs),
        .pages = qrn_tensor_2d(QRN_ADDRESS, w->pages, s.n_seqs, s.max_pages),
    };
}

/* A temporary [n_tokens, n] of the arena. */
static struct qrn_tensor take(struct pass *p, int64_t n)
{
    const struct qrn_tensor t = qrn_tensor_2d(QRN_F32, p->free, p->s.n_tokens, n);
    p->free += (p->s.n_tokens * n + 15) / 16 * 16;
    return t;
}

static void norm(struct pass *p, struct qrn_tensor x, struct qrn_tensor weight,
                 struct qrn_tensor out)
{
    EMIT(p->e, rms_norm, .x = x, .weight = weight, .out = out, .eps = (float)p->c->rms_eps);
}

static void matmul(struct pass *p, const struct qrn_matrix *m, struct qrn_tensor x,
                   struct qrn_tensor out)
{
    EMIT(p->e, matmul, .w = m->w, .scales = m->scales, .biases = m->biases, .x = x, .out = out,
         .activation = m->activation, .layout = m->layout);
}

/* Gated DeltaNet: normed -> normed. */
static void linear_mixer(struct pass *p, const struct qrn_linear_weights *l, int64_t i_linear)
{
    const struct qrn_model_config *c = p->c;
    const struct qrn_seq_sizes *sizes = &p->model->sizes;
    const int64_t n_k = c->n_k_heads * c->d_k, n_v = c->n_v_heads * c->d_v;
    const struct qrn_tensor qkv = take(p, 2 * n_k + n_v), conv = take(p, 2 * n_k + n_v);
    const struct qrn_tensor z = take(p, n_v), o = take(p, n_v), a = take(p, c->n_v_heads),
                            b = take(p, c->n_v_heads), g = take(p, c->n_v_heads),
                            beta = take(p, c->n_v_heads);
    const struct qrn_tensor q =
        qrn_tensor_split_last(qrn_tensor_slice(conv, 1, 0, n_k), c->n_k_heads, c->d_k);
    const struct qrn_tensor k =
        qrn_tensor_split_last(qrn_tensor_slice(conv, 1, n_k, n_k), c->n_k_heads, c->d_k);
    const struct qrn_tensor v =
        qrn_tensor_split_last(qrn_tensor_slice(conv, 1, 2 * n_k, n_v), c->n_v_heads, c->d_v);
    const struct qrn_tensor o_heads = qrn_tensor_split_last(o, c->n_v_heads, c->d_v);

    matmul(p, &l->qkv, p->normed, qkv);
    matmul(p, &l->z, p->normed, z);
    matmul(p, &l->b, p->normed, b);
    matmul(p, &l->a, p->normed, a);
    EMIT(p->e, ssm_conv_history, .x = qkv, .weight = l->conv, .seq_begin = p->seq_begin,
         .position = p->seq_position,
         .history = qrn_tensor_1d(QRN_ADDRESS, p->w->history, p->s.n_seqs),
         .history_offset = (size_t)(i_linear * p->s.n_history) * sizes->history_row, .out = conv,
         .n_history = p->s.n_history);
    EMIT(p->e, l2_norm, .x = q, .out = q, .eps = 1e-6f);
    EMIT(p->e, l2_norm, .x = k, .out = k, .eps = 1e-6f);
    EMIT(p->e, gdn_gates, .a = a, .b = b, .a_scale = l->a_scale, .dt_bias = l->dt_bias, .g = g,
         .beta = beta);
    EMIT(p->e, gdn_open_chunk, .q = q, .k = k, .v = v, .g = g, .beta = beta,
         .seq_begin = p->seq_begin, .position = p->seq_position,
         .state = qrn_tensor_2d(QRN_ADDRESS, p->w->state, p->s.n_seqs, 3),
         .rows = qrn_tensor_2d(QRN_ADDRESS, p->w->rows, p->s.n_seqs, 2), .out = o_heads,
         .state_offset = (size_t)i_linear * sizes->state_layer,
         .rows_offset = (size_t)i_linear * sizes->rows_layer, .scale = 1.0f / sqrtf((float)c->d_k),
         .head_map = p->model->weights.head_map);
    EMIT(p->e, rms_norm, .x = o_heads, .weight = l->norm,
         .gate = qrn_tensor_split_last(z, c->n_v_heads, c->d_v), .out = o_heads,
         .eps = (float)c->rms_eps);
    matmul(p, &l->out, o, p->normed);
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
    const int64_t d = c->head_dim, offset = i_attention * (int64_t)p->model->sizes.page_layer;
    const struct qrn_tensor qg = take(p, c->n_heads * 2 * d), k = take(p, c->n_kv_heads * d),
                            v = take(p, c->n_kv_heads * d), o = take(p, c->n_heads * d);
    const struct qrn_tensor pairs =
        qrn_tensor_split_last(qg, c->n_heads, 2 * d); /* [query | gate] */
    const struct qrn_tensor q = qrn_tensor_slice(pairs, 2, 0, d),
                            gate = qrn_tensor_slice(pairs, 2, d, d);
    const struct qrn_tensor k_heads = qrn_tensor_split_last(k, c->n_kv_heads, d),
                            v_heads = qrn_tensor_split_last(v, c->n_kv_heads, d),
                            o_heads = qrn_tensor_split_last(o, c->n_heads, d);

    matmul(p, &l->q, p->normed, qg);
    matmul(p, &l->k, p->normed, k);
    matmul(p, &l->v, p->normed, v);
    norm(p, q, l->q_norm, q);
    norm(p, k_heads, l->k_norm, k_heads);
    rotate(p, q);
    rotate(p, k_heads);
    EMIT(p->e, kv_append_paged, .k = k_heads, .v = v_heads, .seq_begin = p->seq_begin,
         .position = p->seq_position, .pages = p->pages, .page_offset = offset,
         .kv_type = p->model->kv_dtype);
    EMIT(p->e, attention_paged, .q = q, .seq_begin = p->seq_begin, .position = p->seq_position,
         .pages = p->pages, .out = o_heads, .n_kv_heads = c->n_kv_heads, .page_offset = offset,
         .kv_type = p->model->kv_dtype, .scale = 1.0f / sqrtf((float)d));
    EMIT(p->e, sigmoid_mul, .x = o_heads, .gate = gate, .out = o_heads);
    matmul(p, &l->out, o, p->normed);
}

/* SwiGLU: in -> out. */
static void dense_mlp(struct pass *p, const struct qrn_mlp_weights *m, int64_t d_ff,
                      struct qrn_tensor in, struct qrn_tensor out)
{
    const struct qrn_tensor gate = take(p, d_ff), up = take(p, d_ff);
    matmul(p, &m->gate, in, gate);
    matmul(p, &m->up, in, up);
    EMIT(p->e, silu_mul, .gate = gate, .up = up, .out = gate);
    matmul(p, &m->down, gate, out);
}

static void expert_product(struct pass *p, const struct qrn_matrix *m, struct qrn_tensor x,
                           struct qrn_tensor ids, struct qrn_tensor out)
{
    EMIT(p->e, matmul_id, .w = m->w, .scales = m->scales, .biases = m->biases, .x = x, .ids = ids,
         .out = out, .activation = m->activation, .layout = m->layout);
}

/* Chosen experts and, if there is one, the shared expert: normed -> normed. */
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
    struct qrn_tensor shared = {0}, shared_gate = {0};

    matmul(p, &l->moe.router, p->normed, logits);
    EMIT(p->e, moe_route, .logits = logits, .ids = ids, .weights = weights,
         .normalise = c->norm_topk);
    const struct qrn_tensor x = qrn_tensor_split_last(p->normed, 1, c->d_model);
    expert_product(p, &l->moe.gate, x, ids, gate);
    expert_product(p, &l->moe.up, x, ids, up);
    EMIT(p->e, silu_mul, .gate = gate, .up = up, .out = gate);
    expert_product(p, &l->moe.down, gate, ids, down);
    if (c->d_ff_shared) {
        shared = take(p, c->d_model);
        shared_gate = take(p, 1);
        matmul(p, &l->moe.shared_gate, p->normed, shared_gate);
        dense_mlp(p, &l->mlp, c->d_ff_shared, p->normed, shared);
    }
    EMIT(p->e, moe_combine, .experts = down, .weights = weights, .shared = shared,
         .shared_gate = shared_gate, .out = p->normed);
}

void qrn_forward_embedding(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s)
{
    struct pass p = begin(e, model, s);
    const struct qrn_matrix *m = &model->weights.embedding;
    EMIT(e, embedding, .table = m->w, .scales = m->scales, .biases = m->biases,
         .ids = qrn_tensor_1d(QRN_I32, p.w->ids, s.n_tokens), .out = p.x);
}

/* How many layers below i_layer are of the kind of i_layer: its place in states or in pages. */
static int64_t index_of_kind(const struct qrn_weights *w, int64_t i_layer)
{
    int64_t n = 0;
    for (int64_t i = 0; i < i_layer; i++)
        n += w->layers[i].is_linear == w->layers[i_layer].is_linear;
    return n;
}

void qrn_forward_layer(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s,
                       int64_t i_layer)
{
    struct pass p = begin(e, model, s);
    const struct qrn_layer_weights *l = &model->weights.layers[i_layer];
    const int64_t index = index_of_kind(&model->weights, i_layer);
    norm(&p, p.x, l->mixer_norm, p.normed);
    p.free = p.w->mixer;
    if (l->is_linear)
        linear_mixer(&p, &l->linear, index);
    else
        attention_mixer(&p, &l->attention, index);
    EMIT(e, rms_norm, .x = p.normed, .residual = p.x, .sum = p.x, .weight = l->mlp_norm,
         .out = p.normed, .eps = (float)p.c->rms_eps);
    p.free = p.w->mlp;
    if (l->is_moe)
        moe_mlp(&p, l);
    else
        dense_mlp(&p, &l->mlp, p.c->d_ff, p.normed, p.normed);
    EMIT(e, add, .x = p.x, .y = p.normed, .out = p.x);
}

void qrn_forward_head(struct qrn_emitter *e, struct qrn_model *model, int64_t n)
{
    struct pass p = begin(e, model, (struct qrn_step_shape){.n_tokens = n});
    struct qrn_workspace *w = p.w;
    const int64_t d = p.c->d_model;
    const struct qrn_tensor x = qrn_tensor_2d(QRN_F32, w->x, w->max_tokens, d),
                            rows = qrn_tensor_2d(QRN_F32, w->head_normed + QRN_HEAD_ROWS * d, n, d),
                            normed = qrn_tensor_2d(QRN_F32, w->head_normed, n, d),
                            logits = qrn_tensor_2d(QRN_F32, w->logits, n, p.c->vocab_size);
    EMIT(e, embedding, .table = x, .ids = qrn_tensor_1d(QRN_I32, w->head_rows, n), .out = rows);
    norm(&p, rows, model->weights.norm, normed);
    matmul(&p, &model->weights.head, normed, logits);
}
