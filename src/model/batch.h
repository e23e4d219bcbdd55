/* SPDX-License-Identifier: MIT
 * A batch: what one pass through the layers works on, and what it will change when it succeeds. */
#ifndef QUERN_MODEL_BATCH_H
#define QUERN_MODEL_BATCH_H

#include "model/seq.h"

/* Consecutive new tokens of one sequence.  Buffers that the pass writes and that its failure must not
 * lose are fresh ones, taken over by the sequence on success. */
struct qrn_part {
    struct qrn_append *append; /* NULL: of a token that is yet to be drawn */
    struct qrn_seq *seq;
    const struct qrn_part *before; /* its step is under way, and as if it were done; or NULL */
    int64_t at;                    /* tokens of the sequence before it */
    int64_t first, n;              /* of the append's tokens */
    int64_t row;                   /* of the batch, where they begin */
    struct qrn_recurrent fresh[QRN_MAX_STAGES]; /* buffers, or NULL */
    int64_t n_pages_before;
    const struct qrn_sampling *sampling; /* of the token after the part, if one is drawn */
    int64_t penalised, n_penalised;      /* its history, within that of all parts */
    bool no_token;                       /* could be drawn: the part is refused */
};

/* Takes what the part needs from the pool.  On failure the sequence is as it was. */
enum qrn_status qrn_part_prepare(struct qrn_part *part, struct qrn_error *err);
/* The pass succeeded: the sequence has the tokens. */
void qrn_part_commit(struct qrn_part *part);
/* It did not: gives back what was taken. */
void qrn_part_drop(struct qrn_part *part);

/* Writes the part into the tables of a stage as sequence i_seq of the batch. */
void qrn_part_fill_tables(const struct qrn_part *part, int i_stage, const struct qrn_tables *t,
                          int64_t i_seq, int64_t max_pages);

#endif
