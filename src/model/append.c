/* SPDX-License-Identifier: MIT
 * A step: appends become batches, batches go through the layers, rows become logits. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "core/device_impl.h"
#include "model/batch.h"
#include "model/forward.h"

struct batch {
    struct qrn_model *model;
    struct qrn_part *parts; /* [max_tokens] */
    int64_t n_parts;
    struct qrn_step_shape shape;
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

/* The rows that layer i_layer reads, for those who asked. */
static void keep_hidden(const struct batch *b, int64_t i_layer)
{
    const int64_t d = b->model->files.config.d_model;
    for (int64_t i = 0; i < b->n_parts; i++) {
        const struct qrn_part *p = &b->parts[i];
        const struct qrn_append *a = p->append;
        if (!a->hidden) continue;
        memcpy(a->hidden + (i_layer * a->n_tokens + p->first) * d, b->model->work.x + p->row * d,
               (size_t)(p->n * d) * sizeof(float));
    }
}

static enum qrn_status run_direct(const struct batch *b, struct qrn_error *err)
{
    struct qrn_model *model = b->model;
    struct qrn_emitter e = {.device = model->device};
    qrn_forward_embedding(&e, model, b->shape);
    for (int64_t i = 0; i < model->weights.n_layers && e.status == QRN_OK; i++) {
        keep_hidden(b, i);
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
           a.n_history == b.n_history && a.apart == b.apart;
}

static void record_body(const struct batch *b)
{
    struct qrn_workspace *w = &b->model->work;
    struct qrn_emitter e = {.device = b->model->device, .encoder = w->body};
    qrn_encoder_reset(w->body);
    qrn_forward_embedding(&e, b->model, b->shape);
    w->layer_end[0] = qrn_encoder_n_ops(w->body);
    for (int64_t i = 0; i < b->model->weights.n_layers; i++) {
        qrn_forward_layer(&e, b->model, b->shape, i);
        w->layer_end[i + 1] = qrn_encoder_n_ops(w->body);
    }
    w->body_shape = b->shape;
}

/* So many layers at once that cancelling is asked about each 64 tokens of a layer. */
static int64_t layers_at_once(const struct batch *b)
{
    return b->wants_hidden || b->shape.n_tokens > 32 ? 1 : 64 / b->shape.n_tokens;
}

static enum qrn_status run_layers_apart(const struct batch *b, struct qrn_error *err)
{
    const struct qrn_workspace *w = &b->model->work;
    const int64_t n_layers = b->model->weights.n_layers, step = layers_at_once(b);
    size_t done = 0;
    for (int64_t i = 0; i < n_layers; i += step) {
        const int64_t end = n_layers - i < step ? n_layers : i + step;
        if (b->wants_hidden) { /* x is what the layers before left */
            QRN_TRY(qrn_encoder_submit_range(w->body, done, w->layer_end[i], err));
            done = w->layer_end[i];
            keep_hidden(b, i);
        }
        QRN_TRY(ask_cancel(b, err));
        QRN_TRY(qrn_encoder_submit_range(w->body, done, w->layer_end[end], err));
        done = w->layer_end[end];
    }
    return QRN_OK;
}

static enum qrn_status run_recorded(const struct batch *b, struct qrn_error *err)
{
    struct qrn_workspace *w = &b->model->work;
    if (!same_shape(w->body_shape, b->shape)) record_body(b);
    const enum qrn_status s =
        b->cancel || b->wants_hidden ? run_layers_apart(b, err) : qrn_encoder_submit(w->body, err);
    if (s != QRN_OK) w->body_shape = (struct qrn_step_shape){0};
    return s;
}

/* --- logits --- */

static enum qrn_status run_head(struct qrn_model *model, int64_t n, struct qrn_error *err)
{
    struct qrn_workspace *w = &model->work;
    struct qrn_emitter e = {.device = model->device, .encoder = model->direct ? NULL : w->head};
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
    const enum qrn_status s = qrn_encoder_submit(w->head, err);
    if (s != QRN_OK) w->head_n = 0;
    return s;
}

/* Where the results of the rows in work.head_rows go. */
struct targets {
    float *logits[QRN_HEAD_ROWS], *hidden[QRN_HEAD_ROWS]; /* NULL: nowhere */
    int64_t n;
};

static enum qrn_status flush(struct qrn_model *model, struct targets *t, struct qrn_error *err)
{
    const struct qrn_workspace *w = &model->work;
    const size_t d = (size_t)model->files.config.d_model,
                 v = (size_t)model->files.config.vocab_size;
    if (t->n == 0) return QRN_OK;
    QRN_TRY(run_head(model, t->n, err));
    for (size_t i = 0; i < (size_t)t->n; i++) {
        if (t->logits[i]) memcpy(t->logits[i], w->logits + i * v, v * sizeof(float));
        if (t->hidden[i]) memcpy(t->hidden[i], w->head_normed + i * d, d * sizeof(float));
    }
    t->n = 0;
    return QRN_OK;
}

static float *logits_target(const struct qrn_append *a, int64_t i_token, int64_t vocab_size)
{
    if (a->want == QRN_LOGITS_ALL) return a->logits + i_token * vocab_size;
    return a->want == QRN_LOGITS_LAST && i_token == a->n_tokens - 1 ? a->logits : NULL;
}

static enum qrn_status make_logits(const struct batch *b, struct qrn_error *err)
{
    const struct qrn_model_config *c = &b->model->files.config;
    struct targets t = {.n = 0};
    for (int64_t i = 0; i < b->n_parts; i++) {
        const struct qrn_part *p = &b->parts[i];
        const struct qrn_append *a = p->append;
        for (int64_t k = 0; k < p->n; k++) {
            const int64_t at = p->first + k;
            float *logits = logits_target(a, at, c->vocab_size);
            if (!logits && !a->hidden) continue;
            b->model->work.head_rows[t.n] = (int32_t)(p->row + k);
            t.logits[t.n] = logits;
            t.hidden[t.n] =
                a->hidden ? a->hidden + (c->n_layers * a->n_tokens + at) * c->d_model : NULL;
            if (++t.n == QRN_HEAD_ROWS) QRN_TRY(flush(b->model, &t, err));
        }
    }
    return flush(b->model, &t, err);
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
    b->wants_hidden = false;
    b->shape = (struct qrn_step_shape){.max_pages = 16};
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
        b->shape.n_history = a->seq->n_history;
        b->shape.n_tokens += part.n;
        b->wants_hidden = b->wants_hidden || a->hidden;
        while (b->shape.max_pages < a->seq->n_pages) b->shape.max_pages *= 2;
        b->parts[b->n_parts++] = part;
    }
    b->shape.n_seqs = b->n_parts;
    b->shape.apart = b->wants_hidden || b->model->direct;
}

