/* SPDX-License-Identifier: MIT
 * The token that follows. */
#include "model/draw.h"

#include <math.h>
#include "base/error.h"
#include "core/device_impl.h"

static struct qrn_sample_args args_of(const struct qrn_model *model, const struct qrn_sampling *s,
                                      int64_t i_row)
{
    const struct qrn_workspace *w = &model->stages[model->n_stages - 1].work;
    const int64_t n_vocab = model->files.config.vocab_size;
    return (struct qrn_sample_args){
        .logits = qrn_tensor_1d(QRN_F32, w->logits + i_row * n_vocab, n_vocab),
        .id = qrn_tensor_1d(QRN_I32, w->drawn->ids + i_row, 1),
        .probability = qrn_tensor_1d(QRN_F32, w->drawn->probabilities + i_row, 1),
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repeat_penalty = s->repeat_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .seed = s->seed};
}

enum qrn_status qrn_draw_check(const struct qrn_model *model, const struct qrn_sampling *s,
                               struct qrn_error *err)
{
    const struct qrn_sample_args a = args_of(model, s, 0);
    return qrn_op_check(qrn_op(QRN_OP_sample), &a, err);
}

int64_t qrn_draw_n_penalised(const struct qrn_sampling *s, int64_t n_tokens)
{
    const bool repeats = s->repeat_penalty != 0.0f && s->repeat_penalty != 1.0f;
    if (!repeats && s->presence_penalty == 0.0f && s->frequency_penalty == 0.0f) return 0;
    return s->n_penalised < 0 || s->n_penalised > n_tokens ? n_tokens : s->n_penalised;
}

bool qrn_draw_is_plain(const struct qrn_part *p)
{
    return p && p->sampling->temperature == 0.0f && p->n_penalised == 0;
}

/* The logits stand where probabilities do until delivery. */
struct qrn_argmax_args qrn_draw_likeliest(const struct qrn_model *model, int64_t first, int64_t n)
{
    const struct qrn_workspace *w = &model->stages[model->n_stages - 1].work;
    const int64_t n_vocab = model->files.config.vocab_size;
    return (struct qrn_argmax_args){
        .x = qrn_tensor_2d(QRN_F32, w->logits + first * n_vocab, n, n_vocab),
        .ids = qrn_tensor_1d(QRN_I32, w->drawn->ids + first, n),
        .values = qrn_tensor_1d(QRN_F32, w->drawn->probabilities + first, n)};
}

static enum qrn_status queue_sampled(struct qrn_model *model, struct qrn_part *p, int64_t i_row,
                                     struct qrn_error *err)
{
    const struct qrn_stage *last = qrn_model_last(model);
    struct qrn_sample_args a = args_of(model, p->sampling, i_row);
    a.position = (uint64_t)(p->at + p->n);
    if (p->n_penalised)
        a.history =
            qrn_tensor_1d(QRN_I32, last->work.tables.penalised + p->penalised, p->n_penalised);
    const enum qrn_status s = qrn_op_queue(last->device, QRN_OP_sample, &a, err);
    /* what was checked before leaves the logits to complain about */
    p->no_token = s == QRN_ERR_ARGUMENT && qrn_device_host_reads(last->device);
    return p->no_token ? QRN_OK : s;
}

enum qrn_status qrn_draw_queue(struct qrn_model *model, struct qrn_part *const *parts, int64_t n,
                               struct qrn_error *err)
{
    for (int64_t i = 0; i < n;) {
        const int64_t first = i;
        while (i < n && qrn_draw_is_plain(parts[i])) i++; /* all in one go */
        if (i > first) {
            const struct qrn_argmax_args a = qrn_draw_likeliest(model, first, i - first);
            QRN_TRY(qrn_op_queue(qrn_model_last(model)->device, QRN_OP_argmax, &a, err));
        } else {
            if (parts[i]) QRN_TRY(queue_sampled(model, parts[i], i, err));
            i++;
        }
    }
    return QRN_OK;
}

void qrn_draw_deliver(struct qrn_part *p, const struct qrn_drawn *drawn, int64_t i_row)
{
    const float probability = drawn->probabilities[i_row];
    const bool plain = qrn_draw_is_plain(p);
    p->no_token = p->no_token || isnan(probability) || (plain && probability == -INFINITY);
    if (p->no_token) return;
    p->append->next = drawn->ids[i_row];
    p->append->next_probability = plain ? 1.0f : probability;
}
