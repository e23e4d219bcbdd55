/* SPDX-License-Identifier: MIT
 * A step: a batch goes through the layers, rows become logits, logits tokens. */
#include "model/step.h"

#include <string.h>

#include "base/error.h"
#include "core/device_impl.h"
#include "model/draw.h"
#include "model/forward.h"

/* --- one pass through the layers --- */

enum qrn_status qrn_step_ask_cancel(const struct qrn_batch *b, struct qrn_error *err)
{
    if (!b->cancel || !b->cancel(b->cancel_user)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_CANCELLED, "the step was cancelled");
}

/* The rows that layer i_layer of the stage reads, for those who asked. */
static enum qrn_status keep_hidden(const struct qrn_batch *b, const struct qrn_stage *stage,
                                   int64_t i_layer, struct qrn_error *err)
{
    const int64_t d = b->model->files.config.d_model;
    for (int64_t i = 0; i < b->n_parts; i++) {
        const struct qrn_part *p = &b->parts[i];
        const struct qrn_append *a = p->append;
        if (!a->hidden) continue;
        QRN_TRY(qrn_workspace_read(&stage->work, stage->work.x + p->row * d,
                                   a->hidden + (i_layer * a->n_tokens + p->first) * d,
                                   (size_t)(p->n * d) * sizeof(float), err));
    }
    return QRN_OK;
}

static enum qrn_status run_direct(const struct qrn_batch *b, struct qrn_stage *stage,
                                  struct qrn_error *err)
{
    struct qrn_model *model = b->model;
    struct qrn_emitter e = {.stage = stage};
    if (stage->begin == 0) qrn_forward_embedding(&e, model, b->shape);
    for (int64_t i = stage->begin; i < stage->end && e.status == QRN_OK; i++) {
        QRN_TRY(keep_hidden(b, stage, i, err));
        QRN_TRY(qrn_step_ask_cancel(b, err));
        qrn_forward_layer(&e, model, b->shape, i);
    }
    if (e.status != QRN_OK) {
        if (err) *err = e.error;
        return e.status;
    }
    return QRN_OK;
}

static bool same_shape(struct qrn_step_shape a, struct qrn_step_shape b)
{
    return a.n_tokens == b.n_tokens && a.n_seqs == b.n_seqs && a.max_pages == b.max_pages &&
           a.n_history == b.n_history && a.apart == b.apart && a.to_logits == b.to_logits &&
           a.to_ids == b.to_ids && a.from_drawn == b.from_drawn;
}

/* They are a part of the last layer, for all who count layers. */
static void record_logits(const struct qrn_batch *b, struct qrn_emitter *e)
{
    struct qrn_workspace *w = &e->stage->work;
    qrn_forward_logits(e, b->model, b->shape);
    if (b->shape.to_ids) {
        const struct qrn_argmax_args a = qrn_draw_likeliest(b->model, 0, b->shape.n_tokens);
        qrn_op_record(e->encoder, QRN_OP_argmax, &a);
    }
    qrn_workspace_body(w)->layer_end[e->stage->end - e->stage->begin] =
        qrn_encoder_n_ops(e->encoder);
}

static void record_body(const struct qrn_batch *b, struct qrn_stage *stage)
{
    struct qrn_body *body = qrn_workspace_body(&stage->work);
    struct qrn_emitter e = {.stage = stage, .encoder = body->encoder};
    qrn_encoder_reset(body->encoder);
    qrn_workspace_record_copies(&stage->work, b->shape.to_ids);
    if (stage->begin == 0) qrn_forward_embedding(&e, b->model, b->shape);
    body->layer_end[0] = qrn_encoder_n_ops(body->encoder);
    for (int64_t i = stage->begin; i < stage->end; i++) {
        qrn_forward_layer(&e, b->model, b->shape, i);
        body->layer_end[i - stage->begin + 1] = qrn_encoder_n_ops(body->encoder);
    }
    if (stage->is_last && b->shape.to_logits) record_logits(b, &e);
    body->shape = b->shape;
}

