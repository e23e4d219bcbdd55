/* SPDX-License-Identifier: MIT
 * The step ahead: on a device that works beside the host, the step of a token that the step before it has yet to draw is
 * queued behind that one, where the caller has said that this is what comes next (qrn_append.goes_on).  So the
 * device does not wait for the host between two tokens.
 *
 * A step changes nothing of a sequence that it would need if the step failed (batch.h), so what was queued in vain
 * is waited for and dropped: before any other step of the model, and before its sequence is forked, rolled back, saved
 * or destroyed.  model->lock is held but where it says otherwise. */
#ifndef QUERN_MODEL_AHEAD_H
#define QUERN_MODEL_AHEAD_H

#include "model/step.h"

struct qrn_ahead {
    struct qrn_part parts[QRN_HEAD_ROWS]; /* without their appends */
    struct qrn_sampling sampling[QRN_HEAD_ROWS];
    int32_t ids[QRN_HEAD_ROWS]; /* the tokens, once they are drawn */
    int64_t n_parts;            /* 0: nothing is ahead */
    struct qrn_step_shape shape;
};

/* Whether the step of these parts, which want nothing but tokens, can have one behind it; sets the shape. */
void qrn_ahead_shape(struct qrn_batch *b);

/* Queues the step behind b, if that can be; b is queued, and what it draws is not there yet. */
void qrn_ahead_queue(const struct qrn_batch *b);
/* b has drawn. */
void qrn_ahead_note(const struct qrn_batch *b);

/* Whether these appends are what is ahead: then b is that, queued; otherwise nothing is ahead any more. */
bool qrn_ahead_adopt(struct qrn_batch *b, struct qrn_append *appends, size_t n_appends);
void qrn_ahead_drop(struct qrn_model *model);

/* The sequence, whose thread this is, is as its last step has left it.  Takes the lock. */
void qrn_ahead_settle(const struct qrn_seq *seq);

#endif
