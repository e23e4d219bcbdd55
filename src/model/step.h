/* SPDX-License-Identifier: MIT
 * A step: a batch goes through the layers, rows become logits, logits tokens. */
#ifndef QUERN_MODEL_STEP_H
#define QUERN_MODEL_STEP_H

#include "model/batch.h"

enum { QRN_LEAST_PAGES = 16 }; /* in a table, for each sequence */

struct qrn_batch {
    struct qrn_model *model;
    struct qrn_part *parts;
    int64_t n_parts;
    struct qrn_step_shape shape;
    int64_t n_penalised; /* tokens, of all parts */
    bool wants_hidden;
    qrn_cancel_fn cancel;
    void *cancel_user;
};

/* Runs the batch and delivers what its appends want; its shape is known up to logits and ids.  What was queued may
 * be under way after a failure. */
enum qrn_status qrn_step_run(struct qrn_batch *b, struct qrn_error *err);

/* Queues a batch whose shape is from_drawn, and what it draws on its way to the host: qrn_workspace_take_drawn.
 * ids_known: the host has its tokens; otherwise the step before has drawn them. */
enum qrn_status qrn_step_queue(struct qrn_batch *b, bool ids_known, struct qrn_error *err);

/* QRN_ERR_CANCELLED if the caller wants that. */
enum qrn_status qrn_step_ask_cancel(const struct qrn_batch *b, struct qrn_error *err);

#endif