enum qrn_status qrn_model_check_kernels(struct qrn_model *model, struct qrn_stage *stage,
                                        struct qrn_error *err)
{
    struct qrn_workspace *w = &stage->work;
    const struct qrn_batch b = {
        .model = model,
        .shape = {.n_tokens = 1,
                  .n_seqs = 1,
                  .max_pages = QRN_LEAST_PAGES,
                  .n_history = model->files.config.conv_kernel - 1 + QRN_HISTORY_SLACK}};
    struct qrn_emitter head = {.stage = stage, .encoder = w->head};
    QRN_TRY(qrn_workspace_place_tables(w, b.shape, 0, err));
    record_body(&b, stage);
    QRN_TRY(qrn_encoder_queue_range(qrn_workspace_body(w)->encoder, 0, 0, err));
    if (!stage->is_last) return QRN_OK;
    qrn_encoder_reset(w->head);
    qrn_forward_head(&head, model, 1);
    w->head_n = 1;
    return qrn_encoder_queue_range(w->head, 0, 0, err);
}

/* Cancelling is asked about each ASKED_TOKENS of a layer; of a device that works on what is queued each QUEUED_AT_ONCE,
 * for layers that are queued together take less time, and what is queued cannot be cancelled.  It is waited for
 * after QUEUED_TOKENS. */
enum { ASKED_TOKENS = 64, QUEUED_AT_ONCE = 4096, QUEUED_TOKENS = 8192 };

static int64_t layers_at_once(const struct qrn_batch *b, const struct qrn_stage *stage)
{
    const int64_t n_tokens = b->shape.n_tokens,
                  most = qrn_device_host_reads(stage->device) ? ASKED_TOKENS : QUEUED_AT_ONCE;
    return b->wants_hidden || n_tokens > most ? 1 : most / n_tokens;
}

static enum qrn_status run_layers_apart(const struct qrn_batch *b, struct qrn_stage *stage,
                                        struct qrn_error *err)
{
    const struct qrn_body *body = qrn_workspace_body(&stage->work);
    const int64_t n_layers = stage->end - stage->begin, step = layers_at_once(b, stage);
    const int64_t ahead = QUEUED_TOKENS / b->shape.n_tokens + 1;
    size_t done = 0;
    for (int64_t i = 0; i < n_layers; i += step) {
        const int64_t end = n_layers - i < step ? n_layers : i + step;
        if (b->wants_hidden) { /* x is what the layers before left */
            QRN_TRY(qrn_encoder_queue_range(body->encoder, done, body->layer_end[i], err));
            done = body->layer_end[i];
            QRN_TRY(keep_hidden(b, stage, stage->begin + i, err));
        }
        if (i && i / ahead != (i - step) / ahead) QRN_TRY(qrn_device_wait(stage->device, err));
        QRN_TRY(qrn_step_ask_cancel(b, err));
        QRN_TRY(qrn_encoder_queue_range(body->encoder, done, body->layer_end[end], err));
        done = body->layer_end[end];
    }
    return QRN_OK;
}

static enum qrn_status run_recorded(const struct qrn_batch *b, struct qrn_stage *stage,
                                    struct qrn_error *err)
{
    struct qrn_body *body = qrn_workspace_body(&stage->work);
    if (!same_shape(body->shape, b->shape)) record_body(b, stage);
    const enum qrn_status s =
        b->cancel || b->wants_hidden
            ? run_layers_apart(b, stage, err)
            : qrn_encoder_queue_range(body->encoder, 0, qrn_encoder_n_ops(body->encoder), err);
    if (s != QRN_OK) body->shape = (struct qrn_step_shape){0};
    return s;
}

/* All layers: what one stage leaves in x goes to the next. */
static enum qrn_status run_stages(const struct qrn_batch *b, struct qrn_error *err)
{
    struct qrn_model *model = b->model;
    const size_t n_bytes =
        (size_t)(b->shape.n_tokens * model->files.config.d_model) * sizeof(float);
    for (int i = 0; i < model->n_stages; i++) {
        struct qrn_stage *stage = &model->stages[i];
        if (i) QRN_TRY(qrn_workspace_take_x(&stage->work, &stage[-1].work, n_bytes, err));
        QRN_TRY(model->direct ? run_direct(b, stage, err) : run_recorded(b, stage, err));
    }
    return QRN_OK;
}

