/* SPDX-License-Identifier: MIT
 * A step: appends become batches, batches go through the layers, rows become logits. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "core/device_impl.h"
#include "model/draw.h"
#include "model/forward.h"

enum { LEAST_PAGES = 16 }; /* in a table, for each sequence */

struct batch {
    struct qrn_model *model;
    struct qrn_part *parts; /* [max_batch] */
    int64_t n_parts;
    struct qrn_step_shape shape;
    int64_t n_penalised; /* tokens, of all parts */
    bool wants_hidden;
    qrn_cancel_fn cancel;
    void *cancel_user;
};

/* --- checking --- */

static enum qrn_status check_append(struct qrn_model *model, const struct qrn_append *all, size_t i,
                                    struct qrn_error *err)
{
    const struct qrn_append *a = &all[i];
    if (!a->seq) return qrn_fail(err, QRN_ERR_ARGUMENT, "append %zu: seq is NULL", i);
    if (a->seq->model != model)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "append %zu: the sequence is of another model", i);
    for (size_t j = 0; j < i; j++)
        if (all[j].seq == a->seq)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "append %zu: the sequence is that of append %zu",
                            i, j);
    if (a->n_tokens < 0 || (a->n_tokens && !a->tokens))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "append %zu: %" PRId64 " tokens at %s", i,
                        a->n_tokens, a->tokens ? "an address" : "NULL");
    if ((unsigned)a->want > QRN_LOGITS_ALL || (a->want != QRN_LOGITS_NONE && !a->logits))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "append %zu: want is %d, logits is %s", i,
                        (int)a->want, a->logits ? "given" : "NULL");
    const int64_t vocab_size = model->files.config.vocab_size;
    for (int64_t t = 0; t < a->n_tokens; t++)
        if (a->tokens[t] < 0 || a->tokens[t] >= vocab_size)
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "append %zu: tokens[%" PRId64 "] is %" PRId32 ", wants 0 to %" PRId64,
                            i, t, a->tokens[t], vocab_size - 1);
    if (a->sampling && qrn_draw_check(model, a->sampling, err) != QRN_OK)
        return qrn_error_prefix(err, QRN_ERR_ARGUMENT, "append %zu", i);
    if (a->n_tokens > model->max_context - a->seq->n_tokens)
        return qrn_fail(err, QRN_ERR_LIMIT,
                        "append %zu: %" PRId64 " tokens after %" PRId64
                        ", the context holds %" PRId64,
                        i, a->n_tokens, a->seq->n_tokens, model->max_context);
    return QRN_OK;
}

/* --- one pass through the layers --- */

static enum qrn_status ask_cancel(const struct batch *b, struct qrn_error *err)
{
    if (!b->cancel || !b->cancel(b->cancel_user)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_CANCELLED, "the step was cancelled");
}

