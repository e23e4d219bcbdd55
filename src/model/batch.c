/* SPDX-License-Identifier: MIT
 * What a part of a batch takes, writes, and leaves behind. */
#include "model/batch.h"

#include <string.h>
#include "base/error.h"
#include "core/device_impl.h"

static enum qrn_status copy_of(const struct qrn_seq *seq, const struct qrn_stage *stage,
                               const struct qrn_buffer *old, struct qrn_buffer **out,
                               struct qrn_error *err)
{
    QRN_TRY(qrn_seq_acquire_to_fill(seq, stage, qrn_buffer_size(old), out, err));
    return qrn_buffer_copy(*out, 0, old, 0, qrn_buffer_size(old), err);
}

/* What the part begins with. */
static struct qrn_recurrent present(const struct qrn_part *p, int i_stage)
{
    struct qrn_recurrent r = p->seq->recurrent[i_stage];
    if (!p->before) return r;
    const struct qrn_recurrent *made = &p->before->fresh[i_stage];
    for (int i = 0; i < 2; i++) {
        if (made->state[i]) r.state[i] = made->state[i];
        if (made->rows[i]) r.rows[i] = made->rows[i];
    }
    if (made->history) r.history = made->history;
    return r;
}

/* Rows of a chunk for the part to write: what is open is copied. */
static enum qrn_status own_rows(const struct qrn_part *p, const struct qrn_stage *stage,
                                const struct qrn_buffer *old, struct qrn_buffer **out,
                                struct qrn_error *err)
{
    return p->at % QRN_CHUNK ? copy_of(p->seq, stage, old, out, err)
                             : qrn_seq_acquire(p->seq, stage, stage->sizes.rows, out, err);
}

/* S0 is read where it is.  Each edge writes a state and begins new rows: fresh ones, so that the chunk
 * that the sequence stands in, and the one before it, stay whole until the pass has succeeded. */
static enum qrn_status prepare_recurrent(struct qrn_part *p, int i_stage, struct qrn_error *err)
{
    const struct qrn_seq *seq = p->seq;
    const struct qrn_stage *stage = &seq->model->stages[i_stage];
    const struct qrn_seq_sizes *z = &stage->sizes;
    const struct qrn_recurrent old = present(p, i_stage);
    struct qrn_recurrent *fresh = &p->fresh[i_stage];
    const int64_t chunk = qrn_chunk_of(p->at);
    const int64_t n_edges = qrn_chunk_of(p->at + p->n) - chunk;
    const int here = (int)(chunk & 1), next = 1 - here;
    if (!z->n_linear) return QRN_OK;
    if (n_edges >= 1) {
        QRN_TRY(qrn_seq_acquire_to_fill(seq, stage, z->state, &fresh->state[next], err));
        QRN_TRY(qrn_seq_acquire(seq, stage, z->rows, &fresh->rows[next], err));
    }
    if (n_edges >= 2)
        QRN_TRY(qrn_seq_acquire_to_fill(seq, stage, z->state, &fresh->state[here], err));
    if (n_edges >= 2 || qrn_buffer_is_shared(old.rows[here]))
        QRN_TRY(own_rows(p, stage, old.rows[here], &fresh->rows[here], err));
    if (p->n > QRN_HISTORY_SLACK || qrn_buffer_is_shared(old.history))
        QRN_TRY(copy_of(seq, stage, old.history, &fresh->history, err));
    return QRN_OK;
}

/* The last page is written: a copy of its own where somebody shares it. */
static enum qrn_status own_last_page(struct qrn_seq *seq, int i_stage, struct qrn_error *err)
{
    struct qrn_buffer **page = &qrn_seq_page(seq, seq->n_pages - 1)[i_stage], *own = NULL;
    if (!*page || !qrn_buffer_is_shared(*page)) return QRN_OK;
    const enum qrn_status s = copy_of(seq, &seq->model->stages[i_stage], *page, &own, err);
    if (s != QRN_OK) {
        qrn_buffer_release(own);
        return s;
    }
    qrn_buffer_release(*page);
    *page = own;
    return QRN_OK;
}

/* One page more, of every stage with attention. */
static enum qrn_status add_page(struct qrn_seq *seq, struct qrn_error *err)
{
    struct qrn_buffer **page = qrn_seq_page(seq, seq->n_pages++);
    for (int i = 0; i < seq->model->n_stages; i++) page[i] = NULL;
    for (int i = 0; i < seq->model->n_stages; i++) {
        const struct qrn_stage *stage = &seq->model->stages[i];
        if (stage->sizes.n_attention)
            QRN_TRY(qrn_seq_acquire(seq, stage, stage->sizes.page, &page[i], err));
    }
    return QRN_OK;
}