/* --- logits --- */

static enum qrn_status run_head(struct qrn_model *model, int64_t n, struct qrn_error *err)
{
    struct qrn_stage *last = qrn_model_last(model);
    struct qrn_workspace *w = &last->work;
    struct qrn_emitter e = {.stage = last, .encoder = model->direct ? NULL : w->head};
    if (!e.encoder) {
        qrn_forward_head(&e, model, n);
        if (e.status != QRN_OK && err) *err = e.error;
        return e.status;
    }
    if (w->head_n != n) {
        qrn_encoder_reset(w->head);
        qrn_forward_head(&e, model, n);
        w->head_n = n;
    }
    const enum qrn_status s = qrn_encoder_queue_range(w->head, 0, qrn_encoder_n_ops(w->head), err);
    if (s != QRN_OK) w->head_n = 0;
    return s;
}

/* Where the results of the rows in the tables' head_rows go. */
struct targets {
    float *logits[QRN_HEAD_ROWS], *hidden[QRN_HEAD_ROWS]; /* NULL: nowhere */
    struct qrn_part *drawing[QRN_HEAD_ROWS];              /* NULL: no token is drawn */
    int64_t n;
    int64_t i_part, i_token; /* where the next ones begin */
};

static float *logits_target(const struct qrn_append *a, int64_t i_token, int64_t vocab_size)
{
    if (a->want == QRN_LOGITS_ALL) return a->logits + i_token * vocab_size;
    return a->want == QRN_LOGITS_LAST && i_token == a->n_tokens - 1 ? a->logits : NULL;
}

/* Fills head_rows with the next rows of the batch that anything is wanted of. */
static void next_targets(const struct qrn_batch *b, struct targets *t)
{
    const struct qrn_model_config *c = &b->model->files.config;
    int32_t *head_rows = qrn_model_last(b->model)->work.filled.head_rows;
    t->n = 0;
    for (; t->i_part < b->n_parts; t->i_part++, t->i_token = 0) {
        struct qrn_part *p = &b->parts[t->i_part];
        const struct qrn_append *a = p->append;
        for (; t->i_token < p->n; t->i_token++) {
            const int64_t at = p->first + t->i_token;
            float *logits = logits_target(a, at, c->vocab_size);
            const bool draws = p->sampling && at == a->n_tokens - 1;
            if (!logits && !a->hidden && !draws) continue;
            if (t->n == QRN_HEAD_ROWS) return;
            head_rows[t->n] = (int32_t)(p->row + t->i_token);
            t->logits[t->n] = logits;
            t->hidden[t->n] =
                a->hidden ? a->hidden + (c->n_layers * a->n_tokens + at) * c->d_model : NULL;
            t->drawing[t->n] = draws ? p : NULL;
            t->n++;
        }
    }
}

static enum qrn_status deliver(struct qrn_model *model, const struct targets *t,
                               struct qrn_error *err)
{
    struct qrn_workspace *w = &qrn_model_last(model)->work;
    const size_t d = (size_t)model->files.config.d_model,
                 v = (size_t)model->files.config.vocab_size;
    const void *logits = NULL;
    for (size_t i = 0; i < (size_t)t->n; i++) {
        if (t->logits[i] && !logits)
            QRN_TRY(
                qrn_workspace_fetch(w, w->logits, (size_t)t->n * v * sizeof(float), &logits, err));
        if (t->logits[i]) memcpy(t->logits[i], (const float *)logits + i * v, v * sizeof(float));
        if (t->hidden[i])
            QRN_TRY(qrn_workspace_read(w, w->head_normed + i * d, t->hidden[i], d * sizeof(float),
                                       err));
    }
    return QRN_OK;
}

