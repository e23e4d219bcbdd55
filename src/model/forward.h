/* SPDX-License-Identifier: MIT
 * The forward pass as a list of ops: recorded, or run one by one. */
#ifndef QUERN_MODEL_FORWARD_H
#define QUERN_MODEL_FORWARD_H

#include "model/model_impl.h"

/* Where ops go: to the device of a stage, which has what they work on.  The first failure sticks; after
 * it nothing is emitted. */
struct qrn_emitter {
    struct qrn_stage *stage;
    struct qrn_encoder *encoder; /* NULL: run at once */
    enum qrn_status status;
    struct qrn_error error;
};

/* x = rows of the embedding for work.tables.ids: of the first stage. */
void qrn_forward_embedding(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s);
/* x = x + mixer(norm(x)); x = x + mlp(norm(x)); x is whole where a stage ends, unless logits follow. */
void qrn_forward_layer(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s,
                       int64_t i_layer);
/* logits of all rows of a step, behind its last layer. */
void qrn_forward_logits(struct qrn_emitter *e, struct qrn_model *model, struct qrn_step_shape s);
/* logits of rows work.tables.head_rows[0 .. n) of x, and head_normed: their final norm; of the last
 * stage. */
void qrn_forward_head(struct qrn_emitter *e, struct qrn_model *model, int64_t n);

#endif
