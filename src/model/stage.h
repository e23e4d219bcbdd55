/* SPDX-License-Identifier: MIT
 * A stage: consecutive layers of a model that are on one device, with what sequences remember for them
 * and the buffers of a step.  Data go one way, from the first stage, which has the embedding, to the last,
 * which has the output matrix. */
#ifndef QUERN_MODEL_STAGE_H
#define QUERN_MODEL_STAGE_H

#include "model/workspace.h"

#define QRN_MAX_STAGES 2

/* Bytes of what a sequence holds, all layers of a stage or of the model together. */
struct qrn_seq_sizes {
    size_t state, state_layer; /* S0 */
    size_t rows, rows_layer;   /* open rows of a chunk */
    size_t history_row;        /* one position of one layer */
    size_t page, page_layer;   /* 64 positions of keys and values */
    int64_t n_linear, n_attention;
};

struct qrn_stage {
    struct qrn_device *device;
    int64_t begin, end; /* layers */
    bool is_last;
    bool rounds_many; /* many tokens worked on at once may be rounded to bf16 */
    bool takes_bf16;  /* products with activations in bf16 want them so, rather than round */
    struct qrn_seq_sizes sizes;
    struct qrn_workspace work;
};

#endif