/* Draws from the rows of logits that a token is wanted of: all are queued, unless they are a part of the step;
 * one copy brings them. */
static enum qrn_status draw(struct qrn_model *model, const struct targets *t, bool is_queued,
                            struct qrn_error *err)
{
    struct qrn_workspace *w = &qrn_model_last(model)->work;
    const struct qrn_drawn *drawn;
    bool any = false;
    for (int64_t i = 0; i < t->n; i++) any = any || t->drawing[i];
    if (!any) return QRN_OK;
    if (!is_queued) QRN_TRY(qrn_draw_queue(model, t->drawing, t->n, err));
    QRN_TRY(qrn_workspace_fetch_drawn(w, is_queued, &drawn, err));
    for (int64_t i = 0; i < t->n; i++)
        if (t->drawing[i]) qrn_draw_deliver(t->drawing[i], drawn, i);
    return QRN_OK;
}

/* The first targets are in the tables already. */
static enum qrn_status make_logits(const struct qrn_batch *b, struct targets *t,
                                   struct qrn_error *err)
{
    while (t->n > 0) {
        if (!b->shape.to_logits) QRN_TRY(run_head(b->model, t->n, err));
        QRN_TRY(draw(b->model, t, b->shape.to_ids, err));
        QRN_TRY(deliver(b->model, t, err));
        next_targets(b, t);
        if (t->n > 0) QRN_TRY(qrn_workspace_send_head_rows(&qrn_model_last(b->model)->work, err));
    }
    return QRN_OK;
}

/* Where all rows become logits, as in a step that generates, they are of the layers' recording. */
static void join_logits(struct qrn_batch *b, const struct targets *t)
{
    struct qrn_step_shape *s = &b->shape;
    s->to_logits = s->to_ids = !s->apart && t->n == s->n_tokens;
    for (int64_t i = 0; i < t->n; i++) s->to_ids = s->to_ids && qrn_draw_is_plain(t->drawing[i]);
}

/* --- steps --- */

static enum qrn_status send_tables(const struct qrn_batch *b, struct qrn_error *err)
{
    for (int s = 0; s < b->model->n_stages; s++)
        QRN_TRY(qrn_workspace_send_tables(&b->model->stages[s].work, !b->model->direct, err));
    return QRN_OK;
}

static enum qrn_status fill_tables(const struct qrn_batch *b, struct qrn_error *err)
{
    for (int s = 0; s < b->model->n_stages; s++) {
        struct qrn_workspace *w = &b->model->stages[s].work;
        QRN_TRY(qrn_workspace_place_tables(w, b->shape, b->n_penalised, err));
        for (int64_t i = 0; i < b->n_parts; i++)
            qrn_part_fill_tables(&b->parts[i], s, &w->filled, i, b->shape.max_pages);
    }
    return QRN_OK;
}

enum qrn_status qrn_step_run(struct qrn_batch *b, struct qrn_error *err)
{
    struct targets targets = {.n = 0};
    QRN_TRY(fill_tables(b, err));
    next_targets(b, &targets);
    QRN_TRY(send_tables(b, err));
    join_logits(b, &targets);
    QRN_TRY(run_stages(b, err));
    return make_logits(b, &targets, err);
}

enum qrn_status qrn_step_queue(struct qrn_batch *b, bool ids_known, struct qrn_error *err)
{
    struct qrn_workspace *w = &qrn_model_last(b->model)->work;
    struct qrn_part *drawing[QRN_HEAD_ROWS];
    for (int64_t i = 0; i < b->n_parts; i++) drawing[i] = &b->parts[i];
    QRN_TRY(fill_tables(b, err));
    QRN_TRY(send_tables(b, err));
    if (ids_known) QRN_TRY(qrn_workspace_send_ids(w, b->n_parts, err));
    QRN_TRY(run_stages(b, err));
    if (!b->shape.to_ids) QRN_TRY(qrn_draw_queue(b->model, drawing, b->n_parts, err));
    return qrn_workspace_bring_drawn(w, b->shape.to_ids, err);
}
