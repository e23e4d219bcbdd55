/* SPDX-License-Identifier: MIT
 * Inside a model: weights, the buffers of a step, and what its sequences are made of. */
#ifndef QUERN_MODEL_IMPL_H
#define QUERN_MODEL_IMPL_H

#include <pthread.h>
#include <quern/model.h>
#include "model/files.h"
#include "model/stage.h"
#include "model/weights.h"

#define QRN_CHUNK 64 /* tokens of a chunk of the gated delta rule, and of a KV page */

struct qrn_model {
    struct qrn_stage stages[QRN_MAX_STAGES];
    int n_stages;
    struct qrn_host host;
    struct qrn_model_files files;
    struct qrn_weights weights;
    struct qrn_seq_sizes sizes; /* of all stages together */
    struct qrn_model_info info;
    char *bits;
    enum qrn_dtype kv_dtype;
    int64_t max_context, max_batch;
    bool only_info, direct;
    struct qrn_pool *pool;  /* states, rows, histories, pages */
    pthread_mutex_t lock;   /* of steps: the workspaces and the recordings */
    struct qrn_part *parts; /* [max_batch] of the batch */
    struct qrn_ahead *ahead;
};

static inline struct qrn_stage *qrn_model_last(struct qrn_model *model)
{
    return &model->stages[model->n_stages - 1];
}

/* A number that changes with the config or the weights: names, types, shapes and samples of all
 * tensors.  For saved sequences. */
uint64_t qrn_model_hash(const struct qrn_model *model);

/* Records a step of one token, which tells whether the stage's device has kernels for its part.  Errors:
 * QRN_ERR_UNSUPPORTED, QRN_ERR_MEMORY. */
enum qrn_status qrn_model_check_kernels(struct qrn_model *model, struct qrn_stage *stage,
                                        struct qrn_error *err);

#endif
