/* SPDX-License-Identifier: MIT
 * Appends become batches, batches steps. */
#include <inttypes.h>

#include "base/error.h"
#include "core/device_impl.h"
#include "model/ahead.h"
#include "model/draw.h"

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
static void fill(struct qrn_batch *b, struct qrn_append *appends, size_t n_appends,
                 enum qrn_status *first, struct qrn_error *err)
{
    b->n_parts = 0;
    b->n_penalised = 0;
    b->wants_hidden = false;
    b->shape = (struct qrn_step_shape){.max_pages = QRN_LEAST_PAGES};
    for (size_t i = 0; i < n_appends && b->shape.n_tokens < b->model->max_batch; i++) {
        struct qrn_append *a = &appends[i];
        const int64_t left = a->n_tokens - a->n_done,
                      room = b->model->max_batch - b->shape.n_tokens;
        if (a->status != QRN_OK || left == 0) continue;
        if (b->n_parts && a->seq->n_history != b->shape.n_history) continue;
        struct qrn_part part = {.append = a,
                                .seq = a->seq,
                                .at = a->seq->n_tokens,
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
    if ((size_t)b->n_parts == n_appends) qrn_ahead_shape(b);
}

/* A step that can have another one behind it; is_queued: it was ahead itself. */
static enum qrn_status run_drawn(struct qrn_batch *b, bool is_queued, struct qrn_error *err)
{
    struct qrn_workspace *w = &qrn_model_last(b->model)->work;
    const struct qrn_drawn *drawn;
    if (is_queued)
        QRN_TRY(qrn_step_ask_cancel(b, err));
    else
        QRN_TRY(qrn_step_queue(b, true, err));
    const int turn = w->turn;
    qrn_ahead_queue(b);
    QRN_TRY(qrn_workspace_take_drawn(w, turn, &drawn, err));
    for (int64_t i = 0; i < b->n_parts; i++) qrn_draw_deliver(&b->parts[i], drawn, i);
    qrn_ahead_note(b);
    return QRN_OK;
}

/* Done on return, or nothing of it under way any more, but for what is ahead. */
static enum qrn_status run_batch(struct qrn_batch *b, bool is_queued, struct qrn_error *err)
{
    const bool from_drawn = b->shape.from_drawn;
    enum qrn_status s = from_drawn ? run_drawn(b, is_queued, err) : qrn_step_run(b, err);
    if (s == QRN_OK && from_drawn) return QRN_OK;
    qrn_ahead_drop(b->model);
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

static enum qrn_status run_all(struct qrn_batch *b, struct qrn_append *appends, size_t n_appends,
                               enum qrn_status first, struct qrn_error *err)
{
    for (bool is_queued = qrn_ahead_adopt(b, appends, n_appends);; is_queued = false) {
        struct qrn_error own = {0};
        if (!is_queued) fill(b, appends, n_appends, &first, err);
        if (b->n_parts == 0) return first;
        const enum qrn_status s = run_batch(b, is_queued, &own);
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
    struct qrn_batch b = {
        .model = model, .parts = model->parts, .cancel = cancel, .cancel_user = cancel_user};
    pthread_mutex_lock(&model->lock);
    first = run_all(&b, appends, n_appends, first, err);
    pthread_mutex_unlock(&model->lock);
    return first;
}
