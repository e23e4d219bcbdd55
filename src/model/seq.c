/* SPDX-License-Identifier: MIT
 * Sequences: creating, forking, rolling back. */
#include "model/seq.h"

#include <inttypes.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "core/pool.h"
#include "model/ahead.h"

size_t qrn_seq_history_bytes(const struct qrn_seq *seq, const struct qrn_stage *stage)
{
    const struct qrn_seq_sizes *z = &stage->sizes;
    return (size_t)z->n_linear * (size_t)seq->n_history * z->history_row;
}

enum qrn_status qrn_seq_acquire(const struct qrn_seq *seq, const struct qrn_stage *stage,
                                size_t n_bytes, struct qrn_buffer **out, struct qrn_error *err)
{
    return qrn_pool_acquire_on(seq->model->pool, stage->device, n_bytes, QRN_POOL_ZEROS, out, err);
}

enum qrn_status qrn_seq_acquire_to_fill(const struct qrn_seq *seq, const struct qrn_stage *stage,
                                        size_t n_bytes, struct qrn_buffer **out,
                                        struct qrn_error *err)
{
    return qrn_pool_acquire_on(seq->model->pool, stage->device, n_bytes, QRN_POOL_ANYTHING, out,
                               err);
}

void qrn_recurrent_release(struct qrn_recurrent *r)
{
    for (int i = 0; i < 2; i++) {
        qrn_buffer_release(r->state[i]);
        qrn_buffer_release(r->rows[i]);
    }
    qrn_buffer_release(r->history);
    *r = (struct qrn_recurrent){0};
}

void qrn_seq_release_pages(struct qrn_seq *seq, int64_t n)
{
    for (; seq->n_pages > n; seq->n_pages--)
        for (int i = 0; i < seq->model->n_stages; i++)
            qrn_buffer_release(qrn_seq_page(seq, seq->n_pages - 1)[i]);
}

enum qrn_status qrn_seq_reserve(struct qrn_seq *seq, int64_t n_tokens, struct qrn_error *err)
{
    const struct qrn_allocator *a = &seq->model->host.allocator;
    if (n_tokens > seq->n_tokens_reserved) {
        /* whole chunks: decoding allocates where one begins, and nowhere else */
        const int64_t want = ((n_tokens + n_tokens / 2) / QRN_CHUNK + 1) * QRN_CHUNK;
        int32_t *tokens =
            qrn_realloc(a, seq->tokens, (size_t)seq->n_tokens_reserved * sizeof *tokens,
                        (size_t)want * sizeof *tokens);
        if (!tokens) return qrn_fail_memory(err, (size_t)want * sizeof *tokens, "tokens");
        seq->tokens = tokens;
        seq->n_tokens_reserved = want;
    }
    const int64_t n_pages = (n_tokens + QRN_CHUNK - 1) / QRN_CHUNK;
    if (n_pages > seq->n_pages_reserved) {
        const int64_t want = n_pages + n_pages / 2 + 4;
        const size_t page = (size_t)seq->model->n_stages * sizeof(struct qrn_buffer *);
        struct qrn_buffer **pages =
            qrn_realloc(a, seq->pages, (size_t)seq->n_pages_reserved * page, (size_t)want * page);
        if (!pages) return qrn_fail_memory(err, (size_t)want * page, "pages");
        seq->pages = pages;
        seq->n_pages_reserved = want;
    }
    return QRN_OK;
}

enum qrn_status qrn_seq_new(struct qrn_model *model, int max_rollback, struct qrn_seq **out,
                            struct qrn_error *err)
{
    const struct qrn_allocator *a = &model->host.allocator;
    if (model->only_info)
        return qrn_fail(err, QRN_ERR_STATE, "the model was opened without its weights (only_info)");
    struct qrn_seq *seq = qrn_alloc_zeroed(a, sizeof *seq);
    if (!seq) return qrn_fail_memory(err, sizeof *seq, "a sequence");
    seq->model = model;
    seq->max_rollback = max_rollback;
    seq->n_history = model->files.config.conv_kernel - 1 + max_rollback + QRN_HISTORY_SLACK;
    *out = seq;
    return QRN_OK;
}

static enum qrn_status make_first_chunk(struct qrn_seq *seq, struct qrn_error *err)
{
    for (int i = 0; i < seq->model->n_stages; i++) {
        const struct qrn_stage *stage = &seq->model->stages[i];
        struct qrn_recurrent *r = &seq->recurrent[i];
        if (!stage->sizes.n_linear) continue;
        QRN_TRY(qrn_seq_acquire(seq, stage, stage->sizes.state, &r->state[0], err));
        QRN_TRY(qrn_seq_acquire(seq, stage, stage->sizes.rows, &r->rows[0], err));
        QRN_TRY(qrn_seq_acquire(seq, stage, qrn_seq_history_bytes(seq, stage), &r->history, err));
    }
    return QRN_OK;
}

