/* SPDX-License-Identifier: MIT
 * The step ahead. */
#include "model/ahead.h"

#include "core/device_impl.h"
#include "model/draw.h"

/* The part wants one token and draws the next one, of logits as they are or without looking at tokens before. */
static bool goes_on(const struct qrn_part *p)
{
    const struct qrn_append *a = p->append;
    return a->goes_on && p->n == 1 && p->sampling && p->n_penalised == 0 &&
           a->want == QRN_LOGITS_NONE && !a->hidden;
}

void qrn_ahead_shape(struct qrn_batch *b)
{
    struct qrn_step_shape *s = &b->shape;
    bool all = b->n_parts > 0 && b->n_parts <= QRN_HEAD_ROWS, plain = true;
    if (b->model->n_stages != 1 || s->apart || !b->model->stages[0].work.shares) return;
    for (int64_t i = 0; i < b->n_parts && all; i++) {
        all = goes_on(&b->parts[i]);
        plain = all && plain && qrn_draw_is_plain(&b->parts[i]);
    }
    s->from_drawn = s->to_logits = all;
    s->to_ids = all && plain;
}

/* The part behind p, if it is wanted and there is room for it. */
static bool prepare(struct qrn_ahead *a, const struct qrn_part *p, const struct qrn_step_shape *s)
{
    const int64_t i = a->n_parts;
    a->sampling[i] = *p->sampling;
    a->parts[i] = (struct qrn_part){
        .seq = p->seq, .before = p, .at = p->at + 1, .n = 1, .row = i, .sampling = &a->sampling[i]};
    if (!p->append->goes_on || p->at + 2 > p->seq->model->max_context) return false;
    if (qrn_part_prepare(&a->parts[i], NULL) != QRN_OK) return false;
    a->n_parts++;
    atomic_store_explicit(&p->seq->is_ahead, true, memory_order_relaxed);
    return p->seq->n_pages <= s->max_pages;
}

void qrn_ahead_queue(const struct qrn_batch *b)
{
    struct qrn_ahead *a = b->model->ahead;
    bool ok = true;
    for (int64_t i = 0; i < b->n_parts && ok; i++) ok = prepare(a, &b->parts[i], &b->shape);
    struct qrn_batch next = {
        .model = b->model, .parts = a->parts, .n_parts = a->n_parts, .shape = b->shape};
    a->shape = b->shape;
    ok = ok && qrn_step_queue(&next, false, NULL) == QRN_OK;
    for (int64_t i = 0; i < a->n_parts; i++) a->parts[i].before = NULL;
    if (!ok) qrn_ahead_drop(b->model);
}

void qrn_ahead_note(const struct qrn_batch *b)
{
    struct qrn_ahead *a = b->model->ahead;
    bool all = true;
    for (int64_t i = 0; i < a->n_parts; i++) {
        a->ids[i] = b->parts[i].append->next;
        all = all && !b->parts[i].no_token;
    }
    if (!all) qrn_ahead_drop(b->model);
}

static bool same_sampling(const struct qrn_sampling *a, const struct qrn_sampling *b)
{
    return a->temperature == b->temperature && a->top_k == b->top_k && a->top_p == b->top_p &&
           a->min_p == b->min_p && a->repeat_penalty == b->repeat_penalty &&
           a->presence_penalty == b->presence_penalty &&
           a->frequency_penalty == b->frequency_penalty && a->n_penalised == b->n_penalised &&
           a->seed == b->seed;
}

static bool is_ahead(const struct qrn_ahead *a, int64_t i, const struct qrn_append *append)
{
    return append->status == QRN_OK && append->seq == a->parts[i].seq && append->n_tokens == 1 &&
           append->tokens[0] == a->ids[i] && append->want == QRN_LOGITS_NONE && !append->hidden &&
           append->sampling && same_sampling(append->sampling, &a->sampling[i]);
}

/* What is ahead is somebody else's affair now. */
static void let_go(struct qrn_ahead *a)
{
    for (int64_t i = 0; i < a->n_parts; i++)
        atomic_store_explicit(&a->parts[i].seq->is_ahead, false, memory_order_release);
    a->n_parts = 0;
}

bool qrn_ahead_adopt(struct qrn_batch *b, struct qrn_append *appends, size_t n_appends)
{
    struct qrn_ahead *a = b->model->ahead;
    bool same = a->n_parts > 0 && (size_t)a->n_parts == n_appends;
    for (size_t i = 0; i < n_appends && same; i++) same = is_ahead(a, (int64_t)i, &appends[i]);
    if (!same) {
        qrn_ahead_drop(b->model);
        return false;
    }
    for (size_t i = 0; i < n_appends; i++) {
        b->parts[i] = a->parts[i];
        b->parts[i].append = &appends[i];
        b->parts[i].sampling = appends[i].sampling;
    }
    b->n_parts = a->n_parts;
    b->shape = a->shape;
    let_go(a);
    return true;
}

void qrn_ahead_drop(struct qrn_model *model)
{
    struct qrn_ahead *a = model->ahead;
    if (a->n_parts == 0) return;
    (void)qrn_device_wait(model->stages[0].device, NULL);
    for (int64_t i = 0; i < a->n_parts; i++) qrn_part_drop(&a->parts[i]);
    let_go(a);
}

void qrn_ahead_settle(const struct qrn_seq *seq)
{
    if (!atomic_load_explicit(&seq->is_ahead, memory_order_acquire)) return;
    pthread_mutex_lock(&seq->model->lock);
    if (atomic_load_explicit(&seq->is_ahead, memory_order_relaxed)) qrn_ahead_drop(seq->model);
    pthread_mutex_unlock(&seq->model->lock);
}
