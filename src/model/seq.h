/* SPDX-License-Identifier: MIT
 * A sequence: its tokens and all that the model remembers of them.
 *
 * Memory is in reference-counted buffers of the model's pool, shared by forks and snapshots; a buffer
 * that is shared is copied, or replaced, before it is written.  Each stage of the model has its own, on its
 * device:
 *
 *     state[c & 1]  S0 at the beginning of chunk c, for the present chunk, and for the one before it
 *                   as long as a rollback can reach there
 *     rows[c & 1]   the open rows of the same chunks
 *     history       ring of pre-convolution rows [layer][n_history][n_conv]; position p at p % n_history
 *     pages         keys and values, 64 positions each, all attention layers of the stage in one */
#ifndef QUERN_MODEL_SEQ_H
#define QUERN_MODEL_SEQ_H

#include <stdatomic.h>
#include "model/model_impl.h"

/* Rows of history beyond what a rollback needs: a step of up to so many tokens overwrites nothing that
 * its failure would need again. */
#define QRN_HISTORY_SLACK 8

/* What Gated DeltaNet layers of a stage remember; all NULL where it has none. */
struct qrn_recurrent {
    struct qrn_buffer *state[2], *rows[2], *history;
};

struct qrn_seq {
    struct qrn_model *model;
    int max_rollback;
    int64_t n_history;
    int32_t *tokens;
    int64_t n_tokens, n_tokens_reserved;
    int64_t peak; /* the most tokens that history and states have seen: what rollback counts from */
    struct qrn_recurrent recurrent[QRN_MAX_STAGES];
    struct qrn_buffer **pages; /* [n_pages_reserved][n_stages], NULL where a stage needs none */
    int64_t n_pages, n_pages_reserved;
    _Atomic bool is_ahead; /* a step of it is queued that nobody has asked for yet (ahead.h) */
};

/* Page i_page of the first stage; those of the others follow. */
static inline struct qrn_buffer **qrn_seq_page(const struct qrn_seq *seq, int64_t i_page)
{
    return seq->pages + i_page * seq->model->n_stages;
}

static inline int64_t qrn_chunk_of(int64_t position)
{
    return position / QRN_CHUNK;
}

/* Bytes of the history ring of a sequence in a stage. */
size_t qrn_seq_history_bytes(const struct qrn_seq *seq, const struct qrn_stage *stage);

/* n_bytes of the pool, of the stage's device: zeros, or what is there, to be written whole before it is read or
 * saved. */
enum qrn_status qrn_seq_acquire(const struct qrn_seq *seq, const struct qrn_stage *stage,
                                size_t n_bytes, struct qrn_buffer **out, struct qrn_error *err);
enum qrn_status qrn_seq_acquire_to_fill(const struct qrn_seq *seq, const struct qrn_stage *stage,
                                        size_t n_bytes, struct qrn_buffer **out,
                                        struct qrn_error *err);

void qrn_recurrent_release(struct qrn_recurrent *r); /* all of it, and zeroes it */
/* Pages from n on. */
void qrn_seq_release_pages(struct qrn_seq *seq, int64_t n);

/* Memory for tokens and page pointers up to n_tokens. */
enum qrn_status qrn_seq_reserve(struct qrn_seq *seq, int64_t n_tokens, struct qrn_error *err);

/* An empty shell with tokens reserved and no buffers, for fork and load. */
enum qrn_status qrn_seq_new(struct qrn_model *model, int max_rollback, struct qrn_seq **out,
                            struct qrn_error *err);

/* Gives back states and rows of the chunk before the present one when no rollback reaches it. */
void qrn_seq_drop_unreachable(struct qrn_seq *seq);

#endif
