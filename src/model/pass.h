/* SPDX-License-Identifier: MIT
 * What the forward pass is written with: ops that are emitted, temporaries, the forms in which products take
 * activations, matrices that are one product. */
#ifndef QUERN_MODEL_PASS_H
#define QUERN_MODEL_PASS_H

#include "core/device_impl.h"
#include "formats/blocks.h"
#include "model/forward.h"

static inline void emit(struct qrn_emitter *e, enum qrn_op_id op, const void *args)
{
    if (e->encoder)
        qrn_op_record(e->encoder, op, args);
    else if (e->status == QRN_OK)
        e->status = qrn_op_call(e->stage->device, op, args, &e->error);
}
#define EMIT(e, op, ...) emit(e, QRN_OP_##op, &(const struct qrn_##op##_args){__VA_ARGS__})

/* What the functions below work on. */
struct pass {
    struct qrn_emitter *e;
    const struct qrn_model_config *c;
    const struct qrn_model *model;
    const struct qrn_stage *stage;
    struct qrn_workspace *w;
    struct qrn_step_shape s;
    struct qrn_tensor x, normed; /* [n_tokens, d_model] */
    struct qrn_tensor rounded;   /* normed as products round it; or absent */
    struct qrn_tensor positions, seq_begin, seq_position; /* tables of the step */
    struct qrn_tensor pages;
    float *free; /* of the arena in use */
};

static inline struct pass begin(struct qrn_emitter *e, struct qrn_model *model,
                                struct qrn_step_shape s)
{
    struct qrn_workspace *w = &e->stage->work;
    const struct qrn_model_config *c = &model->files.config;
    return (struct pass){
        .e = e,
        .c = c,
        .model = model,
        .stage = e->stage,
        .w = w,
        .s = s,
        .x = qrn_tensor_2d(QRN_F32, w->x, s.n_tokens, c->d_model),
        .normed = qrn_tensor_2d(QRN_F32, w->normed, s.n_tokens, c->d_model),
        .positions = qrn_tensor_1d(QRN_I32, w->tables.positions, s.n_tokens),
        .seq_begin = qrn_tensor_1d(QRN_I32, w->tables.seq_begin, s.n_seqs + 1),
        .seq_position = qrn_tensor_1d(QRN_I32, w->tables.seq_position, s.n_seqs),
        .pages = qrn_tensor_2d(QRN_ADDRESS, w->tables.pages, s.n_seqs, s.max_pages),
    };
}

/* A temporary [n_tokens, n] of the arena. */
static inline struct qrn_tensor take(struct pass *p, int64_t n)
{
    const struct qrn_tensor t = qrn_tensor_2d(QRN_F32, p->free, p->s.n_tokens, n);
    p->free += (p->s.n_tokens * n + 15) / 16 * 16;
    return t;
}

/* So many tokens have products by bf16 that are faster than those by 8 bits; in small models, whose products are short, it
 * takes more. */
enum { MANY_TOKENS = 9, MANY_OF_SMALL = 17, SMALL_BELOW = 2560 };

/* Whether these tokens may be rounded to bf16 for tensor cores. */
static inline bool rounds_many(const struct pass *p)
{
    const bool is_small = p->c->d_model < SMALL_BELOW && !p->c->n_experts;
    return p->stage->rounds_many && p->s.n_tokens >= (is_small ? MANY_OF_SMALL : MANY_TOKENS);
}

/* What ops without weights may round to. */
static inline enum qrn_activation_type acts_of(const struct pass *p)
{
    return rounds_many(p) ? QRN_ACT_BF16 : QRN_ACT_F32;
}

/* How activations enter a product with m. */
static inline enum qrn_activation_type activation_of(const struct pass *p,
                                                     const struct qrn_matrix *m)
{
    return rounds_many(p) ? m->many : m->activation;
}

/* What a product with m rounds its x to; QRN_F32: nothing, or that is its own affair. */
static inline enum qrn_dtype rounded_type(const struct pass *p, const struct qrn_matrix *m)
{
    const enum qrn_activation_type activation = activation_of(p, m);
    if (activation == QRN_ACT_BF16 && p->stage->takes_bf16) return QRN_BF16;
    return qrn_matmul_x_dtype(m->w.dtype, activation);
}

/* The same for rows of n, which have to be whole blocks. */
static inline enum qrn_dtype x_type(const struct pass *p, const struct qrn_matrix *m, int64_t n)
{
    const enum qrn_dtype type = rounded_type(p, m);
    return n % qrn_dtype_info(type)->block_elements ? QRN_F32 : type;
}

/* Another form of n temporaries: what a product with m rounds rows of x to, if it does.  Then x
 * is rounded once, by the op that makes it. */