enum qrn_status qrn_seq_create(struct qrn_model *model, const struct qrn_seq_options *options,
                               struct qrn_seq **out, struct qrn_error *err)
{
    const int max_rollback = options ? options->max_rollback : 0;
    struct qrn_seq *seq = NULL;
    if (max_rollback < 0 || max_rollback > QRN_CHUNK)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "max_rollback is %d, wants 0 to %d", max_rollback,
                        QRN_CHUNK);
    QRN_TRY(qrn_seq_new(model, max_rollback, &seq, err));
    const enum qrn_status s = make_first_chunk(seq, err);
    if (s != QRN_OK) {
        qrn_seq_destroy(seq);
        return s;
    }
    *out = seq;
    return QRN_OK;
}

void qrn_seq_destroy(struct qrn_seq *seq)
{
    if (!seq) return;
    const struct qrn_allocator *a = &seq->model->host.allocator;
    qrn_ahead_settle(seq);
    for (int i = 0; i < seq->model->n_stages; i++) qrn_recurrent_release(&seq->recurrent[i]);
    qrn_seq_release_pages(seq, 0);
    qrn_free(a, seq->pages,
             (size_t)(seq->n_pages_reserved * seq->model->n_stages) * sizeof(struct qrn_buffer *));
    qrn_free(a, seq->tokens, (size_t)seq->n_tokens_reserved * sizeof *seq->tokens);
    qrn_free(a, seq, sizeof *seq);
}

int64_t qrn_seq_n_tokens(const struct qrn_seq *seq)
{
    return seq->n_tokens;
}

const int32_t *qrn_seq_tokens(const struct qrn_seq *seq)
{
    return seq->tokens;
}

int64_t qrn_seq_max_rollback(const struct qrn_seq *seq)
{
    const int64_t floor = seq->peak > seq->max_rollback ? seq->peak - seq->max_rollback : 0;
    return seq->n_tokens - floor;
}

static struct qrn_buffer *share(struct qrn_buffer *b)
{
    if (b) qrn_buffer_retain(b);
    return b;
}

static void share_recurrent(const struct qrn_recurrent *r, struct qrn_recurrent *out)
{
    for (int i = 0; i < 2; i++) {
        out->state[i] = share(r->state[i]);
        out->rows[i] = share(r->rows[i]);
    }
    out->history = share(r->history);
}

enum qrn_status qrn_seq_fork(const struct qrn_seq *seq, struct qrn_seq **out, struct qrn_error *err)
{
    struct qrn_seq *copy = NULL;
    qrn_ahead_settle(seq);
    QRN_TRY(qrn_seq_new(seq->model, seq->max_rollback, &copy, err));
    const enum qrn_status s = qrn_seq_reserve(copy, seq->n_tokens, err);
    if (s != QRN_OK) {
        qrn_seq_destroy(copy);
        return s;
    }
    if (seq->n_tokens)
        memcpy(copy->tokens, seq->tokens, (size_t)seq->n_tokens * sizeof *copy->tokens);
    copy->n_tokens = seq->n_tokens;
    copy->peak = seq->peak;
    const int n_stages = seq->model->n_stages;
    for (int i = 0; i < n_stages; i++) share_recurrent(&seq->recurrent[i], &copy->recurrent[i]);
    for (int64_t i = 0; i < seq->n_pages * n_stages; i++) copy->pages[i] = share(seq->pages[i]);
    copy->n_pages = seq->n_pages;
    *out = copy;
    return QRN_OK;
}

enum qrn_status qrn_seq_rollback(struct qrn_seq *seq, int64_t n, struct qrn_error *err)
{
    if (n < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "rollback by %" PRId64 ", wants 0 or more", n);
    const int64_t most = qrn_seq_max_rollback(seq);
    if (n > most)
        return qrn_fail(err, QRN_ERR_STATE,
                        "rollback by %" PRId64 " tokens, only %" PRId64 " are kept", n, most);
    qrn_ahead_settle(seq);
    seq->n_tokens -= n;
    qrn_seq_release_pages(seq, (seq->n_tokens + QRN_CHUNK - 1) / QRN_CHUNK);
    return QRN_OK;
}

void qrn_seq_drop_unreachable(struct qrn_seq *seq)
{
    const int64_t chunk = qrn_chunk_of(seq->n_tokens),
                  floor = seq->n_tokens - qrn_seq_max_rollback(seq);
    if (chunk == 0 || qrn_chunk_of(floor) < chunk) return;
    const int other = (int)((chunk + 1) & 1);
    for (int i = 0; i < seq->model->n_stages; i++) {
        struct qrn_recurrent *r = &seq->recurrent[i];
        qrn_buffer_release(r->state[other]);
        qrn_buffer_release(r->rows[other]);
        r->state[other] = r->rows[other] = NULL;
    }
}
