/* SPDX-License-Identifier: MIT
 * The token that follows: drawn on the device from logits that stay there, so that ids are all that
 * comes back. */
#ifndef QUERN_MODEL_DRAW_H
#define QUERN_MODEL_DRAW_H

#include "model/batch.h"

/* What the op would refuse whatever the logits are. */
enum qrn_status qrn_draw_check(const struct qrn_model *model, const struct qrn_sampling *s,
                               struct qrn_error *err);

/* Tokens that penalties look at when the sequence holds n_tokens; 0 where none is set. */
int64_t qrn_draw_n_penalised(const struct qrn_sampling *s, int64_t n_tokens);

/* Whether the likeliest token is wanted, of logits as they are. */
bool qrn_draw_is_plain(const struct qrn_part *part);
/* The likeliest tokens of n rows of logits from first on, to the same rows of what is drawn. */
struct qrn_argmax_args qrn_draw_likeliest(const struct qrn_model *model, int64_t first, int64_t n);

/* Queues draws from the first n rows of the logits, each for its part (NULL: none is wanted); results go
 * to the same rows of what is drawn.  Where the host reads, it is done and no_token may be set. */
enum qrn_status qrn_draw_queue(struct qrn_model *model, struct qrn_part *const *parts, int64_t n,
                               struct qrn_error *err);

/* Row i_row of what was drawn, into the part's append; no_token where that is none. */
void qrn_draw_deliver(struct qrn_part *part, const struct qrn_drawn *drawn, int64_t i_row);

#endif