static inline struct qrn_tensor take_for(struct pass *p, const struct qrn_matrix *m, int64_t n,
                                         int64_t row)
{
    struct qrn_tensor t = {0};
    const enum qrn_dtype type = x_type(p, m, row);
    if (type == QRN_F32) return t;
    t = qrn_tensor_2d(type, p->free, p->s.n_tokens, n);
    p->free += ((int64_t)t.n_bytes + 63) / 64 * 16;
    return t;
}

/* Which forms of the norm its products take. */
struct forms {
    bool f32;
    enum qrn_dtype rounded; /* QRN_F32: none */
};

static inline void add_form(const struct pass *p, struct forms *f, const struct qrn_matrix *m)
{
    const enum qrn_dtype type = x_type(p, m, m->w.shape[m->w.n_dims - 1]);
    if (type != QRN_F32 && f->rounded == QRN_F32) f->rounded = type;
    f->f32 = f->f32 || type != f->rounded || type == QRN_F32;
}

static inline void norm(struct pass *p, struct qrn_tensor x, struct qrn_tensor weight,
                        struct qrn_tensor out)
{
    EMIT(p->e, rms_norm, .x = x, .weight = weight, .out = out, .eps = (float)p->c->rms_eps);
}

/* normed and rounded from x; first x += more, if there is more. */
static inline void norm_stream(struct pass *p, struct qrn_tensor more, struct qrn_tensor weight,
                               struct forms f)
{
    const struct qrn_tensor none = {0};
    p->rounded = none;
    if (f.rounded != QRN_F32)
        p->rounded = qrn_tensor_2d(f.rounded, p->w->normed_rounded, p->s.n_tokens, p->c->d_model);
    EMIT(p->e, rms_norm, .x = more.n_dims ? more : p->x, .residual = more.n_dims ? p->x : none,
         .sum = more.n_dims ? p->x : none, .weight = weight, .out = f.f32 ? p->normed : none,
         .eps = (float)p->c->rms_eps, .rounded = p->rounded);
}

/* x in the form that m takes: rounded may be absent or of another type. */
static inline struct qrn_tensor form_for(const struct pass *p, const struct qrn_matrix *m,
                                         struct qrn_tensor x, struct qrn_tensor rounded)
{
    return rounded.n_dims && rounded.dtype == rounded_type(p, m) ? rounded : x;
}

static inline void matmul(struct pass *p, const struct qrn_matrix *m, struct qrn_tensor x,
                          struct qrn_tensor out)
{
    EMIT(p->e, matmul, .w = m->w, .scales = m->scales, .biases = m->biases, .x = x, .out = out,
         .activation = activation_of(p, m), .layout = m->layout, .any_order = rounds_many(p));
}

static inline void matmul_normed(struct pass *p, const struct qrn_matrix *m, struct qrn_tensor out)
{
    matmul(p, m, form_for(p, m, p->normed, p->rounded), out);
}

/* Whether b's rows begin in memory where a's end, and are to be multiplied alike: then they are one
 * matrix.  Packed MLX codes say in their size what they are. */
static inline bool goes_on(const struct pass *p, const struct qrn_matrix *a,
                           const struct qrn_matrix *b)
{
    const bool rows = a->layout == QRN_LAYOUT_ROWS;
    return a->w.n_dims == 2 && b->w.n_dims == 2 && a->w.dtype == b->w.dtype &&
           a->w.shape[1] == b->w.shape[1] && activation_of(p, a) == activation_of(p, b) &&
           a->layout == b->layout && !qrn_is_mlx(a->w.dtype) &&
           (rows || a->w.shape[0] % QRN_PACK_ROWS == 0) &&
           (const char *)a->w.data + a->w.n_bytes == (const char *)b->w.data;
}

/* Temporaries out[i], [n_tokens, rows of m[i]], of normed; matrices that are one make one product. */
static inline void project(struct pass *p, const struct qrn_matrix *const *m, int n,
                           struct qrn_tensor *out)
{
    for (int i = 0, end; i < n; i = end) {
        struct qrn_matrix joined = *m[i];
        for (end = i + 1; end < n && goes_on(p, m[end - 1], m[end]); end++) {
            joined.w.shape[0] += m[end]->w.shape[0];
            joined.w.n_bytes += m[end]->w.n_bytes;
        }
        const struct qrn_tensor all = take(p, joined.w.shape[0]);
        matmul_normed(p, &joined, all);
        for (int64_t k = i, at = 0; k < end; at += m[k++]->w.shape[0])
            out[k] = qrn_tensor_slice(all, 1, at, m[k]->w.shape[0]);
    }
}

#endif