static enum qrn_status prepare_pages(struct qrn_part *p, struct qrn_error *err)
{
    struct qrn_seq *seq = p->seq;
    const int64_t n_pages = (p->at + p->n + QRN_CHUNK - 1) / QRN_CHUNK;
    for (int i = 0; i < seq->model->n_stages && p->at % QRN_CHUNK; i++)
        QRN_TRY(own_last_page(seq, i, err));
    while (seq->n_pages < n_pages) QRN_TRY(add_page(seq, err));
    return QRN_OK;
}

enum qrn_status qrn_part_prepare(struct qrn_part *p, struct qrn_error *err)
{
    p->n_pages_before = p->seq->n_pages;
    enum qrn_status s = qrn_seq_reserve(p->seq, p->at + p->n, err);
    for (int i = 0; i < p->seq->model->n_stages && s == QRN_OK; i++)
        s = prepare_recurrent(p, i, err);
    if (s == QRN_OK) s = prepare_pages(p, err);
    if (s != QRN_OK) qrn_part_drop(p);
    return s;
}

static void take_over(struct qrn_buffer **slot, struct qrn_buffer **made)
{
    if (!*made) return;
    qrn_buffer_release(*slot);
    *slot = *made;
    *made = NULL;
}

void qrn_part_commit(struct qrn_part *p)
{
    struct qrn_seq *seq = p->seq;
    for (int s = 0; s < seq->model->n_stages; s++) {
        struct qrn_recurrent *r = &seq->recurrent[s], *fresh = &p->fresh[s];
        for (int i = 0; i < 2; i++) {
            take_over(&r->state[i], &fresh->state[i]);
            take_over(&r->rows[i], &fresh->rows[i]);
        }
        take_over(&r->history, &fresh->history);
    }
    memcpy(seq->tokens + seq->n_tokens, p->append->tokens + p->first,
           (size_t)p->n * sizeof *seq->tokens);
    seq->n_tokens += p->n;
    if (seq->n_tokens > seq->peak) seq->peak = seq->n_tokens;
    qrn_seq_drop_unreachable(seq);
    p->append->n_done += p->n;
}

void qrn_part_drop(struct qrn_part *p)
{
    for (int i = 0; i < p->seq->model->n_stages; i++) qrn_recurrent_release(&p->fresh[i]);
    qrn_seq_release_pages(p->seq, p->n_pages_before);
}

/* The last tokens, of the sequence and then of the part. */
static void fill_penalised(const struct qrn_part *p, int32_t *out)
{
    const int64_t n_old = p->n_penalised > p->n ? p->n_penalised - p->n : 0,
                  n_new = p->n_penalised - n_old;
    if (n_old) memcpy(out, p->seq->tokens + p->seq->n_tokens - n_old, (size_t)n_old * sizeof *out);
    if (n_new)
        memcpy(out + n_old, p->append->tokens + p->first + p->n - n_new,
               (size_t)n_new * sizeof *out);
}

static uint64_t address(const struct qrn_buffer *made, const struct qrn_buffer *old)
{
    const struct qrn_buffer *b = made ? made : old;
    return b ? (uint64_t)(uintptr_t)qrn_buffer_data(b) : 0;
}

void qrn_part_fill_tables(const struct qrn_part *p, int i_stage, const struct qrn_tables *t,
                          int64_t i_seq, int64_t max_pages)
{
    const struct qrn_seq *seq = p->seq;
    const struct qrn_recurrent old = present(p, i_stage), *fresh = &p->fresh[i_stage];
    const int here = (int)(qrn_chunk_of(p->at) & 1);
    for (int64_t i = 0; i < p->n; i++) {
        t->ids[p->row + i] = p->append ? p->append->tokens[p->first + i] : 0;
        t->positions[p->row + i] = (int32_t)(p->at + i);
    }
    t->seq_begin[i_seq] = (int32_t)p->row;
    t->seq_begin[i_seq + 1] = (int32_t)(p->row + p->n);
    t->seq_position[i_seq] = (int32_t)p->at;
    fill_penalised(p, t->penalised + p->penalised);
    t->state[3 * i_seq] = address(NULL, old.state[here]);
    for (int i = 0; i < 2; i++) {
        t->state[3 * i_seq + 1 + i] = address(fresh->state[i], NULL);
        t->rows[2 * i_seq + i] = address(fresh->rows[i], old.rows[i]);
    }
    t->history[i_seq] = address(fresh->history, old.history);
    for (int64_t i = 0; i < max_pages; i++)
        t->pages[i_seq * max_pages + i] =
            i < seq->n_pages ? address(NULL, qrn_seq_page(seq, i)[i_stage]) : 0;
}