/* The rows that layer i_layer of the stage reads, for those who asked. */
static enum qrn_status keep_hidden(const struct batch *b, const struct qrn_stage *stage,
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

static enum qrn_status run_direct(const struct batch *b, struct qrn_stage *stage,
                                  struct qrn_error *err)
{
    struct qrn_model *model = b->model;
    struct qrn_emitter e = {.stage = stage};
    if (stage->begin == 0) qrn_forward_embedding(&e, model, b->shape);
    for (int64_t i = stage->begin; i < stage->end && e.status == QRN_OK; i++) {
        QRN_TRY(keep_hidden(b, stage, i, err));
        QRN_TRY(ask_cancel(b, err));
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
           a.to_ids == b.to_ids;
}

/* They are a part of the last layer, for all who count layers. */
static void record_logits(const struct batch *b, struct qrn_emitter *e)
{
    struct qrn_workspace *w = &e->stage->work;
    qrn_forward_logits(e, b->model, b->shape);
    if (b->shape.to_ids) {
        const struct qrn_argmax_args a = qrn_draw_likeliest(b->model, 0, b->shape.n_tokens);
        qrn_op_record(w->body, QRN_OP_argmax, &a);
    }
    w->layer_end[e->stage->end - e->stage->begin] = qrn_encoder_n_ops(w->body);
}

static void record_body(const struct batch *b, struct qrn_stage *stage)
{
    struct qrn_workspace *w = &stage->work;
    struct qrn_emitter e = {.stage = stage, .encoder = w->body};
    qrn_encoder_reset(w->body);
    if (stage->begin == 0) qrn_forward_embedding(&e, b->model, b->shape);
    w->layer_end[0] = qrn_encoder_n_ops(w->body);
    for (int64_t i = stage->begin; i < stage->end; i++) {
        qrn_forward_layer(&e, b->model, b->shape, i);
        w->layer_end[i - stage->begin + 1] = qrn_encoder_n_ops(w->body);
    }
    if (stage->is_last && b->shape.to_logits) record_logits(b, &e);
    w->body_shape = b->shape;
}

enum qrn_status qrn_model_check_kernels(struct qrn_model *model, struct qrn_stage *stage,
                                        struct qrn_error *err)
{
    struct qrn_workspace *w = &stage->work;
    const struct batch b = {
        .model = model,
        .shape = {.n_tokens = 1,
                  .n_seqs = 1,
                  .max_pages = LEAST_PAGES,
                  .n_history = model->files.config.conv_kernel - 1 + QRN_HISTORY_SLACK}};
    struct qrn_emitter head = {.stage = stage, .encoder = w->head};
    QRN_TRY(qrn_workspace_place_tables(w, b.shape, 0, err));
    record_body(&b, stage);
    QRN_TRY(qrn_encoder_queue_range(w->body, 0, 0, err));
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

static int64_t layers_at_once(const struct batch *b, const struct qrn_stage *stage)
{
    const int64_t n_tokens = b->shape.n_tokens,
                  most = qrn_device_host_reads(stage->device) ? ASKED_TOKENS : QUEUED_AT_ONCE;
    return b->wants_hidden || n_tokens > most ? 1 : most / n_tokens;
}

static enum qrn_status run_layers_apart(const struct batch *b, const struct qrn_stage *stage,
                                        struct qrn_error *err)
{
    const struct qrn_workspace *w = &stage->work;
    const int64_t n_layers = stage->end - stage->begin, step = layers_at_once(b, stage);
    const int64_t ahead = QUEUED_TOKENS / b->shape.n_tokens + 1;
    size_t done = 0;
    for (int64_t i = 0; i < n_layers; i += step) {
        const int64_t end = n_layers - i < step ? n_layers : i + step;
        if (b->wants_hidden) { /* x is what the layers before left */
            QRN_TRY(qrn_encoder_queue_range(w->body, done, w->layer_end[i], err));
            done = w->layer_end[i];
            QRN_TRY(keep_hidden(b, stage, stage->begin + i, err));
        }
        if (i && i / ahead != (i - step) / ahead) QRN_TRY(qrn_device_wait(stage->device, err));
        QRN_TRY(ask_cancel(b, err));
        QRN_TRY(qrn_encoder_queue_range(w->body, done, w->layer_end[end], err));
        done = w->layer_end[end];
    }
    return QRN_OK;
}

static enum qrn_status run_recorded(const struct batch *b, struct qrn_stage *stage,
                                    struct qrn_error *err)
{
    struct qrn_workspace *w = &stage->work;
    if (!same_shape(w->body_shape, b->shape)) record_body(b, stage);
    const enum qrn_status s =
        b->cancel || b->wants_hidden
            ? run_layers_apart(b, stage, err)
            : qrn_encoder_queue_range(w->body, 0, qrn_encoder_n_ops(w->body), err);
    if (s != QRN_OK) w->body_shape = (struct qrn_step_shape){0};
    return s;
}

/* All layers: what one stage leaves in x goes to the next. */
static enum qrn_status run_stages(const struct batch *b, struct qrn_error *err)
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
static void next_targets(const struct batch *b, struct targets *t)
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
    const void *drawn = NULL;
    bool any = false;
    for (int64_t i = 0; i < t->n; i++) any = any || t->drawing[i];
    if (!any) return QRN_OK;
    if (!is_queued) QRN_TRY(qrn_draw_queue(model, t->drawing, t->n, err));
    QRN_TRY(qrn_workspace_fetch(w, w->drawn, sizeof *w->drawn, &drawn, err));
    for (int64_t i = 0; i < t->n; i++)
        if (t->drawing[i]) qrn_draw_deliver(t->drawing[i], drawn, i);
    return QRN_OK;
}

/* The first targets are in the tables already. */
static enum qrn_status make_logits(const struct batch *b, struct targets *t, struct qrn_error *err)
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

/* --- batches --- */

static void refuse(struct qrn_append *a, enum qrn_status status, const struct qrn_error *why,
                   enum qrn_status *first, struct qrn_error *err)
{
    a->status = status;
    if (*first != QRN_OK) return;
    *first = status;
    if (err) *err = *why;
}

/* Fills a batch with what is left of the appends, of sequences with histories of one length. */
static void fill(struct batch *b, struct qrn_append *appends, size_t n_appends,
                 enum qrn_status *first, struct qrn_error *err)
{
    b->n_parts = 0;
    b->n_penalised = 0;
    b->wants_hidden = false;
    b->shape = (struct qrn_step_shape){.max_pages = LEAST_PAGES};
    for (size_t i = 0; i < n_appends && b->shape.n_tokens < b->model->max_batch; i++) {
        struct qrn_append *a = &appends[i];
        const int64_t left = a->n_tokens - a->n_done,
                      room = b->model->max_batch - b->shape.n_tokens;
        if (a->status != QRN_OK || left == 0) continue;
        if (b->n_parts && a->seq->n_history != b->shape.n_history) continue;
        struct qrn_part part = {.append = a,
                                .seq = a->seq,
                                .first = a->n_done,
                                .n = left < room ? left : room,
                                .row = b->shape.n_tokens};
        struct qrn_error own;
        const enum qrn_status s = qrn_part_prepare(&part, &own);
        if (s != QRN_OK) {
            refuse(a, s, &own, first, err);
            continue;
        }
        if (a->sampling && part.n == left) {
            part.sampling = a->sampling;
            part.n_penalised = qrn_draw_n_penalised(a->sampling, a->seq->n_tokens + part.n);
            part.penalised = b->n_penalised;
            b->n_penalised += part.n_penalised;
        }
        b->shape.n_history = a->seq->n_history;
        b->shape.n_tokens += part.n;
        b->wants_hidden = b->wants_hidden || a->hidden;
        while (b->shape.max_pages < a->seq->n_pages) b->shape.max_pages *= 2;
        b->parts[b->n_parts++] = part;
    }
    b->shape.n_seqs = b->n_parts;
    b->shape.apart = b->wants_hidden || b->model->direct;
}

/* Where all rows become logits, as in a step that generates, they are of the layers' recording. */
static void join_logits(struct batch *b, const struct targets *t)
{
    struct qrn_step_shape *s = &b->shape;
    s->to_logits = s->to_ids = !s->apart && t->n == s->n_tokens;
    for (int64_t i = 0; i < t->n; i++) s->to_ids = s->to_ids && qrn_draw_is_plain(t->drawing[i]);
}

static enum qrn_status queue_batch(struct batch *b, struct qrn_error *err)
{
    struct qrn_model *model = b->model;
    struct targets targets = {.n = 0};
    for (int s = 0; s < model->n_stages; s++) {
        struct qrn_workspace *w = &model->stages[s].work;
        QRN_TRY(qrn_workspace_place_tables(w, b->shape, b->n_penalised, err));
        for (int64_t i = 0; i < b->n_parts; i++)
            qrn_part_fill_tables(&b->parts[i], s, &w->filled, i, b->shape.max_pages);
        if (model->stages[s].is_last) next_targets(b, &targets);
        QRN_TRY(qrn_workspace_send_tables(w, err));
    }
    join_logits(b, &targets);
    QRN_TRY(run_stages(b, err));
    return make_logits(b, &targets, err);
}

/* Done on return, or nothing of it under way any more. */
static enum qrn_status run_batch(struct batch *b, struct qrn_error *err)
{
    enum qrn_status s = queue_batch(b, err);
    for (int i = 0; i < b->model->n_stages; i++) {
        struct qrn_device *dev = b->model->stages[i].device;
        const enum qrn_status waited = qrn_device_wait(dev, s == QRN_OK ? err : NULL);
        if (s == QRN_OK) s = waited;
    }
    return s;
}

/* The sequence has the part's tokens, or is as it was. */
static void finish(struct qrn_part *p, enum qrn_status s, struct qrn_error *why,
                   enum qrn_status *first, struct qrn_error *err)
{
    if (s == QRN_OK && p->no_token)
        s = qrn_fail(why, QRN_ERR_ARGUMENT, "no logit is above -inf: no token can be drawn");
    if (s == QRN_OK) {
        qrn_part_commit(p);
        return;
    }
    qrn_part_drop(p);
    refuse(p->append, s, why, first, err);
}

static enum qrn_status run_all(struct batch *b, struct qrn_append *appends, size_t n_appends,
                               enum qrn_status first, struct qrn_error *err)
{
    for (;;) {
        struct qrn_error own = {0};
        fill(b, appends, n_appends, &first, err);
        if (b->n_parts == 0) return first;
        const enum qrn_status s = run_batch(b, &own);
        for (int64_t i = 0; i < b->n_parts; i++) finish(&b->parts[i], s, &own, &first, err);
        if (s == QRN_ERR_CANCELLED) break;
    }
    for (size_t i = 0; i < n_appends; i++)
        if (appends[i].status == QRN_OK && appends[i].n_done < appends[i].n_tokens)
            appends[i].status = QRN_ERR_CANCELLED;
    return first;
}

enum qrn_status qrn_model_append(struct qrn_model *model, struct qrn_append *appends,
                                 size_t n_appends, qrn_cancel_fn cancel, void *cancel_user,
                                 struct qrn_error *err)
{
    enum qrn_status first = QRN_OK;
    for (size_t i = 0; i < n_appends; i++) {
        struct qrn_error own;
        appends[i].n_done = 0;
        appends[i].next = -1;
        appends[i].next_probability = 0.0f;
        appends[i].status = QRN_OK;
        const enum qrn_status s = check_append(model, appends, i, &own);
        if (s != QRN_OK) refuse(&appends[i], s, &own, &first, err);
    }
    struct batch b = {
        .model = model, .parts = model->parts, .cancel = cancel, .cancel_user = cancel_user};
    pthread_mutex_lock(&model->lock);
    first = run_all(&b, appends, n_appends, first, err);
    pthread_mutex_unlock(&model->lock);
    return first;
}