static enum qrn_status run_batch(struct batch *b, struct qrn_error *err)
{
    struct qrn_workspace *w = &b->model->work;
    QRN_TRY(qrn_workspace_reserve_pages(w, (size_t)(b->shape.n_seqs * b->shape.max_pages), err));
    for (int64_t i = 0; i < b->n_parts; i++)
        qrn_part_fill_tables(&b->parts[i], w, i, b->shape.max_pages);
    QRN_TRY(b->model->direct ? run_direct(b, err) : run_recorded(b, err));
    return make_logits(b, err);
}

static enum qrn_status run_all(struct batch *b, struct qrn_append *appends, size_t n_appends,
                               enum qrn_status first, struct qrn_error *err)
{
    for (;;) {
        struct qrn_error own = {0};
        fill(b, appends, n_appends, &first, err);
        if (b->n_parts == 0) return first;
        const enum qrn_status s = run_batch(b, &own);
        for (int64_t i = 0; i < b->n_parts; i++) {
            if (s == QRN_OK) {
                qrn_part_commit(&b->parts[i]);
            } else {
                qrn_part_drop(&b->parts[i]);
                refuse(b->parts[i].append, s, &own, &first, err);
            }
        }
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
        appends[i].status = QRN_OK;
        const enum qrn_status s = check_append(model, appends, i, &own);
        if (s != QRN_OK) refuse(&appends[i], s, &own, &first, err);
    }
    struct batch b = {
        .model = model, .parts = model->work.parts, .cancel = cancel, .cancel_user = cancel_user};
    pthread_mutex_lock(&model->lock);
    first = run_all(&b, appends, n_appends, first, err);
    pthread_mutex_unlock(&model->lock);
    return first;
}
